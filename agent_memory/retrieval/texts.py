"""Short texts that stand for themselves, such as facts and notes, found by words and meaning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent_memory.retrieval.encoding import Encoding
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.index import SegmentIndex
from agent_memory.retrieval.query import Query


class TextIndex:
    """Texts and what they mean, for as long as nothing of them changes.

    Args:
        texts: The texts.
        encodings: Theirs; without numbers where there is no embedder.

    Attributes:
        texts: As given.
        encoded: Whether all have vectors.
    """

    def __init__(self, texts: Sequence[str], encodings: Sequence[Encoding]) -> None:
        self.texts = texts
        features = Features.of_statements(texts, encodings)
        rows = np.asarray(features.meaning.any(axis=1))
        self.encoded = all(row or not text.strip() for row, text in zip(rows, texts, strict=True))
        ids = [str(place) for place in range(len(texts))]
        self._index = SegmentIndex(features.dimension).extended(ids, features)

    def __len__(self) -> int:
        return len(self.texts)

    def relevance(self, query: Query) -> np.ndarray:
        """Return for each text the probability that it has to do with a question."""
        if len(query.meaning) != self._index.dimension:  # one of the two could not be encoded
            query = query.by_words()
        found = self._index.search(query, len(self.texts))
        relevance = np.zeros(len(self.texts))
        relevance[[int(name) for name in found.names]] = found.relevance
        return relevance
