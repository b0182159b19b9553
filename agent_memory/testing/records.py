"""Contract tests for record stores, and for reading all data; see `testing.contract`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from agent_memory.core.records import Record
from agent_memory.retrieval.features import Features
from agent_memory.stores.base import Store
from agent_memory.testing.contract import Contract, record, together, units, worded


class RecordStoreContract(Contract):
    """Contract of a `RecordStore`."""

    def test_all_records_returns_every_record_once(self, store: Store, other: Store) -> None:
        """Wrong: a move to another store loses or repeats records, or adds a block's vectors."""
        store.open_vectors("v", 0, "no embedder")
        store.put_vectors("v", [record("a")], worded(["fox"]))
        blocks = {"facts": 450, "_place": 3, "notes": 201, "a%b_c": 1, "A": 2}
        expected: set[tuple[str, str]] = set()
        for block, count in blocks.items():
            records = [
                record(f"{block}-{n}", f"user:{n % 7}", f"s{n % 5}", last=n) for n in range(count)
            ]
            store.put_records(block, records)
            expected |= {(block, fact.id) for fact in records}
        pairs = list(other.all_records())
        assert len(pairs) == len(expected)
        assert {(block, fact.id) for block, fact in pairs} == expected
        by_place = {(block, fact.id): fact for block, fact in pairs}
        (same,) = [fact for fact in store.records("notes", "user:3") if fact.id == "notes-3"]
        assert by_place["notes", "notes-3"] == same

    def test_replacing_removes_only_facts_of_the_replaced_entries(self, store: Store) -> None:
        """Wrong: records of the replaced entries stay, or records of other entries are removed."""
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

    def test_a_deletion_removes_only_the_selected_facts(self, store: Store) -> None:
        """Wrong: a deletion leaves records behind, or removes records that should stay."""

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

    def test_one_of_several_concurrent_swaps_succeeds(self, store: Store, other: Store) -> None:
        """Wrong: two writers increase a counter from the same value, or no writer succeeds."""

        def add(handle: Store) -> None:
            for _ in range(5):
                while True:
                    before = handle.record("facts", "n")
                    last = None if before is None else before.last
                    if handle.swap_record("facts", record("n", last=(last or 0) + 1), last):
                        break

        together([partial(add, handle) for handle in (store, other) * 3])
        assert [fact.last for fact in store.records("facts", "user:a")] == [30]


class AllVectorsContract(Contract):
    """Contract of a `VectorStore` for reading everything."""

    def test_vectors_are_read_back_unchanged(self, store: Store, other: Store) -> None:
        """Wrong: a moved record lacks features, is found twice, or is not found."""
        names = [f"r{n}" for n in range(450)]
        records = [
            record(name, f"user:{n % 3}", f"s{n % 4}", last=n) for n, name in enumerate(names)
        ]
        words = [f"word{n} fox" for n in range(450)]
        features = worded(words, units(450))
        for handle in (store, other):
            handle.open_vectors("v", 8, "model")
        store.put_vectors("v", records, features)
        theirs = {name: _row(features, place) for place, name in enumerate(names)}
        pairs = list(_read(other))
        assert sorted(copy.id for copy, _ in pairs) == sorted(names)
        for copy, row in pairs:
            assert copy == records[names.index(copy.id)]
            for got, wanted in zip(row, theirs[copy.id], strict=True):
                assert np.allclose(got, wanted, atol=1e-6)
        ours = sorted(copy.id for copy, _ in _read(other, "s1"))
        assert ours == sorted(names[1::4])
        assert list(_read(other, "nobody's")) == []
        assert list(other.all_vectors("unknown")) == []

    def test_all_vectors_includes_records_without_vectors(self, store: Store) -> None:
        """Wrong: records that have words but no vector are not read."""
        store.open_vectors("v", 0, "no embedder")
        store.put_vectors("v", [record("a"), record("b")], worded(["red fox", "owl"]))
        rows = {copy.id: row for copy, row in _read(store)}
        assert set(rows) == {"a", "b"}
        assert len(rows["a"][3]) == 2
        assert len(rows["a"][0]) == 0

    def test_blocks_are_listed(self, store: Store, other: Store) -> None:
        """Wrong: a block is missing from the list, or is listed with another model."""
        assert store.vector_blocks() == {}
        store.open_vectors("v", 8, "a model: of 8")
        store.put_vectors("v", [record("a")], worded(["fox"], meaning=units(1)))
        store.open_vectors("w_2", 0, "no embedder")
        store.put_vectors("w_2", [record("a")], worded(["fox"]))
        assert other.vector_blocks() == {"v": (8, "a model: of 8"), "w_2": (0, "no embedder")}
        store.clear_vectors("w_2")
        assert set(other.vector_blocks()) == {"v"}


_Row = tuple[np.ndarray, ...]


def _row(features: Features, place: int) -> _Row:
    terms = np.stack(features.words[place])
    ordered = terms[:, np.argsort(terms[0])]  # the order of words is arbitrary
    where = np.array(features.places[place].tolist())
    return (features.meaning[place], features.tokens.of_record(place), where, *ordered)


def _read(store: Store, session_id: str | None = None) -> Iterator[tuple[Record, _Row]]:
    for records, features in store.all_vectors("v", session_id=session_id):
        assert len(records) == len(features)
        yield from ((record, _row(features, place)) for place, record in enumerate(records))
