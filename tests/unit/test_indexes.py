"""Cached search indexes."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from agent_memory.core.records import Record
from agent_memory.errors import StoreUnavailable
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.index import SegmentIndex
from agent_memory.retrieval.segments import Segment
from agent_memory.stores.damage import noted
from agent_memory.stores.kernel import indexes
from agent_memory.stores.kernel.catalogs import Catalog, changed
from agent_memory.stores.kernel.indexes import Indexes, records_of
from agent_memory.testing.contract import for_words, record


def stored(count: int, at: int = 0) -> tuple[list[Record], Features]:
    rows = np.random.default_rng(at).normal(size=(count, 8)).astype(np.float32)
    return [record(f"{at + n}") for n in range(count)], Features.of_vectors(rows)


class Fixed:
    """A fixed number of records under one version."""

    def __init__(self, version: int, count: int) -> None:
        self.version = version
        self.ids = [f"{n}" for n in range(count)]
        segment = Segment.of(self.ids, stored(count)[1])
        self.change = changed(Catalog(), {}, [segment], lambda names: {})
        self.asked = 0

    def catalog(self) -> tuple[int, str | None] | None:
        return self.version, self.change.catalog.text

    def segments(self, names: Sequence[int]) -> Mapping[int, bytes]:
        self.asked += len(names)
        return {name: self.change.written[name] for name in names}

    def names(self) -> Sequence[int]:
        return list(self.change.written)

    def numbers(self) -> Mapping[str, int]:
        return {name: at for at, name in enumerate(self.ids, 1)}


def records(ids: Sequence[str]) -> dict[str, Record]:
    return {name: record(name, text=f"fox {name}") for name in ids}


def followed(kept: Indexes, owner: str, version: int, count: int) -> tuple[SegmentIndex, int]:
    """Return an index, and the number of segment reads for it."""
    source = Fixed(version, count)
    return kept.follow(("v", owner), source, records), source.asked


def test_an_index_stands_as_long_as_its_version() -> None:
    """Wrong: an index is read again without a change, or is used after one."""
    kept = Indexes()
    index, asked = followed(kept, "ann", 7, 3)
    assert (len(index), asked) == (3, 1)
    assert followed(kept, "ann", 7, 3) == (index, 0)
    assert followed(kept, "bob", 7, 3)[1] == 1
    assert followed(kept, "ann", 8, 4)[1] == 1


def test_records_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: each search reads its records again, or cached records grow without limit."""
    kept = Indexes()
    index, _ = followed(kept, "ann", 7, 5)
    stored_now = {name: record(name) for name in "0123"}  # "4" was deleted
    asked: list[list[str]] = []

    def read(ids: Sequence[str]) -> dict[str, Record]:
        asked.append(list(ids))
        return {name: stored_now[name] for name in ids if name in stored_now}

    assert set(records_of(index, ["0", "1"], read)) == {"0", "1"}
    assert set(records_of(index, ["0", "1", "2", "4"], read)) == {"0", "1", "2"}
    assert asked == [["0", "1"], ["2", "4"]]
    monkeypatch.setattr(indexes, "_MOST_RECORDS", 3)
    assert set(records_of(index, ["0", "3"], read)) == {"0", "3"}
    assert set(index.records) == {"3"}


def test_one_user_with_too_many_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong: an index that is too large causes no warning, or one at each search."""
    monkeypatch.setattr(indexes, "MOST_BYTES", 1_000)
    kept = Indexes()
    with caplog.at_level(logging.WARNING):
        for version in range(3):
            followed(kept, "user:ann", version, 50)
    (told,) = caplog.messages
    assert "50 records" in told
    assert "Qdrant" in told
    assert "ann" not in told


class Shifting:
    """A source that changes a given number of times, each time it is read."""

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

    def names(self) -> Sequence[int]:
        return list(self.bodies)

    def numbers(self) -> Mapping[str, int]:
        return {"0": 1, "1": 2, "2": 3}


def held(index: SegmentIndex) -> set[str]:
    return {index.name(place) for place in range(len(index))}


def test_what_changes_between_two_looks_is_read_again() -> None:
    """Wrong: a search sees half of a concurrent change."""
    kept, source = Indexes(), Shifting(3)
    with noted() as damaged:
        found = [kept.follow(("v", "ann"), source, records) for _ in range(4)]
    assert damaged == []
    assert held(found[0]) in ({"1", "2", "new2"}, {"2", "new2", "new1"})
    assert held(found[2]) == {"new0", "new1", "new2"}
    assert found[3] is found[2]
    asked = source.asked
    source.change("more")
    assert held(kept.follow(("v", "ann"), source, records)) >= {"more", "new1"}
    assert source.asked == asked + 1


def test_sources_that_never_rest_are_given_up() -> None:
    """Wrong: a search waits forever for a missing segment, or for a source that always changes."""
    kept, source = Indexes(), Shifting(0)
    del source.bodies[source.state.names[1]]
    with noted() as damaged:
        index = kept.follow(("v", "ann"), source, records)
    assert held(index) == {"0", "1", "2"}
    assert index.search(for_words("fox 1"), 9).names == ["1"]
    assert [error.damage and error.damage.kind for error in damaged] == ["vector"]
    source = Shifting(0)

    def segments(names: Sequence[int]) -> Mapping[int, bytes]:
        source.version += 1
        return {}

    source.segments = segments  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="Try again"):
        Indexes().follow(("v", "ann"), source, records)
