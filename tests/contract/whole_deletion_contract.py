"""Contract tests for deleting sessions and their records in one transaction."""

from functools import partial
from typing import Any

import numpy as np

from agent_memory.core.idempotency import Idempotency, key_of
from agent_memory.core.records import Scope
from agent_memory.stores.base import Store
from agent_memory.testing.contract import (
    Contract,
    draft,
    for_words,
    record,
    stored,
    together,
    units,
    worded,
)

OWNERS = {"s": "user:a", "t": "user:a", "u": "user:b"}


def fill(store: Store) -> None:
    """Two sessions of one user and one of another, each with a record of every kind."""
    store.open_vectors("v", 4, "m")
    for at, (session_id, owner) in enumerate(OWNERS.items()):
        one = draft(f"said in {session_id}")
        once = Idempotency(key_of(f"k-{session_id}", [one.message]))
        store.append_idempotent(session_id, [one], once, owner[5:])
        of = {"owner": owner, "session_id": session_id}
        store.put_records("f", [record(f"f-{session_id}", **of)])
        store.put_records("f", [record(f"o-{session_id}", owner, "", first=0, last=0)])
        store.put_records("_failed", [record(f"x-{session_id}", "f", session_id)])
        features = worded([session_id], units(3, 4)[at : at + 1])
        store.put_vectors("v", [record(session_id, **of)], features)


def vector_ids(store: Store, owner: str) -> list[str]:
    """Return the ids of an owner's vectors, by a search."""
    query = for_words("s t u", np.ones(4, np.float32) / 2)
    return sorted(hit.record.id for hit in store.search_vectors("v", owner, query, 9))


def traces(store: Store) -> dict[str, Any]:
    """Return everything in the store, for comparison."""
    return {
        "sessions": [head.session_id for head in store.sessions()],
        "entries": [entry.message.text() for one in OWNERS for entry in store.read(one)],
        "keys": [one for one in OWNERS if store.keys(one)],
        "records": sorted(one.id for _, one in store.all_records()),
        "vectors": vector_ids(store, "user:a") + vector_ids(store, "user:b"),
    }


class WholeDeletionContract(Contract):
    """Contract of a store with `spans`."""

    def test_a_session_is_deleted_completely(self, store: Store, other: Store) -> None:
        """Wrong: data of a deleted session stays, or another session's is deleted."""
        fill(store)
        blocks = other.blocks()
        assert {*blocks.facts} >= {"f", "_failed"}
        assert [*blocks.vectors] == ["v"]
        left = {"_notes": [record("note", "notes", "")]}
        assert other.delete_whole([stored(store)], blocks, leaving=left)
        assert traces(store) == {
            "sessions": ["t", "u"],
            "entries": ["said in t", "said in u"],
            "keys": ["t", "u"],
            "records": ["f-t", "f-u", "note", "o-s", "o-t", "o-u", "x-t", "x-u"],
            "vectors": ["t", "u"],
        }
        assert store.append("s", [draft("again")], "c").end == 1

    def test_a_user_is_deleted_completely(self, store: Store, other: Store) -> None:
        """Wrong: data of a deleted user stays, or another user's is deleted."""
        fill(store)
        heads, blocks = store.sessions(user_id="a"), store.blocks()
        assert store.delete_whole(heads, blocks, owners=[Scope("a").owner])
        assert traces(other) == {
            "sessions": ["u"],
            "entries": ["said in u"],
            "keys": ["u"],
            "records": ["f-u", "o-u", "x-u"],
            "vectors": ["u"],
        }
        store.put_vectors("v", [record("s", "user:a")], worded(["s"], units(1, 4)))
        assert vector_ids(other, "user:a") == ["s"]

    def test_a_user_without_sessions_can_be_deleted(self, store: Store) -> None:
        """Wrong: a deletion leaves the records of a user without sessions."""
        store.put_records("f", [record("r", "user:a", ""), record("q", "user:b", "")])
        assert store.delete_whole([], store.blocks(), owners=["user:a"])
        assert [one.id for _, one in store.all_records()] == ["q"]

    def test_a_deletion_is_refused_during_a_lease_or_lock(self, store: Store, other: Store) -> None:
        """Wrong: a deletion runs between the steps of a worker."""
        fill(store)
        head, blocks, before = stored(store), store.blocks(), traces(store)
        delete = partial(
            other.delete_whole, blocks=blocks, owners=["user:a"], leaving={"f": [record("left")]}
        )
        assert store.lease("s", "worker", 60)
        assert not delete([head])
        store.release("s", "worker")
        assert store.lock("l", "worker", 60)
        assert not delete([head], locks=["k", "l"])
        store.unlock("l", "worker")
        moved = store.move(head)
        assert moved is not None
        assert not delete([head])
        assert traces(store) == before
        assert delete([moved], locks=["k", "l"])
        assert store.lock("l", "worker", 60)
        assert not delete([moved])
        assert "left" in traces(store)["records"]

    def test_a_stale_head_deletes_no_recreated_session(self, store: Store, other: Store) -> None:
        """Wrong: a session that has begun under the id meanwhile is deleted."""
        fill(store)
        head = stored(store)
        store.delete("s")
        store.append("s", [draft("new")], "b")
        assert not other.delete_whole([head], other.blocks(), owners=["user:a"])
        assert [entry.message.text() for entry in store.read("s")] == ["new"]

    def test_exactly_one_concurrent_deletion_succeeds(self, store: Store, other: Store) -> None:
        """Wrong: concurrent deletions undo each other, or several report success."""
        for round_ in range(5):
            store.append("s", [draft(f"{round_}")], "a")
            store.put_records("f", [record("r")])
            head, blocks = stored(store), store.blocks()
            calls = [partial(one.delete_whole, [head], blocks) for one in (store, other)]
            assert sorted(together(calls)) == [False, True]
            assert store.head("s") is None
            assert store.record("f", "r") is None

    def test_an_append_runs_before_or_after_a_deletion(self, store: Store, other: Store) -> None:
        """Wrong: an append during a deletion leaves a log without a head, or part of one."""
        for round_ in range(10):
            store.append("s", [draft("first")], "a")
            head, blocks = stored(store), store.blocks()
            append = partial(other.append, "s", [draft(f"{round_}")], "a")
            appended, done = together([append, partial(store.delete_whole, [head], blocks)])
            texts = [entry.message.text() for entry in store.read("s")]
            assert done
            assert texts == ([] if appended.end == 2 else [f"{round_}"])
            assert (store.head("s") is None) == (not texts)
            store.delete("s")
