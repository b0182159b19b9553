"""Vectors on qdrant-client's local mode, and queries to a Qdrant server on the wire."""

from base64 import b64decode
from collections.abc import Iterator
from math import log
from uuid import uuid4

import numpy as np
import pytest
from qdrant_client import models

from agent_memory.core.records import Record
from agent_memory.errors import DimensionMismatch
from agent_memory.retrieval.features import Features, term_of
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.vectors import TOKEN
from agent_memory.stores.base import VectorStore
from agent_memory.stores.encrypted.keys import Keys
from agent_memory.stores.encrypted.store import EncryptedStore
from agent_memory.stores.qdrant.points import MEANING, WORDS, features_at, holding
from agent_memory.stores.qdrant.store import Names, QdrantStore, embedding
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing import VectorStoreContract
from agent_memory.testing.contract import (
    everything,
    for_words,
    ranked,
    record,
    together,
    units,
    worded,
)
from tests.contract.vector_changes_contract import VectorChangesContract
from tests.servers.qdrant import Request, StandIn, server
from tests.servers.qdrant import qdrant as url

__all__ = ["server", "url"]


@pytest.fixture
def store(server: StandIn) -> Iterator[QdrantStore]:
    store = QdrantStore(server.url)
    yield store
    store.close()


def fill(store: QdrantStore, count: int = 1) -> Features:
    """Store as many records of user b as of user a, with words and meaning."""
    store.open_vectors("v", 4, "m")
    features = worded(["fox den den"] * count, units(count, 4))
    for owner in "ab":
        records = [record(f"{owner}{n:03}", f"user:{owner}") for n in range(count)]
        store.put_vectors("v", records, features)
    return features


def test_a_point_contains_all_features_of_its_record(server: StandIn, store: QdrantStore) -> None:
    """Wrong: a point lacks a feature, or has other weights than in other stores."""
    features = fill(store)
    sent = next(r for r in server.requests if str(r).startswith("PUT") and "points" in r.path)
    point = sent.body["points"][0]
    assert point["vector"].keys() == {MEANING, WORDS}
    assert point["vector"][MEANING] == features.meaning[0].tolist()
    words = point["vector"][WORDS]
    terms = dict(zip(words["indices"], words["values"], strict=True))
    text = features.words[0]
    assert terms == dict(zip(text.ids.tolist(), text.weights.tolist(), strict=True))
    pieces = np.frombuffer(b64decode(point["payload"]["tokens"]), np.int8).reshape(-1, TOKEN)
    assert np.array_equal(pieces, features.tokens.of_record(0))
    assert point["payload"]["place"] == list(features.places[0].tolist())


def test_an_empty_query_sends_no_request(server: StandIn, store: QdrantStore) -> None:
    """Wrong: an empty vector is sent, and refused, or a query for nothing costs a request."""
    fill(store, 3)
    for query, used in ((for_words("fox"), {WORDS}), (Query(units(1, 4)[0]), {MEANING})):
        server.requests.clear()
        assert len(store.search_vectors("v", "user:a", query, 2)) == 2
        batch = server.requests[0].body["searches"]
        assert {one["using"] for one in batch} == used
    server.requests.clear()
    assert store.search_vectors("v", "user:a", for_words(""), 2) == []
    assert store.search_vectors("v", "user:a", for_words("fox"), 0) == []
    assert server.requests == []


def test_a_qdrant_block_works_without_an_embedder(server: StandIn, store: QdrantStore) -> None:
    """Wrong: without an embedder a block cannot be stored in Qdrant, or cannot get one later."""
    store.open_vectors("v", 0, "words-only")
    (name,) = server.collections
    assert embedding(name) == (0, "words-only")
    made = next(r for r in server.requests if str(r) == f"PUT /collections/{name}")
    assert made.body["vectors"] == {}
    assert made.body["sparse_vectors"].keys() == {WORDS}
    store.put_vectors("v", [record("a"), record("b")], worded(["fox", "fox den"]))
    unopened = QdrantStore(server.url)
    for handle in (store, unopened):
        found = handle.search_vectors("v", "user:a", for_words("fox"), 9)
        assert {one.id for one, _ in ranked(found, "words")} == {"a", "b"}
        with pytest.raises(DimensionMismatch):
            handle.search_vectors("v", "user:a", Query(units(1, 4)[0]), 9)
    unopened.clear_vectors("v")
    unopened.open_vectors("v", 4, "m")
    with pytest.raises(DimensionMismatch, match="holds vectors of 'm' with 4"):
        store.search_vectors("v", "user:a", for_words("fox"), 9)
    unopened.close()


