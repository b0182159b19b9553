"""Keyed records of blocks, on every kind of store."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import pytest

from agent_memory import AgentMemory, Message, Recall
from agent_memory.core.records import Record, Scope
from agent_memory.errors import InvalidInput, SessionDeleting, SessionOfAnotherUser
from agent_memory.ltm_blocks.keyed_records import CollectionBlock, KeyedRecords, Owner, plain_json
from agent_memory.stores.base import Store
from agent_memory.testing import watched
from agent_memory.testing.contract import together
from tests.kit import SECONDS, mark_deleting

pytestmark = pytest.mark.usefixtures("impatient")

ADA, BEN = Scope("ada", "s-ada"), Scope("ben", "s-ben")


class Keeper(CollectionBlock):
    """A block that stores records as told."""

    kind: Literal["keeper"] = "keeper"

    def open(self, scope: Scope, kind: Owner = "user") -> KeyedRecords:
        return KeyedRecords(self.resources, self.name, scope, kind)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return []


def keeper(memory: AgentMemory) -> Keeper:
    return memory.blocks["keeper"]


@pytest.fixture
def memory(store: Store) -> Iterator[AgentMemory]:
    with AgentMemory(store=store, blocks=[Keeper()]) as memory:
        yield memory


@pytest.fixture
def block(memory: AgentMemory) -> Keeper:
    return keeper(memory)


def texts(keyed: KeyedRecords) -> list[str]:
    return [record.text for record in keyed.all()]


def raw(store: Store, keyed: KeyedRecords) -> list[Record]:
    return store.records("keeper", keyed.owner)


def test_a_record_is_read_back_unchanged(block: Keeper) -> None:
    """Wrong: a record is lost, changed, stored twice, or out of order."""
    keyed = block.open(ADA)
    text, metadata = 'NUL \x00, \u2028, 🎈 and "quotes"', {"a": [1, 2.5, None, {"é": True}]}
    put = keyed.put("first", text, metadata)
    assert keyed.get("first") == put
    assert (put.text, put.metadata, put.session_id) == (text, metadata, "s-ada")
    keyed.put("second", "two")
    keyed.put("first", "one")
    assert texts(keyed) == ["two", "one"]  # ordered by time
    assert keyed.get("third") is None
    keyed.drop("first")
    keyed.drop("first")
    assert texts(keyed) == ["two"]
    keyed.clear()
    keyed.clear()
    assert keyed.all() == []


def test_put_stores_the_time_argument(block: Keeper) -> None:
    """Wrong: a record's given time is replaced by the current one."""
    keyed = block.open(ADA)
    day = datetime(2020, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
    keyed.put("new", "new")
    keyed.put("old", "old", at=day)
    assert keyed.all()[0].created_at == day
    assert texts(keyed) == ["old", "new"]


@pytest.mark.parametrize("kind", ["user", "session"])
def test_a_record_creates_its_session(block: Keeper, store: Store, kind: Owner) -> None:
    """Wrong: a record makes no session: a deletion misses it, or another user takes its id."""
    block.open(ADA, kind).put("k", "of ada")
    head = store.head("s-ada")
    assert (head.user_id, head.end) == ("ada", 0)
    with pytest.raises(SessionOfAnotherUser):
        block.open(Scope("ben", "s-ada"), kind).put("k", "of ben")
    assert texts(block.open(ADA, kind)) == ["of ada"]
    assert raw(store, block.open(Scope("ben"))) == []


def test_reading_creates_no_session(block: Keeper, store: Store) -> None:
    """Wrong: reading creates a session."""
    for kind in ("user", "session"):
        keyed = block.open(ADA, kind)
        assert keyed.all() == []
        keyed.drop("k")
        keyed.clear()
    block.open(Scope("ada")).put("k", "of no session")
    assert store.head("s-ada") is None


def test_scopes_are_independent(block: Keeper) -> None:
    """Wrong: a scope reads another scope's records."""
    several = [
        block.open(Scope("ada", "s1")), block.open(Scope("ada", "s1"), "session"),
        block.open(Scope("ada", "s2"), "session"), block.open(Scope("ben", "s3")),
        block.open(Scope(None, "ada")), block.open(Scope("ADA", "s4")),
        block.open(Scope("session:s1", "s5")), block.open(Scope("ada\x1fk", "s6")),
    ]  # fmt: skip
    for number, keyed in enumerate(several):
        keyed.put("k", str(number))
    block.open(Scope("ada", "s1")).put("k\x1fk", "by its key")
    assert texts(block.open(Scope("ada"))) == ["0", "by its key"]
    assert texts(block.open(Scope("ada", "s2"))) == ["0", "by its key"]
    for number, keyed in enumerate(several[1:], 1):
        assert texts(keyed) == [str(number)]


def test_record_ids_of_different_owners_and_keys_are_distinct(block: Keeper) -> None:
    """Wrong: two pairs of user and key share a record id, so that one overwrites the other."""
    names = {block.open(Scope("a\x1fb")).id_of("c"), block.open(Scope("a")).id_of("b\x1fc")}
    assert len(names) == 2
    with pytest.raises(InvalidInput, match="session_id"):
        block.open(Scope())
    with pytest.raises(InvalidInput, match="session_id"):
        block.open(Scope("ada"), "session")


def test_a_value_that_json_cannot_restore_is_refused(block: Keeper, store: Store) -> None:
    """Wrong: a value that JSON cannot restore is accepted, or creates the session."""
    for bad in (float("nan"), {1: "b"}, (1, 2), {1, 2}, "half \ud800", {"\udc00": 1}, 10**5000):
        with pytest.raises(InvalidInput, match="The metadata"):
            block.open(ADA).put("k", "text", {"a": bad})
    with pytest.raises(InvalidInput, match="The text"):
        block.open(ADA).put("k", "half \ud83d\ude00")  # JSON joins the two halves
    assert store.head("s-ada") is None
    assert raw(store, block.open(ADA)) == []


def test_pop_does_not_remove_keyed_records(memory: AgentMemory, block: Keeper) -> None:
    """Wrong: a pop removes records that were written directly."""
    memory.update("s-ada", {"role": "user", "content": "Hello"}, user_id="ada")
    block.open(ADA).put("k", "kept")
    assert len(memory.pop("s-ada")) == 1
    block.delete(Scope("ada", "s-ada", after=1))
    assert texts(block.open(ADA)) == ["kept"]


def test_a_session_being_deleted_is_not_read(store: Store, block: Keeper) -> None:
    """Wrong: a session marked for deletion can still be read or written."""
    mine, own = block.open(ADA), block.open(ADA, "session")
    mine.put("k", "in s-ada")
    mine.put("k2", "of the user", with_session=False)
    own.put("k", "of s-ada")
    mark_deleting(store, "s-ada")
    assert texts(mine) == ["of the user"]
    assert texts(own) == []
    for keyed in (mine, own):
        with pytest.raises(SessionDeleting):
            keyed.put("k3", "more")
    with pytest.raises(SessionDeleting):
        mine.put("k2", "in place of what is the user's")
    assert {record.text for record in raw(store, mine)} == {"in s-ada", "of the user"}


@pytest.mark.parametrize(
    ("kind", "step", "again"),
    [("user", "after put_records", None), ("user", "before put_records", "ada"),
     ("session", "before put_records", None), ("session", "before put_records", "ben")],
)  # fmt: skip
def test_a_late_record_is_deleted(store: Store, kind: Owner, step: str, again: str | None) -> None:
    """Wrong: a record written during the session's deletion is left."""
    armed = [False]

    def delete(now: str) -> None:
        if armed[0] and now == step:
            armed[0] = False
            with AgentMemory(store=store, blocks=[Keeper()]) as other:
                other.delete("s-ada")
                if again is not None:
                    other.update("s-ada", {"role": "user", "content": "Hi"}, user_id=again)

    with AgentMemory(store=watched(store, delete), blocks=[Keeper()]) as memory:
        keyed = keeper(memory).open(ADA, kind)
        keyed.put("k1", "before")
        armed[0] = True
        with pytest.raises(SessionDeleting):
            keyed.put("k2", "meanwhile")
        assert raw(store, keyed) == []


def test_a_stale_handle_is_refused(memory: AgentMemory, store: Store, block: Keeper) -> None:
    """Wrong: a handle on a deleted session reads or changes the next session under its id."""
    old = block.open(ADA, "session")
    old.put("k", "of ada")
    memory.delete("s-ada")
    new = block.open(Scope("ben", "s-ada"), "session")
    assert new.all() == []
    new.put("k", "of ben")
    reads: list[Callable[[], object]] = [old.all, lambda: old.get("k")]
    changes: list[Any] = [old.clear, lambda: old.drop("k"), lambda: old.put("k", "of ada")]
    for call in (*reads, *changes):
        with pytest.raises(SessionOfAnotherUser):
            call()
    assert texts(new) == ["of ben"]


def test_a_session_without_a_user_is_read_by_its_first_user(block: Keeper, store: Store) -> None:
    """Wrong: a user who claims a session cannot read the records written before."""
    block.open(Scope(None, "s"), "session").put("k", "kept")
    ada = block.open(Scope("ada", "s"), "session")
    assert texts(ada) == ["kept"]
    head = store.head("s")
    assert head.user_id is None
    ada.put("k2", "of ada")
    assert texts(ada) == ["kept", "of ada"]
    with pytest.raises(SessionOfAnotherUser):
        block.open(Scope("ben", "s"), "session").all()


def test_concurrent_changes_do_not_overwrite_each_other(store: Store) -> None:
    """Wrong: concurrent changes by two memories overwrite each other."""
    with (
        AgentMemory(store=store, blocks=[Keeper()]) as one,
        AgentMemory(store=store, blocks=[Keeper()]) as two,
    ):
        several = [keeper(memory).open(ADA, "session") for memory in (one, two)]
        several[0].put("count", "0")

        def count(keyed: KeyedRecords) -> None:
            for _ in range(2):
                with keyed.changing():
                    record = keyed.get("count")
                    keyed.put("count", str(int(record.text) + 1))

        together([partial(count, keyed) for keyed in several * 4])
        assert texts(several[0]) == ["16"]


def test_users_do_not_wait_for_each_other(block: Keeper) -> None:
    """Wrong: a change of one user's records blocks changes of another user's."""
    several = block.open(ADA), block.open(BEN), block.open(ADA, "session")
    with several[0].changing(), several[1].changing(), several[2].changing():
        several[0].put("k", "v")


def test_a_record_changed_during_the_deletion_of_its_user_is_deleted(store: Store) -> None:
    """Wrong: a change under way writes a record back after its user was deleted."""
    waits = threading.Event()

    def tell(step: str) -> None:
        if step in ("before lock", "after delete_records"):
            waits.set()

    with (
        AgentMemory(store=store, blocks=[Keeper()]) as memory,
        AgentMemory(store=watched(store, tell), blocks=[Keeper()]) as deleter,
    ):
        keyed = keeper(memory).open(Scope("ada"))
        keyed.put("k", "old")
        gone = threading.Thread(target=deleter.delete_user, args=("ada",))
        with keyed.changing():
            record = keyed.get("k")
            assert record is not None
            gone.start()
            assert waits.wait(SECONDS)
            keyed.put("k", record.text + " and new")
        gone.join(SECONDS)
        assert raw(store, keyed) == []


def test_a_value_that_is_not_plain_json_is_refused() -> None:
    """Wrong: a value that contains itself raises a `RecursionError`."""
    assert plain_json({"b": [1, "é", None]}, "It") == '{"b":[1,"é",null]}'
    deep: list[Any] = []
    deep.append(deep)
    with pytest.raises(InvalidInput, match="It is not plain JSON: Circular reference"):
        plain_json(deep, "It")
    deep = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(InvalidInput, match="it is nested more than 100 levels deep"):
        plain_json(deep, "It")
    assert plain_json(deep[0], "It") == "[" * 100 + "]" * 100
    with pytest.raises(InvalidInput, match="Object of type bytes"):
        plain_json([b""], "It")
