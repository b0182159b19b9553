"""Contract tests for the named locks of session stores."""

from __future__ import annotations

import time
from functools import partial

import pytest

from agent_memory.stores.base import Counts, Store
from agent_memory.testing.contract import Contract, draft, stored, together

_ROUNDS = 20
_PATIENCE = 10_000
_A_YEAR = 365 * 86_400


class LockContract(Contract):
    """Contract of a `SessionStore` for locks, which need no session."""

    def test_a_lock_is_exclusive(self, store: Store, other: Store) -> None:
        """Wrong: two workers run at the same time instead of one after the other."""
        assert store.lock("l", "w1", 60) is True
        assert other.lock("l", "w2", 60) is False
        assert store.lock("l", "w2", 0) is False
        other.unlock("l", "w1")
        assert other.lock("l", "w2", 60) is True
        assert store.lock("l", "w1", 60) is False

    def test_its_owner_may_take_a_lock_again(self, store: Store, other: Store) -> None:
        """Wrong: an owner that missed the reply waits for itself, or its lock is not extended."""
        assert store.lock("l", "w1", 0) is True
        assert store.lock("l", "w1", 0) is True
        assert other.lock("l", "w1", 60) is True
        assert other.lock("l", "w2", 60) is False
        assert other.lock("l", "w1", 0) is True
        assert store.lock("l", "w2", 60) is True

    def test_a_lock_runs_out(self, store: Store, other: Store) -> None:
        """Wrong: a dead worker holds its lock forever."""
        assert store.lock("l", "w1", 0.01) is True
        while not other.lock("l", "w2", 60):
            time.sleep(0.005)
        assert store.lock("l", "w1", 60) is False

    def test_a_lock_that_ends_too_late_is_taken_over(self, store: Store, other: Store) -> None:
        """Wrong: a dead worker with a clock a year ahead holds its lock for a year."""
        assert store.lock("l", "w1", _A_YEAR) is True
        assert other.lock("l", "w2", 60) is True
        assert store.lock("l", "w1", 60, renew=True) is False
        assert store.lock("l", "w1", 60) is False

    def test_renewing_a_lock_takes_nothing(self, store: Store, other: Store) -> None:
        """Wrong: a stalled worker takes back a lock that another has held since."""

        def renewed(owner: str, seconds: float = 60) -> bool:
            return store.lock("l", owner, seconds, renew=True)

        assert not renewed("w1")
        assert other.lock("l", "w1", 0)
        assert not renewed("w2")
        assert renewed("w1")  # expired, but not taken by another
        assert not other.lock("l", "w2", 60)
        assert renewed("w1", 0)
        assert other.lock("l", "w2", 0)
        assert not renewed("w1")
        assert renewed("w2")
        other.unlock("l", "w2")
        assert not renewed("w2")
        assert not renewed("w1")
        assert other.lock("l", "w3", 0)

    def test_unlocking_anothers_does_nothing(self, store: Store, other: Store) -> None:
        """Wrong: a worker that lost its lock releases its successor's."""
        store.unlock("l", "w1")
        assert store.lock("l", "w1", 0)
        assert other.lock("l", "w2", 60)
        store.unlock("l", "w1")
        assert not store.lock("l", "w1", 60)
        assert other.lock("l", "w2", 0)
        store.unlock("l", "w1")  # expired or not
        assert other.lock("l", "w2", 60, renew=True)

    def test_one_of_many_takes_a_lock(self, store: Store, other: Store) -> None:
        """Wrong: of racing workers two get the lock, or none, or the losers get an error."""
        handles = [store, other] * 4
        for n in range(_ROUNDS):
            name = f"l{n % 3}"  # new in its first round, later expired or released
            takes = [partial(h.lock, name, f"w{n}.{i}", 60) for i, h in enumerate(handles)]
            won = together(takes)
            assert sorted(won) == [False] * 7 + [True]
            winner = f"w{n}.{won.index(True)}"
            assert store.lock(name, winner, 0, renew=True)
            if n % 2:
                other.unlock(name, winner)

    def test_turns_are_taken(self, store: Store, other: Store) -> None:
        """Wrong: two hold a lock together while locks are created, released and created again."""
        within: list[str] = []

        def wait(handle: Store, owner: str) -> None:
            for _ in range(_PATIENCE):
                if handle.lock("l", owner, 60):
                    return
                time.sleep(0.001)
            pytest.fail("A lock was not released.")

        def work(handle: Store, owner: str) -> None:
            for _ in range(5):
                wait(handle, owner)
                within.append(owner)
                assert within == [owner]
                assert handle.lock("l", owner, 60, renew=True)
                within.remove(owner)
                handle.unlock("l", owner)

        handles = [store, other] * 2
        together([partial(work, handle, f"w{n}") for n, handle in enumerate(handles)])
        assert store.lock("l", "w", 60)

    def test_locks_of_other_names_are_apart(self, store: Store, other: Store) -> None:
        """Wrong: users with similar or long names block each other."""
        names = ["l", "L", "l ", " l", "ä", "Ä", "a", "日本", "{l}", "l}", "l:l", "x" * 63]
        names += ["x" * 64, "日" * 64, "日" * 63 + "本"]
        for name in names:
            assert store.lock(name, f"of {name}", 60), name
        for name in names:
            assert not other.lock(name, "w", 60), name
            assert other.lock(name, f"of {name}", 60, renew=True), name
        other.unlock("l", "of l")
        assert store.lock("l", "w", 60)
        assert not store.lock("L", "w", 60)

    def test_owners_of_other_names_are_apart(self, store: Store, other: Store) -> None:
        """Wrong: an owner with a similar name opens another's lock."""
        assert store.lock("l", "w", 60)
        for owner in ("W", "w ", "ẃ"):
            other.unlock("l", owner)
            assert not other.lock("l", owner, 60), owner
            assert not other.lock("l", owner, 60, renew=True), owner

    def test_locks_of_namespaces_are_apart(
        self, store: Store, other: Store, elsewhere: Store
    ) -> None:
        """Wrong: workers of one namespace wait for another's, or release its locks."""
        assert store.lock("l", "w", 60)
        assert not elsewhere.lock("l", "w", 60, renew=True)
        assert elsewhere.lock("l", "w2", 60)
        elsewhere.unlock("l", "w2")
        elsewhere.unlock("l", "w")
        assert not other.lock("l", "w2", 60)

    def test_locks_are_apart_from_sessions(self, store: Store, other: Store) -> None:
        """Wrong: a lock is listed as a session, ends with one, or holds its lease."""
        assert store.lock("s", "w1", 60)
        assert other.head("s") is None
        assert (store.sessions(), store.due(), store.counts()) == ([], [], Counts(0, 0))
        assert not store.lease("s", "w1", 60)
        before = store.append("s", [draft("a")], "u")
        assert other.due() == [before]
        assert other.lease("s", "w2", 60)
        store.release("s", "w1")
        assert not store.lease("s", "w1", 60)
        assert not other.lock("s", "w2", 60)
        other.release("s", "w2")
        assert other.lease("s", "w3", 60)
        assert stored(store) == before
        store.delete("s")
        assert not other.lock("s", "w2", 60)
        assert store.lock("s", "w1", 60, renew=True)
        store.append("s", [draft("a")], "u")
        assert store.lease("s", "w3", 60)
        store.unlock("s", "w1")
        assert not other.lease("s", "w1", 60)
        assert store.counts() == Counts(1, 1)
        assert [head.session_id for head in store.sessions()] == ["s"]
