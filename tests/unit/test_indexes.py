"""Indexes that are kept between searches."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from agent_memory.core.records import Record
from agent_memory.errors import StoreUnavailable
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.segments import Segment
from agent_memory.stores import indexes
from agent_memory.stores.blobs import blobs_of
from agent_memory.stores.catalogs import Catalog, changed
from agent_memory.stores.damage import noted
from agent_memory.stores.indexes import Indexes, records_of
from agent_memory.testing.contract import record


def stored(count: int, at: int = 0) -> tuple[list[Record], Features]:
    rows = np.random.default_rng(at).normal(size=(count, 8)).astype(np.float32)
    return [record(f"{at + n}") for n in range(count)], Features.of_vectors(rows)


def load(kept: Indexes, owner: str, version: int, count: int) -> None:
    records, features = stored(count)
    ids = [one.id for one in records]
    kept.load(("v", owner), version, ids, blobs_of(records, features))


def test_an_index_stands_as_long_as_its_version() -> None:
    """Wrong: a search finds what was deleted, or misses what was added."""
    kept = Indexes()
    load(kept, "ann", 7, 3)
    assert kept.get(("v", "ann"), 7) is not None
    assert kept.get(("v", "ann"), 8) is kept.get(("v", "ann"), None) is None
    assert kept.get(("v", "bob"), 7) is None


def test_own_writes_are_taken_in() -> None:
    """Wrong: each message makes the next search load all anew; or a write that came after
    another's is taken for all that changed."""
    kept = Indexes()
    load(kept, "ann", 7, 3)
    records, features = stored(2, 100)
    ids = [one.id for one in records]
    kept.extend("v", {"ann": (6, 8)}, ids, features)
    assert kept.get(("v", "ann"), 8) is None
    kept.extend("v", {"ann": (7, 8)}, ids, features)
    longer = kept.get(("v", "ann"), 8)
    assert longer is not None
    assert len(longer) == 5
    kept.extend("v", {"ann": (8, 9)}, ids, features)  # written over: to be loaded anew
    assert kept.get(("v", "ann"), 9) is None


def test_records_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: each search reads a hundred records again; or they pile up; or one that is gone is
    shown."""
    kept = Indexes()
    load(kept, "ann", 7, 5)
    index = kept.get(("v", "ann"), 7)
    assert index is not None
    stored_now = {name: record(name) for name in "0123"}  # "4" is gone
    asked: list[list[str]] = []

    def read(ids: list[str]) -> dict[str, Record]:
        asked.append(ids)
        return {name: stored_now[name] for name in ids if name in stored_now}

    assert set(records_of(index, ["0", "1"], read)) == {"0", "1"}
    assert set(records_of(index, ["0", "1", "2", "4"], read)) == {"0", "1", "2"}
    assert asked == [["0", "1"], ["2", "4"]]
    monkeypatch.setattr(indexes, "_MOST_RECORDS", 3)
    assert set(records_of(index, ["0", "3"], read)) == {"0", "3"}
    assert set(index.records) == {"3"}


def test_the_least_used_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a service with many users grows without end, or keeps none of them."""
    kept = Indexes()
    load(kept, "ann", 1, 10)
    ann = kept.get(("v", "ann"), 1)
    assert ann is not None
    monkeypatch.setattr(indexes, "MOST_BYTES", 2 * ann.nbytes)
    load(kept, "bob", 1, 10)
    kept.get(("v", "ann"), 1)
    load(kept, "cleo", 1, 10)
    assert [kept.get(("v", owner), 1) is None for owner in ("ann", "bob", "cleo")] == [
        False,
        True,
        False,
    ]
    records, features = stored(10, 100)
    kept.extend("v", {"cleo": (1, 2)}, [one.id for one in records], features)
    assert kept.get(("v", "ann"), 1) is None
    assert kept.get(("v", "cleo"), 2) is not None


def test_one_user_with_too_many_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong: memory fills up and nobody knows by what, or what to do."""
    monkeypatch.setattr(indexes, "MOST_BYTES", 1_000)
    kept = Indexes()
    with caplog.at_level(logging.WARNING):
        for version in range(3):
            load(kept, "user:ann", version, 50)
    (told,) = caplog.messages
    assert "50 records" in told
    assert "Qdrant" in told
    assert "ann" not in told


class Shifting:
    """A source that somebody changes between any two looks at it, so many times."""

    def __init__(self, changes: int) -> None:
        self.left = changes
        self.state = Catalog()
        self.bodies: dict[int, bytes] = {}
        self.version = 0
        self.asked = 0
        for number in range(3):
            self.change(f"{number}")

    def change(self, name: str, gone: str | None = None) -> None:
        _, features = stored(1, len(name))
        numbers = {int(gone) + 1: gone} if gone else {}
        change = changed(self.state, numbers, [Segment.of([name], features)], self.segments)
        self.bodies = {n: b for n, b in self.bodies.items() if n not in change.dropped}
        self.bodies |= change.written
        self.state, self.version = change.catalog, self.version + 1

    def catalog(self) -> tuple[int, str | None] | None:
        found = self.version, self.state.text
        if self.left:
            self.left -= 1
            self.change(f"new{self.left}", f"{2 - self.left}" if self.left < 3 else None)
        return found

    def segments(self, names: Sequence[int]) -> Mapping[int, bytes]:
        self.asked += len(names)
        return {name: self.bodies[name] for name in names if name in self.bodies}


def test_what_changes_between_two_looks_is_read_again() -> None:
    """Wrong: a search finds half of a change: what is gone, or neither the old nor the new; or a
    segment that was written anew passes for a damaged one."""
    kept, source = Indexes(), Shifting(3)
    with noted() as damaged:
        found = [kept.follow(("v", "ann"), source) for _ in range(4)]
    assert damaged == []
    names = ["0", "1", "2", "new0", "new1", "new2"]
    assert found[0].held(names) in ({"1", "2", "new2"}, {"2", "new2", "new1"})
    assert found[2].held(names) == {"new0", "new1", "new2"}
    assert found[3] is found[2]
    asked = source.asked
    source.change("more")
    assert kept.follow(("v", "ann"), source).held(["more", "new1"]) == {"more", "new1"}
    assert source.asked == asked + 1


def test_a_segment_that_stays_away_is_damaged() -> None:
    """Wrong: a search waits for ever for what is not there, or finds nothing of the others."""
    kept, source = Indexes(), Shifting(0)
    del source.bodies[source.state.names[1]]
    with noted() as damaged:
        assert kept.follow(("v", "ann"), source).held(["0", "1", "2"]) == {"0", "2"}
    assert [error.damage and error.damage.kind for error in damaged] == ["vector"]


def test_a_source_that_never_rests_is_given_up() -> None:
    """Wrong: a search never ends."""
    source = Shifting(0)

    def segments(names: Sequence[int]) -> Mapping[int, bytes]:
        source.version += 1
        return {}

    source.segments = segments  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="Try again"):
        Indexes().follow(("v", "ann"), source)
