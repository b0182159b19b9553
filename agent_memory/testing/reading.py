"""Contract tests for stores when all of their records are read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from agent_memory.core.records import Record
from agent_memory.retrieval.features import Features
from agent_memory.stores.base import Store
from agent_memory.testing.contract import Contract, record
from agent_memory.testing.features import for_words, units, worded


class AllFactsContract(Contract):
    """Contract of a `RecordStore` for reading everything."""

    def test_all_records_are_given_once(self, store: Store, other: Store) -> None:
        """Wrong: a move to another store loses records, or repeats some."""
        blocks = {"facts": 450, "_place": 3, "notes": 201, "a%b_c": 1, "A": 2}
        expected: set[tuple[str, str]] = set()
        for block, count in blocks.items():
            records = [
                record(f"{block}-{n}", f"user:{n % 7}", f"s{n % 5}", last=n) for n in range(count)
            ]
            store.put_records(block, records)
            expected |= {(block, one.id) for one in records}
        found = list(other.all_records())
        assert len(found) == len(expected)
        assert {(block, one.id) for block, one in found} == expected
        by_place = {(block, one.id): one for block, one in found}
        (same,) = [one for one in store.records("notes", "user:3") if one.id == "notes-3"]
        assert by_place["notes", "notes-3"] == same

    def test_those_of_other_namespaces_are_not_read(self, store: Store, elsewhere: Store) -> None:
        """Wrong: a move to another store includes another namespace's records."""
        store.put_records("facts", [record("a")])
        elsewhere.put_records("facts", [record("foreign")])
        elsewhere.put_records("theirs", [record("foreign")])
        assert [(block, one.id) for block, one in store.all_records()] == [("facts", "a")]

    def test_of_nothing_nothing(self, store: Store) -> None:
        """Wrong: an empty store cannot be moved."""
        assert list(store.all_records()) == []
        store.put_records("facts", [record("a")])
        store.delete_records("facts", record_id="a")
        assert list(store.all_records()) == []


class AllVectorsContract(Contract):
    """Contract of a `VectorStore` for reading everything."""

    def test_vectors_come_as_they_went(self, store: Store, other: Store) -> None:
        """Wrong: a moved record has fewer features, or is found twice, or not at all."""
        names = [f"r{n}" for n in range(450)]
        records = [
            record(name, f"user:{n % 3}", f"s{n % 4}", last=n) for n, name in enumerate(names)
        ]
        words = [f"word{n} fox" for n in range(450)]
        given = worded(words, units(450))
        for handle in (store, other):
            handle.open_vectors("v", 8, "model")
        store.put_vectors("v", records, given)
        theirs = {name: _row(given, place) for place, name in enumerate(names)}
        found = list(_read(other))
        assert sorted(one.id for one, _ in found) == sorted(names)
        for one, row in found:
            assert one == records[names.index(one.id)]
            for got, wanted in zip(row, theirs[one.id], strict=True):
                assert np.allclose(got, wanted, atol=1e-6)
        ours = sorted(one.id for one, _ in _read(other, "s1"))
        assert ours == sorted(names[1::4])
        assert list(_read(other, "nobody's")) == []
        assert list(other.all_vectors("unknown")) == []

    def test_records_without_vectors_come_too(self, store: Store) -> None:
        """Wrong: records that have only words are left behind."""
        store.open_vectors("v", 0, "no embedder")
        store.put_vectors("v", [record("a"), record("b")], worded(["red fox", "owl"]))
        found = {one.id: row for one, row in _read(store)}
        assert set(found) == {"a", "b"}
        assert len(found["a"][3]) == 2
        assert len(found["a"][0]) == 0

    def test_a_copy_is_searched_alike(self, store: Store, elsewhere: Store) -> None:
        """Wrong: after a move the same question finds other records, or in another order."""
        words = [f"{'red ' * (n % 4)}fox {'den ' * (n % 3)}owl{n % 7}" for n in range(60)]
        records = [record(f"r{n:02}", f"user:{n % 2}") for n in range(60)]
        store.open_vectors("v", 8, "model")
        store.put_vectors("v", records, worded(words, units(60)))
        elsewhere.open_vectors("v", 8, "model")
        for page, features in store.all_vectors("v"):
            elsewhere.put_vectors("v", page, features)
        for place, question in enumerate(("red fox", "den owl3", "owl1 owl2 red")):
            query = for_words(question, units(9, seed=9)[place])
            for owner in ("user:0", "user:1"):
                before, after = (
                    {hit.record.id: hit.score for hit in one.search_vectors("v", owner, query, 30)}
                    for one in (store, elsewhere)
                )
                assert before.keys() == after.keys()
                for name, scores in after.items():
                    assert np.allclose(scores, before[name], atol=1e-5)

    def test_blocks_are_listed(self, store: Store, other: Store) -> None:
        """Wrong: vectors of a block are left behind, or assigned to another model."""
        assert store.vector_blocks() == {}
        store.open_vectors("v", 8, "a model: of 8")
        store.put_vectors("v", [record("a")], worded(["fox"], meaning=units(1)))
        store.open_vectors("w_2", 0, "no embedder")
        store.put_vectors("w_2", [record("a")], worded(["fox"]))
        assert other.vector_blocks() == {"v": (8, "a model: of 8"), "w_2": (0, "no embedder")}
        store.clear_vectors("w_2")
        assert set(other.vector_blocks()) == {"v"}

    def test_blocks_of_other_namespaces_are_left_out(self, store: Store, elsewhere: Store) -> None:
        """Wrong: a move to another store includes another namespace's vectors."""
        elsewhere.open_vectors("theirs", 3, "model")
        elsewhere.put_vectors("theirs", [record("a")], worded(["fox"], meaning=units(1, 3)))
        assert store.vector_blocks() == {}
        assert list(store.all_vectors("theirs")) == []


_Row = tuple[np.ndarray, ...]


def _row(features: Features, place: int) -> _Row:
    """Return all features of one record."""
    terms = np.stack(features.words[place])
    ordered = terms[:, np.argsort(terms[0])]  # the order of words is arbitrary
    where = np.array(features.places[place].tolist())
    return (features.meaning[place], features.tokens.of_record(place), where, *ordered)


def _read(store: Store, session_id: str | None = None) -> Iterator[tuple[Record, _Row]]:
    for records, features in store.all_vectors("v", session_id=session_id):
        assert len(records) == len(features)
        yield from ((one, _row(features, place)) for place, one in enumerate(records))
