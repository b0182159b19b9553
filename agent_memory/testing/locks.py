"""Contract tests for the leases and locks of session stores; see `testing.contract`."""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

import pytest

from agent_memory.stores.base import Counts, Store
from agent_memory.testing.contract import Contract, draft, stored, together

_ROUNDS = 20
_PATIENCE = 10_000
_A_YEAR = 365 * 86_400


class Claim(NamedTuple):
    """The names of the store methods that take and release a lock, or a session's lease.

    The tests call both kinds a claim. A claim has one owner until it is released or expires.
    """

    take: str
    give_back: str

    def taken(
        self, store: Store, owner: str, seconds: float, name: str = "s", *, renew: bool = False
    ) -> bool:
        """Take or renew the lock or lease. Return whether `owner` holds it."""
        return bool(getattr(store, self.take)(name, owner, seconds, renew=renew))

    def returned(self, store: Store, owner: str, name: str = "s") -> None:
        getattr(store, self.give_back)(name, owner)


class LockContract(Contract):
    """Contract of a `SessionStore` for leases of sessions, and for locks without a session."""

    @pytest.fixture(params=["lock", "lease"])
    def claim(self, request: pytest.FixtureRequest, store: Store) -> Claim:
        if request.param == "lock":
            return Claim("lock", "unlock")
        for name in ("s", "s0", "s1", "s2"):
            store.append(name, [draft("a")])
        return Claim("lease", "release")

    def test_a_claim_is_exclusive(self, store: Store, other: Store, claim: Claim) -> None:
        """Wrong: two workers run at the same time instead of one after the other."""
        assert claim.taken(store, "w1", 60) is True
        assert claim.taken(other, "w2", 60) is False
        assert claim.taken(store, "w2", 0) is False
        claim.returned(other, "w1")
        assert claim.taken(other, "w2", 60) is True
        assert claim.taken(store, "w1", 60) is False

    def test_an_owner_can_retake_its_claim(self, store: Store, other: Store, claim: Claim) -> None:
        """Wrong: an owner that missed the store's reply cannot take or extend its claim."""
        assert claim.taken(store, "w1", 0) is True
        assert claim.taken(store, "w1", 0) is True
        assert claim.taken(other, "w1", 60) is True
        assert claim.taken(other, "w2", 60) is False
        assert claim.taken(other, "w1", 0) is True
        assert claim.taken(store, "w2", 60) is True

    def test_a_claim_expires(self, store: Store, other: Store, claim: Claim) -> None:
        """Wrong: a dead worker holds its claim forever."""
        assert claim.taken(store, "w1", 0.01) is True
        while not claim.taken(other, "w2", 60):
            time.sleep(0.005)
        assert claim.taken(store, "w1", 60) is False

    def test_a_claim_with_an_implausible_end_can_be_taken_over(
        self, store: Store, other: Store, claim: Claim
    ) -> None:
        """Wrong: a dead worker with a clock a year ahead holds its claim for a year."""
        assert claim.taken(store, "w1", _A_YEAR) is True
        assert claim.taken(other, "w2", 60) is True
        assert claim.taken(store, "w1", 60, renew=True) is False
        assert claim.taken(store, "w1", 60) is False

    def test_a_lost_claim_cannot_be_renewed(self, store: Store, other: Store, claim: Claim) -> None:
        """Wrong: a stalled worker takes back a claim that now belongs to another worker."""

        def renewed(owner: str, seconds: float = 60) -> bool:
            return claim.taken(store, owner, seconds, renew=True)

        assert not renewed("w1")
        assert claim.taken(other, "w1", 0)
        assert not renewed("w2")
        assert renewed("w1")  # the claim expired, but nobody else took it
        assert not claim.taken(other, "w2", 60)
        assert renewed("w1", 0)
        assert claim.taken(other, "w2", 0)
        assert not renewed("w1")
        assert renewed("w2")
        claim.returned(other, "w2")
        assert not renewed("w2")
        assert not renewed("w1")
        assert claim.taken(other, "w3", 0)

    def test_releasing_the_claim_of_another_owner_has_no_effect(
        self, store: Store, other: Store, claim: Claim
    ) -> None:
        """Wrong: a worker that lost its claim releases its successor's claim."""
        claim.returned(store, "w1")
        assert claim.taken(store, "w1", 0)
        assert claim.taken(other, "w2", 60)
        claim.returned(store, "w1")
        assert not claim.taken(store, "w1", 60)
        assert claim.taken(other, "w2", 0)
        claim.returned(store, "w1")  # changes nothing, even if w2's claim has expired
        assert claim.taken(other, "w2", 60, renew=True)

    def test_only_one_worker_gets_the_claim(self, store: Store, other: Store, claim: Claim) -> None:
        """Wrong: of many racing workers, not exactly one gets the claim, or one gets an error."""
        handles = [store, other] * 4
        for n in range(_ROUNDS):
            name = f"s{n % 3}"  # the claim is new in rounds 0 to 2, later expired or released
            takes = [
                partial(claim.taken, handle, f"w{n}.{i}", 60, name)
                for i, handle in enumerate(handles)
            ]
            won = together(takes)
            assert sorted(won) == [False] * 7 + [True]
            winner = f"w{n}.{won.index(True)}"
            assert claim.taken(store, winner, 0, name, renew=True)
            if n % 2:
                claim.returned(other, winner, name)

    def test_locks_with_similar_names_are_independent(self, store: Store, other: Store) -> None:
        """Wrong: locks with similar or long names block each other."""
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

    def test_owners_with_similar_names_are_different(self, store: Store, other: Store) -> None:
        """Wrong: an owner with a similar name takes or releases another owner's lock."""
        assert store.lock("l", "w", 60)
        for owner in ("W", "w ", "ẃ"):
            other.unlock("l", owner)
            assert not other.lock("l", owner, 60), owner
            assert not other.lock("l", owner, 60, renew=True), owner

    def test_locks_of_two_namespaces_are_independent(
        self, store: Store, other: Store, elsewhere: Store
    ) -> None:
        """Wrong: workers wait for workers of another namespace, or release their locks."""
        assert store.lock("l", "w", 60)
        assert not elsewhere.lock("l", "w", 60, renew=True)
        assert elsewhere.lock("l", "w2", 60)
        elsewhere.unlock("l", "w2")
        elsewhere.unlock("l", "w")
        assert not other.lock("l", "w2", 60)

    def test_a_lock_affects_no_session_of_the_same_name(self, store: Store, other: Store) -> None:
        """Wrong: a lock is listed as a session, or affects the session with the same name."""
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
