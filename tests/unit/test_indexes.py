"""Indexes that are kept between searches."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from agent_memory.core.records import Record
from agent_memory.retrieval.features import Features
from agent_memory.stores import indexes
from agent_memory.stores.blobs import blobs_of
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
