"""Features to store and questions to ask, for the contracts of vector stores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent_memory.core.records import Hit, Record
from agent_memory.retrieval.bm25 import SURROUNDED_LENGTH, TURN_LENGTH
from agent_memory.retrieval.features import Features, Query
from agent_memory.retrieval.languages import ENGLISH
from agent_memory.retrieval.terms import (
    Terms,
    asked,
    weighted,
    written,
)
from agent_memory.retrieval.views import VIEWS
from agent_memory.stores.base import VectorStore

_ALL = 100_000


def units(count: int, dimension: int = 8, seed: int = 7, *, signed: bool = False) -> np.ndarray:
    """Rows of unit length, the same each time.

    Args:
        count: How many.
        dimension: How long.
        seed: Others for another one.
        signed: Whether some of their cosines are below 0; else any finds all.
    """
    rows = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    if not signed:
        rows = np.abs(rows)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def halved(rows: np.ndarray) -> np.ndarray:
    """In half precision, as stores keep what a record means within its surroundings."""
    return np.asarray(rows.astype(np.float16).astype(np.float32))


def worded(
    texts: Sequence[str],
    around: Sequence[str] | None = None,
    meaning: np.ndarray | None = None,
    meaning_around: np.ndarray | None = None,
) -> Features:
    """Features of records with these words.

    Args:
        texts: What each says, in words that are their own stems.
        around: What is said around each; nothing, unless told.
        meaning: A vector for each; of no dimension, unless told.
        meaning_around: The same for its surroundings; zeros, unless told.
    """
    rows = np.empty((len(texts), 0), np.float32) if meaning is None else meaning
    return Features(
        rows,
        np.zeros_like(rows) if meaning_around is None else halved(meaning_around),
        [_terms(text, TURN_LENGTH) for text in texts],
        [_terms(text, SURROUNDED_LENGTH) for text in around or [""] * len(texts)],
    )


def for_words(words: str, vector: np.ndarray | None = None) -> Query:
    """A question for words, and for a vector if one is given."""
    return Query(np.empty(0, np.float32) if vector is None else vector, asked(words, ENGLISH))


def ranked(hits: Sequence[Hit], view: str = "meaning") -> list[tuple[Record, float]]:
    """What one view gives, best first; of equals, those with the lowest ids."""
    place = VIEWS.index(view)
    scored = [(hit.record, hit.scores[place]) for hit in hits]
    return sorted(scored, key=lambda one: (-one[1], one[0].id))


def everything(store: VectorStore, block: str, owner: str, dimension: int) -> list[Record]:
    """All of an owner's records that have a vector: each is on one side of a plane or the other."""
    across = units(1, dimension, seed=40, signed=True)[0]
    found = [store.search_vectors(block, owner, Query(side), _ALL) for side in (across, -across)]
    there = {hit.record.id: hit.record for hits in found for hit in hits}
    return [there[name] for name in sorted(there)]


def _terms(text: str, usual: float) -> Terms:
    return weighted(written(text, ENGLISH), usual)
