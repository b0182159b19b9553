"""What every vector store must do, as tests. See `agent_memory.testing.contract`."""

from __future__ import annotations

import numpy as np
import pytest

from agent_memory.errors import DimensionMismatch
from agent_memory.stores.base import Store
from agent_memory.testing.contract import Contract, record


def _unit(count: int, dimension: int = 8, seed: int = 7) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


class VectorStoreContract(Contract):
    """What a `VectorStore` must do.

    Attributes:
        breaks_ties_by_id: Whether equal scores come in order of record ids; a server that ranks by
            itself may order them as it likes.
    """

    breaks_ties_by_id = True

    def test_vectors_ranking_is_exact(self, store: Store, other: Store) -> None:
        """Else: the nearest are missed, misordered or misjudged."""
        vectors, queries = _unit(300), _unit(5, seed=8)
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [record(f"{n:03}") for n in range(300)], vectors)
        for query in queries:
            scores = vectors @ query
            wanted = np.argsort(-scores)
            for limit in (1, 10, 300, 1000):
                found = other.search_vectors("v", "user:a", query, limit)
                assert [int(r.id) for r, _ in found] == wanted[:limit].tolist()
                assert [score for _, score in found] == pytest.approx(
                    scores[wanted[:limit]].tolist(), abs=1e-5
                )
        assert other.search_vectors("v", "user:a", queries[0], 0) == []

    def test_vectors_equals_go_by_id(self, store: Store) -> None:
        """Else: which of several equals is shown changes from call to call."""
        store.open_vectors("v", 8, "m")
        names = [f"{n * 37 % 101:03}" for n in range(101)]
        store.put_vectors("v", [record(n) for n in names], np.repeat(_unit(1), 101, axis=0))
        found = store.search_vectors("v", "user:a", _unit(1)[0], 5)
        assert len(found) == 5
        if self.breaks_ties_by_id:
            assert [r.id for r, _ in found] == ["000", "001", "002", "003", "004"]

    def test_vectors_records_come_back_whole(self, store: Store, other: Store) -> None:
        """Else: a field of a record is lost."""
        kept = record("r", text="é 😀 \x00 \ud800", sources=(3, 1), last=3, metadata={"n": [None]})
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [kept], _unit(1))
        ((found, score),) = other.search_vectors("v", "user:a", _unit(1)[0], 3)
        assert found == kept
        assert score == pytest.approx(1.0, abs=1e-5)
        assert isinstance(score, float)

    def test_vectors_owners_and_blocks_are_apart(self, store: Store) -> None:
        """Else: one user's search finds another's memory."""
        for block in ("v", "w"):
            store.open_vectors(block, 8, "m")
        store.put_vectors("v", [record("a"), record("b", owner="user:b")], _unit(2))
        store.put_vectors("w", [record("c")], _unit(1))
        for owner, names in (("user:a", ["a"]), ("user:b", ["b"]), ("user:A", []), ("user:", [])):
            found = store.search_vectors("v", owner, _unit(2)[1], 9)
            assert [r.id for r, _ in found] == names

    def test_vectors_overwrite_by_id(self, store: Store, other: Store) -> None:
        """Else: a retry doubles what it wrote, or the old vector or owner stays."""
        vectors = _unit(3)
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [record("a"), record("b")], vectors[:2])
        assert other.search_vectors("v", "user:a", vectors[0], 1)[0][0].id == "a"
        store.put_vectors("v", [record("a", text="new")], vectors[2:])
        ((best, _), (second, _)) = other.search_vectors("v", "user:a", vectors[2], 9)
        assert (best.id, best.text, second.id) == ("a", "new", "b")
        store.put_vectors("v", [record("a", owner="user:b")], vectors[2:])
        assert [r.id for r, _ in other.search_vectors("v", "user:a", vectors[2], 1)] == ["b"]
        assert [r.id for r, _ in other.search_vectors("v", "user:b", vectors[2], 9)] == ["a"]

    def test_vectors_delete(self, store: Store, other: Store) -> None:
        """Else: a deletion leaves records findable or takes more than was named."""
        store.open_vectors("v", 8, "m")
        store.open_vectors("w", 8, "m")

        def fill() -> None:
            records = [record(f"a{n}", last=n) for n in range(4)]
            records += [record("t", session_id="t", last=9), record("b", owner="user:b", last=9)]
            store.put_vectors("v", records, _unit(6))
            store.put_vectors("w", [record("n", last=9)], _unit(1))

        def left() -> list[str]:
            owners = ("user:a", "user:b")
            found = [other.search_vectors("v", owner, _unit(1)[0], 99) for owner in owners]
            return sorted(r.id for records in found for r, _ in records)

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
        assert len(store.search_vectors("w", "user:a", _unit(1)[0], 9)) == 1
        with pytest.raises(ValueError, match="Name an owner"):
            store.delete_vectors("v")

    def test_vectors_a_write_is_seen_by_the_other_handle(self, store: Store, other: Store) -> None:
        """Else: a cached matrix outlives what it was made of."""
        vectors = _unit(3)
        store.open_vectors("v", 8, "m")

        def names(handle: Store) -> list[str]:
            return sorted(r.id for r, _ in handle.search_vectors("v", "user:a", vectors[0], 9))

        store.put_vectors("v", [record("a")], vectors[:1])
        assert names(other) == ["a"]
        store.put_vectors("v", [record("b")], vectors[1:2])
        assert names(other) == names(store) == ["a", "b"]
        store.delete_vectors("v", owner="user:a")
        assert names(other) == names(store) == []
        store.put_vectors("v", [record("c")], vectors[2:])
        assert names(other) == names(store) == ["c"]

    def test_another_dimension_or_model_is_refused(self, store: Store, other: Store) -> None:
        """Else: vectors of two embedders are compared with each other."""
        store.open_vectors("v", 8, "m")
        other.open_vectors("v", 8, "m")
        store.put_vectors("v", [record("a")], _unit(1))
        for dimension, model in ((9, "m"), (8, "M")):
            with pytest.raises(DimensionMismatch, match="replay"):
                other.open_vectors("v", dimension, model)
        with pytest.raises(DimensionMismatch):
            store.put_vectors("v", [record("b")], _unit(1, 9))
        with pytest.raises(DimensionMismatch):
            store.search_vectors("v", "user:a", _unit(1, 9)[0], 1)
        store.open_vectors("w", 9, "n")
        assert len(store.search_vectors("v", "user:a", _unit(1)[0], 9)) == 1

    def test_vectors_clear(self, store: Store, other: Store) -> None:
        """Else: an embedder cannot be changed, or old vectors turn up after it was."""
        for block in ("v", "w"):
            store.open_vectors(block, 8, "m")
            store.put_vectors(block, [record("a")], _unit(1))
        assert len(other.search_vectors("v", "user:a", _unit(1)[0], 9)) == 1
        store.clear_vectors("v")
        store.clear_vectors("v")
        assert other.search_vectors("v", "user:a", _unit(1)[0], 9) == []
        other.open_vectors("v", 5, "n")
        other.put_vectors("v", [record("b")], _unit(1, 5))
        assert [r.id for r, _ in store.search_vectors("v", "user:a", _unit(1, 5)[0], 9)] == ["b"]
        assert len(store.search_vectors("w", "user:a", _unit(1)[0], 9)) == 1

    def test_a_stale_embedder_cannot_mix_in(self, store: Store, other: Store) -> None:
        """Else: a worker with the old embedder adds to a block rebuilt with a new one."""
        if store is other:
            pytest.skip("one handle has one embedder")
        store.open_vectors("v", 8, "old")
        other.clear_vectors("v")
        other.open_vectors("v", 8, "new")
        with pytest.raises(DimensionMismatch):
            store.put_vectors("v", [record("a")], _unit(1))

    def test_vectors_nothing_to_put(self, store: Store) -> None:
        """Else: a block with nothing to say fails."""
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [], np.empty((0, 8), dtype=np.float32))
        assert store.search_vectors("v", "user:a", _unit(1)[0], 9) == []

    def test_vectors_of_namespaces_are_apart(self, store: Store, elsewhere: Store) -> None:
        """Else: one deployment finds or clears another's vectors."""
        store.open_vectors("v", 8, "m")
        store.put_vectors("v", [record("a")], _unit(1))
        elsewhere.open_vectors("v", 5, "n")
        assert elsewhere.search_vectors("v", "user:a", _unit(1, 5)[0], 9) == []
        elsewhere.delete_vectors("v", owner="user:a")
        elsewhere.clear_vectors("v")
        assert len(store.search_vectors("v", "user:a", _unit(1)[0], 9)) == 1
