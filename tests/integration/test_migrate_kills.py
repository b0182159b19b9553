"""Migrations that are killed at every step: the next run completes them."""

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agent_memory import AgentMemory, NoteMemory
from agent_memory.engine import leases
from agent_memory.engine.transfer.migrate import is_unfinished, migrate_stores
from agent_memory.stores import open_store
from agent_memory.stores.base import Store
from agent_memory.testing import watched
from agent_memory.testing.contract import draft, for_words, record, units, worded
from tests.integration.migrating import everything, fill_plainly
from tests.kit import spread

SEED = 20260722
QUESTION = for_words("red fox", units(1)[0])

forked = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the leases of a killed process expire quickly."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.02)


def _fill(path: Path, count: int) -> Path:
    with closing(_store(path)) as store:
        fill_plainly(store, count)
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A database with more than a page of records."""
    return _fill(tmp_path / "source.db", 250)


def _store(path: Path) -> Store:
    return open_store(f"sqlite:///{path}")


def _run(source: Path, target: Path, fatal: int | None, steps: list[str]) -> None:
    """Migrate, but kill this process at step `fatal` of either store."""

    def watch(step: str) -> None:
        steps.append(step)
        if len(steps) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    with closing(_store(source)) as here, closing(_store(target)) as there:
        for _ in migrate_stores(watched(here, watch), watched(there, watch), "origin"):
            pass


def _killed(source: Path, target: Path, fatal: int | None) -> bool:
    """Return whether a migrating process was killed at a step."""
    process = forked.Process(target=_run, args=(source, target, fatal, []))
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def _stopped(source: Path, target: Path, fatal: int | None) -> bool:
    """Return whether a migration was killed before its end."""
    if not _killed(source, target, fatal):
        return False
    with closing(_store(target)) as store:
        return is_unfinished(store) or not store.counts().sessions


def _same(source: Path, target: Path) -> None:
    """Assert that both stores hold the same data, and show users the same."""
    told = []
    for path in (source, target):
        with closing(_store(path)) as store:
            assert not is_unfinished(store)
            held = everything(store)
            hits = store.search_vectors("index", "user:of a", QUESTION, 20)
            with AgentMemory(store=store, blocks=[NoteMemory()]) as memory:
                seen: list[Any] = []
                for name in ("a", "b", "c"):
                    mine = memory.session(name, f"of {name}")
                    seen.append([(one.seq, one.message.to_dict()) for one in mine.history()])
                    seen.append([note.text for note in mine.owner().notes().all()])
                    seen.append(mine.get("What is noted?").to_messages())
            found = sorted((hit.record.id, hit.score) for hit in hits)
            told.append((held, found, seen))
    assert told[0] == told[1]


def test_killed_at_many_steps(tmp_path: Path) -> None:
    """Wrong: a migration that is killed at some step loses or doubles data."""
    source, steps = _fill(tmp_path / "source.db", 5), list[str]()
    _run(source, tmp_path / "whole.db", None, steps)
    ended = len(steps) - steps[::-1].index("after delete_records")
    # "before" one call is "after" the previous one
    for fatal in spread([n for n, step in enumerate(steps, 1) if step.startswith("before")], 15):
        target = tmp_path / f"killed-{fatal}.db"
        assert _killed(source, target, fatal), steps[fatal - 1]
        with closing(_store(target)) as store:
            begun = "after put_records" in steps[:fatal]
            assert is_unfinished(store) == (begun and fatal < ended)
        if fatal < ended:
            assert not _killed(source, target, None)
        with closing(_store(source)) as here, closing(_store(target)) as there:
            assert everything(there) == everything(here)
            assert not is_unfinished(there)


def _noted(store: Store) -> None:
    with AgentMemory(store=store, blocks=[NoteMemory()]) as memory:
        memory.session("b", "of b").owner().notes().add("Another note.")
        memory.session("b", "of b").owner().notes().add("And another.")


def _undone(store: Store) -> None:
    with AgentMemory(store=store, blocks=[NoteMemory()]) as memory:
        memory.pop("b")


def _deleted(store: Store) -> None:
    with AgentMemory(store=store, blocks=[NoteMemory()]) as memory:
        memory.delete_user("of c")
        memory.update("c", {"role": "user", "content": "back again"}, user_id="of c")


def _absorbed(store: Store) -> None:
    store.open_vectors("index", 8, "m")
    one = record("v1", "user:of a", "b", text="anew")
    store.put_vectors("index", [one], worded(["red"], meaning=units(1)))
    store.delete_vectors("index", session_id="c")
    store.put_records("facts", [record("f1"), record("new")], replacing=("a", 1, 1))


def test_the_source_is_used_between_kills(source: Path, tmp_path: Path) -> None:
    """Wrong: changes of the source between two runs are missed, or undone."""
    changes: list[Callable[[Store], object]] = [_noted, _undone, _deleted, _absorbed]
    changes += [lambda store: store.append("a", [draft("one more")])]
    for order in range(3):
        random = Random(SEED + order)
        here, there = tmp_path / f"source-{order}.db", tmp_path / f"target-{order}.db"
        shutil.copy(source, here)
        for change in random.sample(changes, len(changes)):
            if not _stopped(here, there, random.randint(20, 120)):
                with closing(_store(there)) as store:
                    assert not is_unfinished(store)
                break
            with closing(_store(here)) as store:
                change(store)
        else:
            assert not _stopped(here, there, None)
        _same(here, there)


@pytest.fixture(autouse=True)
def no_children_left() -> Iterator[None]:
    yield
    assert not multiprocessing.active_children()