def test_encrypted_records_are_found_by_words(server: StandIn, store: QdrantStore) -> None:
    """Wrong: the server sees the words, or encrypted records are not found by them."""
    keys = Keys({"k": bytes(range(32))})
    encrypted = EncryptedStore(MemoryStore(), keys).vectors_of(store)
    encrypted.open_vectors("v", 0, "words-only")
    plain = [record("a", text="the fox"), record("b", text="an owl")]
    encrypted.put_vectors("v", plain, worded(["fox den", "owl den"]))
    encrypted.put_vectors("v", [record("c", "user:b")], worded(["fox"]))
    (found,) = encrypted.search_vectors("v", "user:a", for_words("fox"), 9)
    assert found.record == plain[0]
    assert found.words > 0
    (name,) = server.collections
    told = {number for one in server.points(name) for number in one.vector[WORDS].indices}
    assert len(told) == 3
    assert not told & {term_of(word) for word in ("fox", "owl", "den")}


def test_the_count_of_records_with_a_word_derives_from_the_best_score() -> None:
    """Wrong: the number of records with a word is misjudged."""
    query, count = for_words("fox owl"), 100

    def answer(number: int, weight: float, held: int) -> list[models.ScoredPoint]:
        score = weight * log(1 + (count - held + 0.5) / (held + 0.5))
        words = models.SparseVector(indices=[number], values=[weight])
        return [models.ScoredPoint(id=1, version=0, score=score, vector={WORDS: words})]

    answers = [answer(term_of("fox"), 1.5, 3), answer(term_of("owl"), 0.7, 60)]
    assert holding(query, answers, count) == [3, 60]
    assert holding(query, [answers[0], []], count) == [3, 0]


def test_a_query_vector_of_zeros_finds_nothing_relevant(store: QdrantStore) -> None:
    """Wrong: a vector of zeros raises, or finds records as relevant."""
    fill(store, 3)
    found = store.search_vectors("v", "user:a", Query(np.zeros(4, np.float32)), 9)
    assert all(hit.relevance < 0.01 for hit in found)


LONG = f"hosted_vllm/{'a very long name: of a model ' * 5}v2"


@pytest.fixture
def stores(server: StandIn) -> Iterator[list[QdrantStore]]:
    stores = [QdrantStore(server.url, "a-b") for _ in range(3)]
    yield stores
    for store in stores:
        store.close()


def _read(store: QdrantStore) -> list[Record]:
    return [one for records, _ in store.all_vectors("v") for one in records]


def test_all_vectors_returns_all_records_of_a_qdrant_block(stores: list[QdrantStore]) -> None:
    """Wrong: a copy of a block lacks records, or has them under another model."""
    writer, _, reader = stores
    writer.open_vectors("v", 8, LONG)
    new = Features.of_vectors(units(2, 8))
    writer.put_vectors("v", [record("x"), record("y")], new)
    for store in (writer, reader):
        assert store.vector_blocks() == {"v": (8, LONG)}
        assert sorted(one.id for one in _read(store)) == ["x", "y"]
    writer.clear_vectors("v")
    assert (reader.vector_blocks(), _read(reader)) == ({}, [])


def test_a_block_can_be_cleared_during_a_read(server: StandIn, stores: list[QdrantStore]) -> None:
    """Wrong: a copy of a block that is cleared meanwhile raises."""
    writer, reader, other = stores
    writer.open_vectors("v", 4, "m")
    records = [record(f"r{n}") for n in range(250)]
    writer.put_vectors("v", records, Features.of_vectors(units(250, 4)))
    pages = reader.all_vectors("v")
    assert len(next(pages)[0]) == 200
    other.clear_vectors("v")
    assert list(pages) == []
    writer.open_vectors("v", 4, "m")

    def clear(request: Request) -> None:
        if request.method == "GET" and request.path.startswith(f"/collections/{name}"):
            server._client.delete_collection(name)

    (name,) = server.collections
    server.before = clear
    assert reader.vector_blocks() == {}


