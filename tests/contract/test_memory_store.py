"""The contract suite on the store in memory."""

import threading
from collections.abc import Iterator

import pytest

from agent_memory.stores.base import Store
from agent_memory.stores.memory import MemoryStore
from agent_memory.testing import StoreContract
from agent_memory.testing.contract import for_words, record, worded
from tests.contract.clock_contract import ClockContract
from tests.contract.grouping_contract import GroupingContract
from tests.contract.import_contract import ImportContract
from tests.contract.long_log_contract import LongLogContract
from tests.contract.segments_contract import SegmentsContract
from tests.contract.whole_deletion_contract import WholeDeletionContract


class TestMemoryStore(
    StoreContract,
    SegmentsContract,
    LongLogContract,
    ClockContract,
    GroupingContract,
    ImportContract,
    WholeDeletionContract,
):
    """`MemoryStore` keeps the contract."""

    def kept(self, store: Store) -> int:
        kinds = ("vector:v", "catalog:v", "segment:v")
        return sum(store._kernel.counts(kind)[0] for kind in kinds)

    @pytest.fixture
    def store(self) -> Iterator[MemoryStore]:
        store = MemoryStore()
        yield store
        store.close()

    @pytest.fixture
    def elsewhere(self) -> MemoryStore:
        return MemoryStore("elsewhere")


def test_a_search_holds_no_lock_while_it_waits_for_another() -> None:
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
