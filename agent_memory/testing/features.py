"""Features and queries for the contract tests of vector stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agent_memory.core.records import Hit, Record
from agent_memory.models.embedders.none import NoEmbedder
from agent_memory.retrieval.bm25 import TURN_LENGTH
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.languages import ENGLISH
from agent_memory.retrieval.postings import weighted, written
from agent_memory.retrieval.query import Query
from agent_memory.stores.base import VectorStore

_ALL = 100_000


def units(count: int, dimension: int = 8, seed: int = 7, *, signed: bool = False) -> np.ndarray:
    """Return rows of unit length; deterministic.

    Args:
        count: Number of rows.
        dimension: Length of a row.
        seed: Another seed gives other rows.
        signed: Whether some cosines are below 0. Otherwise every row matches every other.
    """
    rows = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    if not signed:
        rows = np.abs(rows)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def worded(texts: Sequence[str], meaning: np.ndarray | None = None) -> Features:
    """Return features of records with these words.

    Args:
        texts: The texts, in words that are their own stems.
        meaning: A vector for each; None for no vectors.
    """
    words = [weighted(written(text, ENGLISH), TURN_LENGTH) for text in texts]
    features = Features.of_words(words)
    return features if meaning is None else replace(features, meaning=meaning)


def for_words(words: str, vector: np.ndarray | None = None) -> Query:
    """Return a query for words, with a vector if one is given."""
    query = Query.asked(words, NoEmbedder())
    return query if vector is None else replace(query, meaning=vector)


def ranked(hits: Sequence[Hit], by: str = "cosine") -> list[tuple[Record, float]]:
    """Return hits by cosine or by words, best first. Ties are ordered by id."""
    scored = [(hit.record, float(getattr(hit, by))) for hit in hits]
    return sorted(scored, key=lambda one: (-one[1], one[0].id))


def everything(store: VectorStore, block: str, owner: str, dimension: int) -> list[Record]:
    """Return all of an owner's records with vectors: each lies on one side of a plane."""
    across = units(1, dimension, seed=40, signed=True)[0]
    found = [store.search_vectors(block, owner, Query(side), _ALL) for side in (across, -across)]
    there = {hit.record.id: hit.record for hits in found for hit in hits}
    return [there[name] for name in sorted(there)]
