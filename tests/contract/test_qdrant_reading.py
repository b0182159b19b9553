"""Reading all vectors of a block in Qdrant, without those that are being rebuilt."""

from collections.abc import Iterator

import numpy as np
import pytest
from qdrant_client import models

from agent_memory.core.records import Record
from agent_memory.retrieval.features import Features
from agent_memory.stores.qdrant.collections import Names
from agent_memory.stores.qdrant.points import features_at
from agent_memory.stores.qdrant.store import QdrantStore
from agent_memory.testing.contract import record, units
from tests.servers.qdrant import Request, StandIn

LONG = f"hosted_vllm/{'a very long name: of a model ' * 5}v2"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.delenv("QDRANT_API_KEY", raising=False)
    with StandIn() as server:
        yield server


@pytest.fixture
def stores(server: StandIn) -> Iterator[list[QdrantStore]]:
    stores = [QdrantStore(server.url, "a-b") for _ in range(3)]
    yield stores
    for store in stores:
        store.close()


def _put(store: QdrantStore, names: str, dimension: int) -> None:
    features = Features.of_vectors(units(len(names), dimension))
    store.put_vectors("v", [record(name) for name in names], features)


def _read(store: QdrantStore) -> list[Record]:
    return [one for records, _ in store.all_vectors("v") for one in records]


def test_what_is_being_filled_is_left_out(stores: list[QdrantStore]) -> None:
    """Wrong: a block that is being rebuilt is copied in part, or under the wrong model."""
    former, filler, reader = stores
    former.open_vectors("v", 4, "former")
    _put(former, "abc", 4)
    filler.begin_vectors("v", 8, LONG)
    filler.open_vectors("v", 8, LONG)
    assert filler.fill_vectors("v")
    _put(filler, "xy", 8)
    for store in stores:
        assert store.vector_blocks() == {"v": (4, "former")}
        assert sorted(one.id for one in _read(store)) == ["a", "b", "c"]
    filler.swap_vectors("v")
    for store in (filler, reader):
        assert store.vector_blocks() == {"v": (8, LONG)}
        assert sorted(one.id for one in _read(store)) == ["x", "y"]
    filler.clear_vectors("v")
    assert (reader.vector_blocks(), _read(reader)) == ({}, [])


def test_a_block_that_is_cleared_meanwhile(server: StandIn, stores: list[QdrantStore]) -> None:
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


def test_a_server_that_keeps_no_model(server: StandIn, stores: list[QdrantStore]) -> None:
    """Wrong: vectors on a server before 1.16 cannot be read."""
    name = Names("a-b").vectors("v", 4, "openai/m")
    server._client.create_collection(name, vectors_config={})
    stores[0].open_vectors("v", 4, "openai/m")
    assert stores[0].vector_blocks() == {"v": (4, "openai-m")}


def test_vectors_that_a_server_leaves_out() -> None:
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


def test_blocks_of_namespaces_that_begin_alike(server: StandIn, stores: list[QdrantStore]) -> None:
    """Wrong: a namespace lists blocks of another one with a similar name."""
    for namespace, block in (("a-b", "v"), ("a", "w"), ("a_b", "x"), ("a-b-c", "y")):
        store = QdrantStore(server.url, namespace)
        store.open_vectors(block, 4, "m")
        assert store.vector_blocks() == {block: (4, "m")}
        store.close()
    assert stores[0].vector_blocks() == {"v": (4, "m")}
