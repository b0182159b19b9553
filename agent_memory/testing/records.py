"""Contract tests for fact stores; see `agent_memory.testing.contract`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from agent_memory.stores.base import Store
from agent_memory.testing.contract import DAY, record, together
from agent_memory.testing.reading import AllFactsContract


class RecordStoreContract(AllFactsContract):
    """Contract of a `RecordStore`."""

    def test_facts_put_and_list(self, store: Store, other: Store) -> None:
        """Wrong: a field of a record is lost, or another owner's or block's records appear."""
        kept = record(
            "r", text="é 😀 \x00 \ud800", sources=(3, 1), first=1, last=3,
            metadata={"n": [1, {"x": None}], "s": "\udfff"},
        )  # fmt: skip
        store.put_records("facts", [kept, record("q", owner="user:A")])
        store.put_records("notes", [record("p")])
        assert other.records("facts", "user:a") == [kept]
        assert [r.id for r in other.records("facts", "user:A")] == ["q"]
        assert [r.id for r in other.records("notes", "user:a")] == ["p"]
        assert other.records("facts", "user:b") == []

    def test_facts_order(self, store: Store) -> None:
        """Wrong: facts change their order from call to call."""
        late = DAY + timedelta(microseconds=1)
        store.put_records("facts", [record("c", created_at=late), record("b"), record("a")])
        assert [r.id for r in store.records("facts", "user:a")] == ["a", "b", "c"]

    def test_facts_overwrite_by_id(self, store: Store) -> None:
        """Wrong: a retry stores a duplicate, or the old owner still has the record."""
        store.put_records("facts", [record("r", text="old"), record("r", text="newer")])
        assert [r.text for r in store.records("facts", "user:a")] == ["newer"]
        store.put_records("facts", [record("r", owner="user:b", text="newest")])
        assert store.records("facts", "user:a") == []
        assert [r.text for r in store.records("facts", "user:b")] == ["newest"]

    def test_a_record_is_swapped_by_who_saw_the_one_before(
        self, store: Store, other: Store, elsewhere: Store
    ) -> None:
        """Wrong: a writer with a stale counter overwrites a newer one."""
        one, two = record("n", last=1, text="1"), record("n", last=2, text="2", owner="user:b")
        assert not store.swap_record("facts", two, 1)
        assert store.record("facts", "n") is None
        assert store.swap_record("facts", one, None)
        assert elsewhere.swap_record("facts", one, None)
        assert not other.swap_record("facts", two, None)
        assert not other.swap_record("notes", two, 1)
        assert not other.swap_record("facts", replace(two, id="N"), 1)
        assert store.record("facts", "n") == one
        assert other.swap_record("facts", two, 1)
        assert not store.swap_record("facts", two, 1)
        assert store.record("facts", "n") == two
        assert store.records("facts", "user:a") == []
        assert elsewhere.record("facts", "n") == one
        store.delete_records("facts", owner="user:b")
        assert store.swap_record("facts", one, None)

    def test_of_writers_who_swap_at_once_one_wins(self, store: Store, other: Store) -> None:
        """Wrong: two writers pass a limit that both have read, or none makes progress."""

        def add(of: Store) -> None:
            for _ in range(5):
                while True:
                    before = of.record("facts", "n")
                    last = None if before is None else before.last
                    if of.swap_record("facts", record("n", last=(last or 0) + 1), last):
                        break

        together([partial(add, one) for one in (store, other) * 3])
        kept = store.record("facts", "n")
        assert kept is not None
        assert kept.last == 30

    def test_facts_replacing(self, store: Store) -> None:
        """Wrong: a second answer is added to the first, or its neighbours are removed."""
        spans = {"a": (1, 2), "b": (2, 4), "c": (4, 6), "d": (6, 9), "e": (7, 7), "f": (1, 20)}
        store.put_records(
            "facts", [record(n, first=first, last=last) for n, (first, last) in spans.items()]
        )
        store.put_records("facts", [record("t", session_id="t", first=5, last=5)])
        store.put_records("notes", [record("n", first=5, last=5)])
        store.put_records("facts", [record("z", first=5, last=6)], replacing=("s", 5, 6))
        assert [r.id for r in store.records("facts", "user:a")] == ["a", "b", "e", "t", "z"]
        assert len(store.records("notes", "user:a")) == 1
        store.put_records("facts", [], replacing=("s", 1, 2))
        assert [r.id for r in store.records("facts", "user:a")] == ["e", "t", "z"]

    def test_facts_delete(self, store: Store) -> None:
        """Wrong: a deletion leaves records behind or removes others."""

        def fill() -> None:
            store.put_records("facts", [record(f"a{n}", last=n) for n in range(4)])
            store.put_records("facts", [record("t", session_id="t", last=9)])
            store.put_records("facts", [record("b", owner="user:b", last=9)])
            store.put_records("notes", [record("n", last=9)])

        def left() -> list[str]:
            return [r.id for owner in ("user:a", "user:b") for r in store.records("facts", owner)]

        fill()
        store.delete_records("facts", session_id="s", after=1)
        assert left() == ["a0", "a1", "t"]
        fill()
        store.delete_records("facts", owner="user:a")
        assert left() == ["b"]
        fill()
        store.delete_records("facts", owner="user:a", session_id="s")
        assert left() == ["t", "b"]
        fill()
        store.delete_records("facts", session_id="s")
        store.delete_records("facts", session_id="s")
        assert left() == ["t"]
        fill()
        store.delete_records("facts", record_id="a1")
        store.delete_records("facts", record_id="a2", owner="user:b")
        store.delete_records("facts", record_id="a3", after=3)
        assert left() == ["a0", "a2", "a3", "t", "b"]
        assert len(store.records("notes", "user:a")) == 1
        with pytest.raises(ValueError, match="Name an owner"):
            store.delete_records("facts")

    def test_a_record_is_found_by_its_id(self, store: Store, elsewhere: Store) -> None:
        """Wrong: another block's or namespace's record is returned, or a deleted one."""
        store.put_records("facts", [record("r", text="ours"), record("r2", owner="user:b")])
        store.put_records("notes", [record("r", text="a note")])
        elsewhere.put_records("facts", [record("r", text="theirs")])
        found = store.record("facts", "r")
        assert found is not None
        assert found == store.records("facts", "user:a")[0]
        assert found.text == "ours"
        store.delete_records("facts", record_id="r")
        assert store.record("facts", "r") is None
        assert store.record("facts", "R2") is None

    def test_owners_are_told_by_the_beginning_of_their_names(
        self, store: Store, elsewhere: Store
    ) -> None:
        """Wrong: an owner is missing or listed twice, or an owner without records is listed."""
        owners = ["a", "a\x1fb", "a\x1fb\x1fc", "a\x1fB", "ab", "\u00e4\x1fb", "a%", "b"]
        for number, owner in enumerate(owners):
            store.put_records("facts", [record(f"{number}-{n}", owner=owner) for n in range(3)])
        elsewhere.put_records("facts", [record("r", owner="a\x1fd")])
        assert store.owners("facts", "a\x1f") == ["a\x1fB", "a\x1fb", "a\x1fb\x1fc"]
        assert store.owners("facts", "") == sorted(owners)
        assert store.owners("facts", "a%") == ["a%"]
        assert store.owners("notes", "") == []
        store.delete_records("facts", owner="a\x1fb")
        assert store.owners("facts", "a\x1f") == ["a\x1fB", "a\x1fb\x1fc"]

    def test_facts_returned_records_are_the_callers(self, store: Store) -> None:
        """Wrong: a caller who changes returned metadata changes the stored record."""
        given = record("r", metadata={"tags": ["kept"]})
        store.put_records("facts", [given])
        given.metadata["tags"].append("changed")
        store.records("facts", "user:a")[0].metadata["tags"].append("changed")
        assert store.records("facts", "user:a")[0].metadata == {"tags": ["kept"]}

    def test_facts_of_namespaces_are_apart(self, store: Store, elsewhere: Store) -> None:
        """Wrong: one namespace reads or deletes another's facts."""
        store.put_records("facts", [record("r", text="ours")])
        elsewhere.put_records("facts", [record("r", text="theirs")], replacing=("s", 1, 1))
        assert [r.text for r in store.records("facts", "user:a")] == ["ours"]
        elsewhere.delete_records("facts", owner="user:a")
        assert len(store.records("facts", "user:a")) == 1
