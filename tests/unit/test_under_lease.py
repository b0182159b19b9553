"""Holding a session's lease: why it could not be had, and what to do then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Lease
from agent_memory.engine.edit.edit import under_lease
from agent_memory.engine.leases import Leases, Unheld
from agent_memory.errors import LeaseLost, StoreUnavailable
from agent_memory.stores.memory import MemoryStore
from agent_memory.testing.watching import watched

TOLD = "Nothing was done; try again."


@pytest.fixture
def store() -> MemoryStore:
    """With one session, "s"."""
    store = MemoryStore()
    begin(store)
    return store


def begin(store: MemoryStore) -> None:
    store.append("s", [Draft(Message(role="user", content="x"), 1, "test")])


def at_lease(*steps: Callable[[], object]) -> Callable[[str], None]:
    """A watch that takes a step each time before a lease is asked for."""
    left = list(steps)

    def watch(step: str) -> None:
        if step == "before lease" and left:
            left.pop(0)()

    return watch


def nothing() -> None:
    pass


def test_why_a_lease_could_not_be_had(store: MemoryStore) -> None:
    """Wrong: who waits for a session that is gone is told that somebody holds it, or reversely."""
    leases = Leases(store)
    with leases.take("other") as taken:
        assert taken is Unheld.GONE
    assert store.lease("s", "somebody", 60)
    with leases.take("s") as taken, leases.hold("s") as held:
        assert (taken, held) == (Unheld.BUSY, None)
    store.release("s", "somebody")
    with leases.take("s") as taken:
        assert isinstance(taken, Lease)
        assert not store.lease("s", "somebody", 60)
    assert store.lease("s", "somebody", 60)


def test_a_session_that_goes_while_it_is_waited_for(store: MemoryStore) -> None:
    """Wrong: that it is gone is found out only when the time is over."""
    assert store.lease("s", "somebody", 60)
    leases = Leases(watched(store, at_lease(nothing, nothing, lambda: store.delete("s"))))
    with leases.take("s", waiting=True) as taken:
        assert taken is Unheld.GONE


def test_nothing_to_do_takes_no_lease(store: MemoryStore) -> None:
    """Wrong: who has nothing to do keeps a worker off, or waits for him."""
    leases = Leases(watched(store, at_lease(lambda: pytest.fail("a lease was asked for"))))
    done = under_lease(leases, "s", lambda: None, lambda task, lease: "done", TOLD)
    assert done is None


def test_whoever_comes_second_looks_again(store: MemoryStore) -> None:
    """Wrong: what was planned before another writer came is done after him; or the lease is given
    back between."""
    seen: list[tuple[int, str]] = []
    tasks = iter(range(9))

    def work(task: int, lease: Lease) -> str | None:
        seen.append((task, lease.owner))
        return "done" if len(seen) == 3 else None

    leases = Leases(store)
    assert under_lease(leases, "s", lambda: next(tasks), work, TOLD) == "done"
    assert [task for task, _ in seen] == [1, 2, 3]
    assert len({owner for _, owner in seen}) == 1


def test_whoever_loses_the_lease_takes_another(store: MemoryStore) -> None:
    """Wrong: a worker that was taken over gives up, or goes on with the lease that he has lost."""
    owners: list[str] = []

    def work(task: str, lease: Lease) -> str:
        owners.append(lease.owner)
        if len(owners) < 3:
            raise LeaseLost("taken over")
        return "done"

    assert under_lease(Leases(store), "s", lambda: "task", work, TOLD) == "done"
    assert len(set(owners)) == 3


def test_a_session_that_is_gone_and_back(store: MemoryStore) -> None:
    """Wrong: it is said to be held, and nobody holds it."""
    watch = at_lease(lambda: store.delete("s"), lambda: begin(store))
    done = under_lease(
        Leases(watched(store, watch)), "s", lambda: "task", lambda task, lease: "done", TOLD
    )
    assert done == "done"


@pytest.mark.parametrize("still", [True, False])
def test_a_session_that_is_not_let_go(
    still: bool, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: it is waited for without end; or what another has done meanwhile is called undone."""
    monkeypatch.setattr("agent_memory.engine.leases._WAIT_SECONDS", 0.0)
    assert store.lease("s", "somebody", 60)
    tasks = ["task", "task" if still else None]

    def look() -> str | None:
        return tasks.pop(0) if tasks else None

    def work(task: str, lease: Lease) -> str:
        pytest.fail("it was done without the lease")

    if still:
        with pytest.raises(StoreUnavailable, match="within 0 s"):
            under_lease(Leases(store), "s", look, work, TOLD)
    else:
        assert under_lease(Leases(store), "s", look, work, TOLD) is None
