"""Short texts that stand for themselves, such as facts and notes, found by words and meaning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent_memory.retrieval.blending import blended, shares
from agent_memory.retrieval.features import Features, Query
from agent_memory.retrieval.index import SegmentIndex
from agent_memory.retrieval.relevance import bears
from agent_memory.retrieval.terms import NO_TERMS, Terms, weighted, written
from agent_memory.retrieval.views import VIEWS

_VIEWS = (0.5, 0.0, 0.5, 0.0)  # words and meaning count alike; such a text has no surroundings
_USUAL_LENGTH = 8.0  # words of a text, stop words not counted


class TextIndex:
    """Texts and what they mean, for as long as nothing of them changes.

    Args:
        texts: What each is found by.
        vectors: (n, dimension) what each means, of unit length; no columns without an embedder.
        before: An index of much the same texts: of those that it has the words are not read again.

    Attributes:
        texts: As given.
        vectors: As given.
    """

    def __init__(
        self, texts: Sequence[str], vectors: np.ndarray, before: TextIndex | None = None
    ) -> None:
        self.texts = texts
        self.vectors = vectors
        self._dimension = int(vectors.shape[1])
        known: dict[str, Terms] = {} if before is None else before._words
        self._words: dict[str, Terms] = {
            one: known[one] if one in known else _words(one) for one in texts
        }
        words = [self._words[one] for one in texts]
        features = Features(vectors, np.zeros_like(vectors), words, [NO_TERMS] * len(texts))
        ids = [str(place) for place in range(len(texts))]
        self._index = SegmentIndex(self._dimension).extended(ids, features)

    def __len__(self) -> int:
        return len(self.texts)

    def relevance(self, query: Query, places: Sequence[int] | None = None) -> np.ndarray:
        """(n,) what texts have in common with a question, over the best of them; 0 for all else.

        Args:
            query: The question.
            places: Only of these; None for all.
        """
        hits, scores = self._found(query, places)
        relevance = np.zeros(len(self.texts))
        relevance[hits] = blended(shares(scores), _VIEWS)
        return relevance

    def bearing(
        self, question: str, query: Query, unrelated: float, places: Sequence[int] | None = None
    ) -> np.ndarray:
        """`relevance`, but 0 throughout where not even the best text bears on the question.

        That is judged by what texts mean. Where they were compared by their words alone, every text
        that shares one counts.

        Args:
            question: The question.
            query: What it looks for.
            unrelated: As `Embedder.unrelated`.
            places: Only of these; None for all.
        """
        hits, scores = self._found(query, places)
        texts = [self.texts[int(place)] for place in hits]
        if not self._compares(query):
            unrelated = 0.0
        relevance = np.zeros(len(self.texts))
        if bears(question, texts, scores, unrelated):
            relevance[hits] = blended(shares(scores), _VIEWS)
        return relevance

    def _compares(self, query: Query) -> bool:
        """Whether both sides have vectors, of one length."""
        return 0 < self._dimension == len(query.meaning)

    def _found(self, query: Query, places: Sequence[int] | None) -> tuple[np.ndarray, np.ndarray]:
        if not self._compares(query):  # one of the two could not be had
            query = Query(np.zeros(self._dimension, np.float32), query.words)
        found = self._index.search(query, len(self.texts))
        hits = np.array([int(name) for name in found.ids], np.int64)
        scores = found.scores.reshape(len(hits), len(VIEWS))
        if places is None:
            return hits, scores
        wanted = np.isin(hits, places)
        return hits[wanted], scores[wanted]


def _words(text: str) -> Terms:
    return weighted(written(text), _USUAL_LENGTH)
