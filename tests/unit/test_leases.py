"""Leases, locks and erasures shared by threads."""

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from agent_memory.core.messages import Message
from agent_memory.core.processes import checked_lock, fork_safe_lock, holds_a_lock
from agent_memory.core.records import Draft, Lease
from agent_memory.engine.edit.edit import under_lease
from agent_memory.engine.leases import Leases
from agent_memory.errors import LeaseLost, StoreUnavailable
from agent_memory.stores.kernel.rules import Erasures
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing.watching import watched

TOLD = "Nothing was done; try again."


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    begin(store)
    return store


def begin(store: MemoryStore) -> None:
    store.append("s", [Draft(Message(role="user", content="x"), 1, "test")])


def at_lease(*steps: Callable[[], object]) -> Callable[[str], None]:
    """Return a watch that runs the next step before each request for a lease."""
    left = list(steps)

    def watch(step: str) -> None:
        if step == "before lease" and left:
            left.pop(0)()

    return watch


def nothing() -> None:
    pass


def test_a_refused_lease_states_its_reason(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a session that does not exist is reported as held by another worker."""
    leases = Leases(store)
    with leases.hold("other", consequence=TOLD) as taken:
        assert taken is None
    assert store.lease("s", "somebody", 60)
    with leases.hold("s") as taken:
        assert taken is None
    monkeypatch.setattr("agent_memory.engine.leases._WAIT_SECONDS", 0.0)
    with pytest.raises(StoreUnavailable, match=TOLD), leases.hold("s", consequence=TOLD):
        pytest.fail("the lease is another worker's")
    store.release("s", "somebody")
    with leases.hold("s") as taken:
        assert isinstance(taken, Lease)
        assert not store.lease("s", "somebody", 60)
    assert store.lease("s", "somebody", 60)


def test_a_wait_for_a_lease_ends_if_the_session_is_deleted(store: MemoryStore) -> None:
    """Wrong: a caller waits the whole time for the lease of a session that was deleted."""
    assert store.lease("s", "somebody", 60)
    leases = Leases(watched(store, at_lease(nothing, nothing, lambda: store.delete("s"))))
    with leases.hold("s", consequence=TOLD) as taken:
        assert taken is None


def test_a_caller_without_work_takes_no_lease(store: MemoryStore) -> None:
    """Wrong: a caller with nothing to do takes a lease."""
    leases = Leases(watched(store, at_lease(lambda: pytest.fail("a lease was asked for"))))
    done = under_lease(leases, "s", lambda: None, lambda task, lease: "done", TOLD)
    assert done is None


def test_a_plan_is_computed_again_after_another_writer(store: MemoryStore) -> None:
    """Wrong: a plan is carried out although another writer has made it stale."""
    seen: list[tuple[int, str]] = []
    tasks = iter(range(9))

    def work(task: int, lease: Lease) -> str | None:
        seen.append((task, lease.owner))
        return "done" if len(seen) == 3 else None

    leases = Leases(store)
    assert under_lease(leases, "s", lambda: next(tasks), work, TOLD) == "done"
    assert [task for task, _ in seen] == [1, 2, 3]
    assert len({owner for _, owner in seen}) == 1


def test_a_worker_that_loses_its_lease_takes_another(store: MemoryStore) -> None:
    """Wrong: a worker that lost its lease gives up."""
    owners: list[str] = []

    def work(task: str, lease: Lease) -> str:
        owners.append(lease.owner)
        if len(owners) < 3:
            raise LeaseLost("taken over")
        return "done"

    assert under_lease(Leases(store), "s", lambda: "task", work, TOLD) == "done"
    assert len(set(owners)) == 3


def test_a_recreated_session_can_be_leased(store: MemoryStore) -> None:
    """Wrong: a session that was deleted and began again is reported as held."""
    watch = at_lease(lambda: store.delete("s"), lambda: begin(store))
    done = under_lease(
        Leases(watched(store, watch)), "s", lambda: "task", lambda task, lease: "done", TOLD
    )
    assert done == "done"


def test_a_lease_wait_ends(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a caller waits forever for a lease."""
    monkeypatch.setattr("agent_memory.engine.leases._WAIT_SECONDS", 0.0)
    assert store.lease("s", "somebody", 60)

    def work(task: str, lease: Lease) -> str:
        pytest.fail("it was done without the lease")

    with pytest.raises(StoreUnavailable, match="within 0 s"):
        under_lease(Leases(store), "s", lambda: "task", work, TOLD)


@pytest.fixture
def made_meanwhile() -> Iterator[None]:
    """Let other threads make and drop locks, with switches as often as possible."""
    done, often = threading.Event(), sys.getswitchinterval()

    def make() -> None:
        while not done.is_set():
            kept = [fork_safe_lock() for _ in range(50)]
            del kept

    threads = [threading.Thread(target=make) for _ in range(3)]
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    yield
    done.set()
    sys.setswitchinterval(often)
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("made_meanwhile")
def test_locks_can_be_checked_while_other_threads_create_locks() -> None:
    """Wrong: a call raises "Set changed size during iteration"."""
    mine = [checked_lock() for _ in range(200)]
    for _ in range(300):
        assert not holds_a_lock()
        with mine[150]:
            assert holds_a_lock()


def test_a_deleted_lock_is_not_held() -> None:
    """Wrong: a deleted lock stays in the list of held locks."""
    lock = checked_lock()
    with lock:
        assert holds_a_lock()
        del lock
    assert not holds_a_lock()


class _Turn:
    """An erasure's lock that counts the callers that wait for it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.asked = threading.Semaphore(0)

    def __enter__(self) -> None:
        self.asked.release()
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def test_callers_during_an_erasure_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a caller relies on an erasure that began before, runs its own, or gets no result."""
    erasures, turn, begun, may_end = Erasures(), _Turn(), threading.Event(), threading.Event()
    monkeypatch.setattr(erasures, "_turn", turn)
    runs: list[str] = []
    results: list[str | None] = []

    def second() -> str:
        runs.append("second")
        return "unfinished"

    def again() -> None:
        results.append(erasures.share(second))

    def slow() -> None:
        runs.append("first")
        begun.set()
        assert may_end.wait(60)

    threads = [threading.Thread(target=erasures.share, args=(slow,))]
    threads[0].start()
    assert begun.wait(60)
    threads += [threading.Thread(target=again) for _ in range(8)]
    for thread in threads[1:]:
        thread.start()
    for _ in threads:
        assert turn.asked.acquire(timeout=60)
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert runs == ["first", "second"]
    assert results == ["unfinished"] * 8
    again()
    assert runs == ["first", "second", "second"]


def test_erasures_may_fail_or_nest() -> None:
    """Wrong: a caller that shares a failed erasure gets no error, or a nested one deadlocks."""
    erasures, runs = Erasures(), list[int]()

    def fail() -> None:
        runs.append(1)
        raise OSError("full")

    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            erasures.share(fail)
    erasures.share(lambda: runs.append(2))
    assert runs == [1, 1, 2]
    erasures, runs = Erasures(), list[str]()

    def outer() -> None:
        erasures.share(lambda: runs.append("inner"))
        runs.append("outer")

    erasures.share(outer)
    erasures.share(lambda: runs.append("next"))
    assert runs == ["inner", "outer", "next"]
