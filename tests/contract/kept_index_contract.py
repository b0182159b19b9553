"""What a store must do that keeps owners' indexes in memory, as tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest

from agent_memory.retrieval.features import Features
from agent_memory.stores import blobs
from agent_memory.stores.base import Store
from agent_memory.testing.contract import record, together
from agent_memory.testing.features import for_words, ranked, units, worded
from tests.contract.vector_changes_contract import VectorChangesContract

_QUERY = units(1, 4)[0]


def _put(handle: Store, *names: str, owner: str = "user:a") -> None:
    """Records of one word each, which is their name."""
    rows = np.concatenate([units(1, 4, seed=sum(name.encode())) for name in names])
    records = [record(name, owner, session_id=name) for name in names]
    handle.put_vectors("v", records, worded(list(names), None, rows, rows))


def _names(handle: Store, owner: str = "user:a") -> list[str]:
    found = handle.search_vectors("v", owner, for_words("shared", _QUERY), 999)
    assert len({hit.record.id for hit in found}) == len(found)
    return sorted(hit.record.id for hit in found)


class KeptIndexContract(VectorChangesContract):
    """What such a store does beside what all do: it loads no more than it must."""

    @pytest.fixture
    def loads(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
        """How many indexes were loaded since it was last asked."""
        seen: list[int] = []
        decoded = blobs.features_of

        def counted(given: Sequence[bytes]) -> Features:
            seen.append(len(given))
            return decoded(given)

        def count() -> int:
            since = len(seen)
            seen.clear()
            return since

        monkeypatch.setattr(blobs, "features_of", counted)
        return count

    def test_own_writes_are_taken_in(self, store: Store, loads: Callable[[], int]) -> None:
        """Else: each message that is absorbed has all of its user's loaded anew."""
        store.open_vectors("v", 4, "m")
        _put(store, "n00")
        assert (_names(store), loads()) == (["n00"], 1)
        there = ["n00"]
        for n in range(1, 40, 3):
            new = [f"n{n:02}", f"n{n + 1:02}", f"n{n + 2:02}"]
            _put(store, *new[:2])
            _put(store, new[2])
            there += new
            assert _names(store) == there
            ((one, _),) = ranked(store.search_vectors("v", "user:a", for_words(new[1]), 9), "words")
            assert one.id == new[1]
        assert loads() == 0
        _put(store, "b00", owner="user:b")
        assert (_names(store), loads()) == (there, 0)

    def test_what_cannot_be_taken_in_is_loaded(
        self, store: Store, loads: Callable[[], int]
    ) -> None:
        """Else: an index that was added to has a record twice, or one that is gone."""
        store.open_vectors("v", 4, "m")
        _put(store, "a", "b", "c")
        assert (_names(store), loads()) == (["a", "b", "c"], 1)
        _put(store, "b", "d")
        assert (_names(store), loads()) == (["a", "b", "c", "d"], 1)
        store.delete_vectors("v", session_id="a")
        _put(store, "e")
        assert (_names(store), loads()) == (["b", "c", "d", "e"], 1)
        _put(store, "e", owner="user:b")
        assert (_names(store), loads()) == (["b", "c", "d"], 1)
        assert (_names(store, "user:b"), loads()) == (["e"], 1)
        records = [record("f"), record("g", "user:b")]
        store.put_vectors("v", records, Features.of_vectors(units(2, 4)))
        assert (_names(store), loads()) == (["b", "c", "d", "f"], 1)
        assert (_names(store, "user:b"), loads()) == (["e", "g"], 1)
        store.put_vectors("v", [record("h")] * 2, Features.of_vectors(units(2, 4)))
        assert (_names(store), loads()) == (["b", "c", "d", "f", "h"], 1)

    def test_what_another_handle_wrote_is_loaded(
        self, store: Store, other: Store, loads: Callable[[], int]
    ) -> None:
        """Else: who takes its own write into an old index never learns of another's before it."""
        if store is other:
            pytest.skip("one handle has no other's writes to miss")
        for handle in (store, other):
            handle.open_vectors("v", 4, "m")
        _put(store, "a")
        assert _names(store) == _names(other) == ["a"]
        assert loads() == 2
        _put(other, "b")
        _put(store, "c")
        assert (_names(store), loads()) == (["a", "b", "c"], 1)
        assert (_names(other), loads()) == (["a", "b", "c"], 1)
        other.delete_vectors("v", session_id="b")
        _put(store, "d")
        assert (_names(store), loads()) == (["a", "c", "d"], 1)
        _put(store, "e")
        assert (_names(store), loads()) == (["a", "c", "d", "e"], 0)

    def test_many_write_and_search(self, store: Store, other: Store) -> None:
        """Else: between threads and processes an index is kept that lacks a write, or half of
        one."""
        handles = (store, other)
        for handle in handles:
            handle.open_vectors("v", 4, "m")
        _put(store, "first")
        turns = 8

        def write(handle: Store, name: str) -> None:
            mine: list[str] = []
            for n in range(turns):
                _put(handle, new := f"{name}{n}")
                mine.append(new)
                if n % 4 == 3:
                    handle.delete_vectors("v", session_id=mine.pop(0))
                found = _names(handle)
                assert [one for one in found if one[0] == name] == mine

        def search(handle: Store) -> None:
            for _ in range(2 * turns):
                assert "first" in _names(handle)

        together(
            [
                *(partial(write, h, name) for h, name in zip(handles * 2, "abcd", strict=True)),
                *(partial(search, handle) for handle in handles),
            ]
        )
        left = [f"{name}{n}" for name in "abcd" for n in range(2, turns)]
        for handle in handles:
            assert _names(handle) == [*left, "first"]
            for name in left:
                found = handle.search_vectors("v", "user:a", for_words(name), 9)
                assert [hit.record.id for hit in found] == [name]
