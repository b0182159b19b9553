"""The vector contract on qdrant-client's local mode, and on the wire."""

from collections.abc import Iterator
from uuid import uuid4

import numpy as np
import pytest

from agent_memory.retrieval.features import Features
from agent_memory.stores.base import VectorStore
from agent_memory.stores.qdrant.store import QdrantStore
from agent_memory.testing import VectorStoreContract
from agent_memory.testing.contract import everything, for_words, record, together
from tests.contract.vector_changes_contract import VectorChangesContract
from tests.servers.qdrant import qdrant as url

__all__ = ["url"]


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

    def test_many_threads(self, store: VectorStore) -> None:
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
