"""The contract suite on the store in memory."""

import threading
from collections.abc import Iterator

import pytest

from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing import StoreContract
from agent_memory.testing.contract import for_words, record, worded


class TestMemoryStore(StoreContract):
    """`MemoryStore` keeps the contract. The tests of SQLite cover all that both have in common."""

    @pytest.fixture
    def store(self) -> Iterator[MemoryStore]:
        store = MemoryStore()
        yield store
        store.close()

    @pytest.fixture
    def elsewhere(self) -> MemoryStore:
        return MemoryStore("elsewhere")


def test_a_search_does_not_wait_for_a_lock_while_it_holds_one() -> None:
    """Wrong: a search holds one lock while it waits for another, so a fork can deadlock."""
    store = MemoryStore()
    store.open_vectors("v", 0, "m")
    store.put_vectors("v", [record("a", owner="u")], worded(["fox"]))
    searching = threading.Thread(target=lambda: store.search_vectors("v", "u", for_words("fox"), 3))
    with store._indexes._cache.lock:
        searching.start()
        searching.join(0.2)
        lock = store._kernel._database._lock
        assert lock.acquire(timeout=10)
        lock.release()
        assert searching.is_alive()
    searching.join()
    store.close()
