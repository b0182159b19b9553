"""Features to store and questions to ask, for the contracts of vector stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agent_memory.core.records import Hit, Record
from agent_memory.models.embedders.none import NoEmbedder
from agent_memory.retrieval.bm25 import TURN_LENGTH
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.languages import ENGLISH
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.terms import weighted, written
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


def worded(texts: Sequence[str], meaning: np.ndarray | None = None) -> Features:
    """Features of records with these words.

    Args:
        texts: What each says, in words that are their own stems.
        meaning: A vector for each; of no dimension, unless told.
    """
    words = [weighted(written(text, ENGLISH), TURN_LENGTH) for text in texts]
    features = Features.of_words(words)
    return features if meaning is None else replace(features, meaning=meaning)


def for_words(words: str, vector: np.ndarray | None = None) -> Query:
    """A question for words, and for a vector if one is given."""
    query = Query.asked(words, NoEmbedder())
    return query if vector is None else replace(query, meaning=vector)


def ranked(hits: Sequence[Hit], by: str = "cosine") -> list[tuple[Record, float]]:
    """Hits by their cosines or by their words, best first; of equals, those with the lowest ids."""
    scored = [(hit.record, float(getattr(hit, by))) for hit in hits]
    return sorted(scored, key=lambda one: (-one[1], one[0].id))


def everything(store: VectorStore, block: str, owner: str, dimension: int) -> list[Record]:
    """All of an owner's records that have a vector: each is on one side of a plane or the other."""
    across = units(1, dimension, seed=40, signed=True)[0]
    found = [store.search_vectors(block, owner, Query(side), _ALL) for side in (across, -across)]
    there = {hit.record.id: hit.record for hits in found for hit in hits}
    return [there[name] for name in sorted(there)]
