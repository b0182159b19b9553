"""What a store must do that keeps owners' indexes in memory, as tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from agent_memory.retrieval.features import Features
from agent_memory.stores import blobs
from agent_memory.stores.base import Store
from agent_memory.testing.contract import record
from agent_memory.testing.features import for_words, ranked, units
from tests.contract.segments_contract import ManyHandlesContract, names_of, put_words


class KeptIndexContract(ManyHandlesContract):
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
        put_words(store, "n00")
        assert (names_of(store), loads()) == (["n00"], 1)
        there = ["n00"]
        for n in range(1, 40, 3):
            new = [f"n{n:02}", f"n{n + 1:02}", f"n{n + 2:02}"]
            put_words(store, *new[:2])
            put_words(store, new[2])
            there += new
            assert names_of(store) == there
            ((one, _),) = ranked(store.search_vectors("v", "user:a", for_words(new[1]), 9), "words")
            assert one.id == new[1]
        assert loads() == 0
        put_words(store, "b00", owner="user:b")
        assert (names_of(store), loads()) == (there, 0)

    def test_what_cannot_be_taken_in_is_loaded(
        self, store: Store, loads: Callable[[], int]
    ) -> None:
        """Else: an index that was added to has a record twice, or one that is gone."""
        store.open_vectors("v", 4, "m")
        put_words(store, "a", "b", "c")
        assert (names_of(store), loads()) == (["a", "b", "c"], 1)
        put_words(store, "b", "d")
        assert (names_of(store), loads()) == (["a", "b", "c", "d"], 1)
        store.delete_vectors("v", session_id="a")
        put_words(store, "e")
        assert (names_of(store), loads()) == (["b", "c", "d", "e"], 1)
        put_words(store, "e", owner="user:b")
        assert (names_of(store), loads()) == (["b", "c", "d"], 1)
        assert (names_of(store, "user:b"), loads()) == (["e"], 1)
        records = [record("f"), record("g", "user:b")]
        store.put_vectors("v", records, Features.of_vectors(units(2, 4)))
        assert (names_of(store), loads()) == (["b", "c", "d", "f"], 1)
        assert (names_of(store, "user:b"), loads()) == (["e", "g"], 1)
        store.put_vectors("v", [record("h")] * 2, Features.of_vectors(units(2, 4)))
        assert (names_of(store), loads()) == (["b", "c", "d", "f", "h"], 1)

    def test_what_another_handle_wrote_is_loaded(
        self, store: Store, other: Store, loads: Callable[[], int]
    ) -> None:
        """Else: who takes its own write into an old index never learns of another's before it."""
        if store is other:
            pytest.skip("one handle has no other's writes to miss")
        for handle in (store, other):
            handle.open_vectors("v", 4, "m")
        put_words(store, "a")
        assert names_of(store) == names_of(other) == ["a"]
        assert loads() == 2
        put_words(other, "b")
        put_words(store, "c")
        assert (names_of(store), loads()) == (["a", "b", "c"], 1)
        assert (names_of(other), loads()) == (["a", "b", "c"], 1)
        other.delete_vectors("v", session_id="b")
        put_words(store, "d")
        assert (names_of(store), loads()) == (["a", "c", "d"], 1)
        put_words(store, "e")
        assert (names_of(store), loads()) == (["a", "c", "d", "e"], 0)
