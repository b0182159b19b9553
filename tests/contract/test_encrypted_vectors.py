"""Vectors of an encrypted store: texts are encrypted, and words are numbered by a secret."""

from typing import Any

import numpy as np
import pytest

from agent_memory.core.records import Hit
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.postings import term_of
from agent_memory.retrieval.query import Query
from agent_memory.stores.base import VectorStore
from agent_memory.stores.encrypted.keys import Keys
from agent_memory.stores.encrypted.store import EncryptedStore
from agent_memory.stores.memory import MemoryStore
from agent_memory.testing.contract import for_words, ranked, record, worded
from agent_memory.testing.views import bm25

SECRET, LATER = bytes(range(32)), bytes(range(1, 33))
CANARY = "plainly-said"
VECTOR = np.array([[1.0, 0.0]], dtype=np.float32)
QUERY = Query(VECTOR[0])


def vectors_in(inner: MemoryStore, keys: Keys | None = None) -> VectorStore:
    """Return a vector store for an encrypted store, such as Qdrant."""
    return EncryptedStore(MemoryStore(), keys or Keys({"k": SECRET})).vectors_of(inner)


def test_vectors_of_another_database() -> None:
    """Wrong: texts of an encrypted store are in plain text in its vector database."""
    beside = MemoryStore()
    vectors = vectors_in(beside)
    vectors.open_vectors("v", 2, "m")
    given = record("r", text=CANARY, metadata={"note": CANARY})
    vectors.put_vectors("v", [given], worded([CANARY], meaning=VECTOR))
    assert CANARY not in repr(beside.search_vectors("v", "user:a", QUERY, 1))
    for query in (QUERY, for_words(CANARY)):
        (found,) = vectors.search_vectors("v", "user:a", query, 1)
        assert found.record == given
    assert beside.search_vectors("v", "user:a", for_words(CANARY), 1) == []
    vectors.delete_vectors("v", owner="user:a")
    assert vectors.search_vectors("v", "user:a", QUERY, 1) == []


class _Seen(MemoryStore):
    """Record the numbers of all words that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: set[int] = set()
        self.query: set[int] = set()

    def put_vectors(self, block: str, records: Any, features: Features, **more: Any) -> None:
        for terms in features.words:
            self.stored.update(terms.ids.tolist())
        super().put_vectors(block, records, features, **more)

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        self.query.update(number for word in query.words for number in word)
        return super().search_vectors(block, owner, query, limit)


def test_numbers_of_words_are_secret() -> None:
    """Wrong: someone with the database recovers words by hashing a dictionary."""
    inner, words = _Seen(), "fox owl den"
    store = vectors_in(inner)
    store.open_vectors("v", 0, "none")
    store.put_vectors("v", [record("a")], worded([words]))
    (found,) = store.search_vectors("v", "user:a", for_words(words), 9)
    plain = set(map(term_of, words.split()))
    assert (len(plain), len(inner.stored), len(inner.query)) == (3, 3, 3)
    assert not plain & (inner.stored | inner.query)
    assert inner.query == inner.stored
    assert found.words == pytest.approx(bm25({"a": words}, words)["a"], rel=1e-3)
    another = _Seen()
    store = vectors_in(another, Keys({"k": LATER}))
    store.open_vectors("v", 0, "none")
    store.put_vectors("v", [record("a")], worded([words]))
    assert not another.stored & inner.stored


def test_words_are_found_after_a_rotation() -> None:
    """Wrong: after a rotation of keys, older records are not found by words."""
    inner, keys = _Seen(), Keys({"k1": SECRET})
    store = vectors_in(inner, keys)
    store.open_vectors("v", 0, "none")
    store.put_vectors("v", [record("old"), record("no")], worded(["fox den", "owl"]))
    before = set(inner.stored)
    keys.rotate("k2", LATER)
    store.put_vectors("v", [record("new")], worded(["fox red"]))
    assert not before & (inner.stored - before)
    for handle in (store, vectors_in(inner, Keys({"k2": LATER, "k1": SECRET}))):
        found = handle.search_vectors("v", "user:a", for_words("fox"), 9)
        assert {one.id for one, _ in ranked(found, "words")} == {"old", "new"}
    store.put_vectors("v", [record("old")], worded(["fox den"]))  # like a rebuild
    fresh = vectors_in(inner, Keys({"k2": LATER, "k1": SECRET}))
    found = fresh.search_vectors("v", "user:a", for_words("fox"), 9)
    wanted = bm25({"old": "fox den", "new": "fox red", "no": "owl"}, "fox", 20)
    scores = {one.id: score for one, score in ranked(found, "words")}
    assert scores == pytest.approx({name: wanted[name] for name in ("old", "new")}, rel=1e-3)
