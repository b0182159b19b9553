"""Contract tests for vector stores; see `agent_memory.testing.contract`."""

from __future__ import annotations

import numpy as np
import pytest

from agent_memory.core.records import Hit
from agent_memory.errors import DimensionMismatch
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.index import SegmentIndex
from agent_memory.retrieval.query import Query
from agent_memory.stores.base import Store
from agent_memory.testing.contract import for_words, ranked, record, units, worded
from agent_memory.testing.records import AllVectorsContract
from agent_memory.testing.views import ViewsContract


def _features(count: int, dimension: int = 8, seed: int = 7) -> Features:
    return Features.of_vectors(units(count, dimension, seed))


def _sought(dimension: int = 8) -> Query:
    return Query(units(1, dimension)[0])


def _names(store: Store, block: str = "v", owner: str = "user:a", dimension: int = 8) -> list[str]:
    hits = store.search_vectors(block, owner, _sought(dimension), 99)
    return sorted(hit.record.id for hit in hits)


class VectorStoreContract(ViewsContract, AllVectorsContract):
    """Contract of a `VectorStore`."""

    def test_vectors_ranking_is_exact(self, store: Store, other: Store) -> None:
        """Wrong: the nearest records are missed or ranked wrong."""
        vectors, queries = units(300, signed=True), units(5, seed=8, signed=True)
        store.open_vectors("v", 8, "m")
        records = [record(f"{n:03}") for n in range(300)]
        store.put_vectors("v", records, Features.of_vectors(vectors))
        for query in queries:
            scores = vectors @ query
            wanted = np.argsort(-scores).tolist()
            for limit in (1, 10, 300, 1000):
                ranking = ranked(other.search_vectors("v", "user:a", Query(query), limit))
                assert [int(r.id) for r, _ in ranking] == wanted[:limit]
                near = pytest.approx(scores[wanted[:limit]].tolist(), abs=1e-5)
                assert [score for _, score in ranking] == near

    def test_vectors_are_searched_with_what_is_pending(self, store: Store, other: Store) -> None:
        """Wrong: a search misses stored records, or the pending records that the query contains.

        Also wrong: a record that is both pending and stored is found twice.
        """
        store.open_vectors("v", 8, "m")
        texts, records = ["red fox", "red hen", "a dog"], [record(name) for name in "abc"]

        def features(since: int, upto: int = 3) -> Features:
            return worded(texts[since:upto], units(3)[since:upto])

        def search(since: int) -> dict[str, Hit]:
            pending = {record.id: record for record in records[since:]}
            index = SegmentIndex(8).extended(list(pending), features(since))
            query = for_words("red fox", units(1)[0]).with_pending(index, pending)
            hits = other.search_vectors("v", "user:a", query, 99)
            assert sorted((hit.record for hit in hits), key=lambda record: record.id) == records
            return {hit.record.id: hit for hit in hits}

        alone = search(0)
        for number, added in enumerate(records):
            store.put_vectors("v", [added], features(number, number + 1))
            assert search(0).keys() == alone.keys()
            for name, hit in search(number + 1).items():
                assert hit.cosine == pytest.approx(alone[name].cosine, abs=1e-5)
                assert hit.score == pytest.approx(alone[name].score, abs=0.02)

    def test_vectors_records_come_back_whole(self, store: Store, other: Store) -> None:
        """Wrong: a field of a record is lost."""
        full = record("r", text="é 😀 \x00 \ud800", sources=(3, 1), last=3, metadata={"n": [None]})
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [full], _features(1))
        (hit,) = other.search_vectors("v", "user:a", _sought(), 3)
        assert hit.record == full
        assert hit.cosine == pytest.approx(1, abs=1e-5)
        assert {type(value) for value in (hit.score, hit.relevance, *hit.parts)} == {float}

    def test_vectors_owners_and_blocks_are_apart(self, store: Store) -> None:
        """Wrong: one user's search finds another user's memory."""
        for block in ("v", "w"):
            store.open_vectors(block, 8, "m")
        store.put_vectors("v", [record("a"), record("b", owner="user:b")], _features(2))
        store.put_vectors("w", [record("c")], _features(1))
        for owner, names in (("user:a", ["a"]), ("user:b", ["b"]), ("user:A", []), ("user:", [])):
            assert _names(store, owner=owner) == names

    def test_vectors_overwrite_by_id(self, store: Store, other: Store) -> None:
        """Wrong: a retry stores a duplicate, or the old vector or owner stays."""
        old, new = np.eye(8, dtype=np.float32)[:2], units(3)[2:]
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [record("a"), record("b")], Features.of_vectors(old))
        assert other.search_vectors("v", "user:a", Query(old[0]), 1)[0].record.id == "a"
        store.put_vectors("v", [record("a", text="new")], Features.of_vectors(new))
        (best, score), (second, _) = ranked(other.search_vectors("v", "user:a", Query(new[0]), 9))
        assert (best.id, best.text, second.id) == ("a", "new", "b")
        assert score == pytest.approx(1.0, abs=1e-5)
        store.put_vectors("v", [record("a", owner="user:b")], Features.of_vectors(new))
        assert _names(other) == ["b"]
        assert _names(other, owner="user:b") == ["a"]

    def test_vectors_delete(self, store: Store, other: Store) -> None:
        """Wrong: searches find deleted records, or a deletion removes other records."""
        store.open_vectors("v", 8, "m")
        store.open_vectors("w", 8, "m")

        def fill() -> None:
            records = [record(f"a{n}", last=n) for n in range(4)]
            records += [record("t", session_id="t", last=9), record("b", owner="user:b", last=9)]
            store.put_vectors("v", records, _features(6))
            store.put_vectors("w", [record("n", last=9)], _features(1))

        def left() -> list[str]:
            return sorted(_names(other) + _names(other, owner="user:b"))

        fill()
        assert left() == ["a0", "a1", "a2", "a3", "b", "t"]
        store.delete_vectors("v", session_id="s", after=1)
        assert left() == ["a0", "a1", "t"]
        fill()
        assert len(left()) == 6
        store.delete_vectors("v", owner="user:a")
        assert left() == ["b"]
        fill()
        store.delete_vectors("v", owner="user:a", session_id="s")
        assert left() == ["b", "t"]
        fill()
        store.delete_vectors("v", session_id="s")
        store.delete_vectors("v", session_id="s")
        assert left() == ["t"]
        assert _names(store, "w") == ["n"]
        with pytest.raises(ValueError, match="Name an owner"):
            store.delete_vectors("v")

    def test_handles_that_write_in_turn(self, store: Store, other: Store) -> None:
        """Wrong: a handle with a cache misses writes of another handle, or repeats a record."""
        handles = (store, other)
        for handle in handles:
            handle.open_vectors("v", 8, "m")
        there: list[str] = []
        for n in range(24):
            writer, reader = handles[n // 3 % 2], handles[n // 2 % 2]
            if n % 8 == 7:
                writer.delete_vectors("v", session_id=f"s{n - 2}")
                there.remove(f"{n - 2:02}")
            writer.put_vectors("v", [record(f"{n:02}", session_id=f"s{n}")], _features(1, seed=n))
            there.append(f"{n:02}")
            assert _names(reader) == there
        vectors = np.concatenate([units(1, seed=int(name)) for name in there])
        for handle in handles:
            ranking = ranked(handle.search_vectors("v", "user:a", Query(vectors[3]), 99))
            scores = [score for _, score in sorted(ranking, key=lambda pair: pair[0].id)]
            assert scores == pytest.approx((vectors @ vectors[3]).tolist(), abs=1e-5)

    def test_another_dimension_or_model_is_refused(self, store: Store, other: Store) -> None:
        """Wrong: vectors of two embedders are compared with each other."""
        store.open_vectors("v", 8, "m")
        other.open_vectors("v", 8, "m")
        store.put_vectors("v", [record("a")], _features(1))
        for dimension, model in ((9, "m"), (8, "M"), (0, "m")):
            with pytest.raises(DimensionMismatch, match="replay"):
                other.open_vectors("v", dimension, model)
        for dimension in (0, 9):
            with pytest.raises(DimensionMismatch):
                store.put_vectors("v", [record("b")], _features(1, dimension))
        with pytest.raises(DimensionMismatch):
            store.search_vectors("v", "user:a", _sought(9), 1)
        store.open_vectors("w", 9, "n")
        assert _names(store) == ["a"]

    def test_vectors_clear(self, store: Store, other: Store) -> None:
        """Wrong: an embedder cannot be changed, or old vectors appear after the change."""
        for block in ("v", "w"):
            store.open_vectors(block, 8, "m")
            store.put_vectors(block, [record("a")], _features(1))
        assert _names(other) == ["a"]
        store.clear_vectors("v")
        store.clear_vectors("v")
        assert _names(other) == []
        other.open_vectors("v", 5, "n")
        other.put_vectors("v", [record("b")], _features(1, 5))
        assert _names(store, dimension=5) == ["b"]
        assert _names(store, "w") == ["a"]

    def test_a_stale_embedder_cannot_mix_in(self, store: Store, other: Store) -> None:
        """Wrong: a worker with the old embedder adds to a block that was rebuilt with a new one."""
        if store is other:
            pytest.skip("one handle has one embedder")
        store.open_vectors("v", 8, "old")
        other.clear_vectors("v")
        other.open_vectors("v", 8, "new")
        with pytest.raises(DimensionMismatch):
            store.put_vectors("v", [record("a")], _features(1))

    def test_vectors_of_namespaces_are_apart(self, store: Store, elsewhere: Store) -> None:
        """Wrong: one namespace finds or clears the vectors of another."""
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [record("a")], _features(1))
        elsewhere.open_vectors("v", 5, "n")
        assert elsewhere.vector_blocks() == {"v": (5, "n")}
        assert list(elsewhere.all_vectors("v")) == []
        assert _names(elsewhere, dimension=5) == []
        elsewhere.delete_vectors("v", owner="user:a")
        elsewhere.clear_vectors("v")
        assert _names(store) == ["a"]