def test_blocks_without_model_metadata_are_read(server: StandIn, stores: list[QdrantStore]) -> None:
    """Wrong: vectors on a server before 1.16 cannot be read."""
    name = Names("a-b").vectors("v", 4, "openai/m")
    server._client.create_collection(name, vectors_config={})
    stores[0].open_vectors("v", 4, "openai/m")
    assert stores[0].vector_blocks() == {"v": (4, "openai-m")}


def test_points_without_words_or_vectors_can_be_read() -> None:
    """Wrong: a record without words, or without a vector, ends the reading of all others."""
    place = Features.of_words([]).places
    payload = {"tokens": "", "place": np.zeros(1, place.dtype)[0].tolist()}
    points = [
        models.Record(id=n, payload=payload, vector=vector)
        for n, vector in enumerate([{"meaning": [1.0, 0.0]}, {}])
    ]
    features = features_at(points, 2)
    assert np.array_equal(features.meaning, [[1, 0], [0, 0]])
    assert [len(one.ids) for one in features.words] == [0, 0]
    assert [len(features.tokens.of_record(at)) for at in range(2)] == [0, 0]
    assert features_at(points[1:], 0).meaning.shape == (1, 0)


def test_similar_namespaces_share_no_blocks(server: StandIn, stores: list[QdrantStore]) -> None:
    """Wrong: a namespace lists blocks of another one with a similar name."""
    for namespace, block in (("a-b", "v"), ("a", "w"), ("a_b", "x"), ("a-b-c", "y")):
        store = QdrantStore(server.url, namespace)
        store.open_vectors(block, 4, "m")
        assert store.vector_blocks() == {block: (4, "m")}
        store.close()
    assert stores[0].vector_blocks() == {"v": (4, "m")}


class TestQdrantLocally(VectorStoreContract, VectorChangesContract):
    @pytest.fixture
    def elsewhere(self) -> Iterator[VectorStore]:
        store = QdrantStore(":memory:", "elsewhere")
        yield store
        store.close()

    @pytest.fixture
    def store(self) -> Iterator[VectorStore]:
        store = QdrantStore(":memory:", namespace=uuid4().hex[:8])
        yield store
        store.close()

    def test_concurrent_threads_lose_no_item(self, store: VectorStore) -> None:
        """Wrong: a write in one thread breaks a search in another."""
        rows = np.eye(16, dtype=np.float32)

        def run(n: int) -> None:
            store.open_vectors("v", 16, "m")
            for turn in range(5):
                records = [record(f"{n} {turn} {m}") for m in range(16)]
                store.put_vectors("v", records, Features.of_vectors(rows))
                store.search_vectors("v", "user:a", for_words("fox", rows[n]), 9)
                store.delete_vectors("v", session_id="another")

        together([lambda n=n: run(n) for n in range(6)])
        assert len(everything(store, "v", "user:a", 16)) == 6 * 5 * 16


class TestQdrantServer(VectorStoreContract, VectorChangesContract):
    @pytest.fixture
    def namespace(self) -> str:
        return uuid4().hex[:8]

    @pytest.fixture
    def store(self, url: str, namespace: str) -> Iterator[VectorStore]:
        store = QdrantStore(url, namespace)
        yield store
        for block in ("v", "w"):
            store.clear_vectors(block)
        store.close()

    @pytest.fixture
    def other(self, url: str, namespace: str) -> Iterator[VectorStore]:
        store = QdrantStore(url, namespace)
        yield store
        store.close()

    @pytest.fixture
    def elsewhere(self, url: str) -> Iterator[VectorStore]:
        store = QdrantStore(url, f"elsewhere {uuid4().hex[:8]}")
        yield store
        store.clear_vectors("v")
        store.close()
