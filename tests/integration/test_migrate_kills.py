"""Migrations and repairs that are killed at many steps: the next run completes them."""

import multiprocessing
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from agent_memory import AgentMemory, NoteMemory, VectorMemory, operations
from agent_memory.engine import leases
from agent_memory.engine.transfer.migrate import is_unfinished, migrate_stores
from agent_memory.stores import Store, open_store
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.redis.kernel import RedisKernel
from agent_memory.stores.redis.scripts import KINDS
from agent_memory.testing import watched
from agent_memory.testing.contract import draft, for_words, record, units, worded
from tests.integration.migrating import everything, fill_plainly
from tests.kit import SECONDS, spread
from tests.servers.redis import RedisServer
from tests.servers.redis_suite import server, start

__all__ = ["server", "start"]

SEED = 20260722
QUESTION = for_words("red fox", units(1)[0])

forked = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the leases of a killed process expire quickly, and an embedder load slowly."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.05)
    monkeypatch.setattr("agent_memory.models.embedders.best_effort._SOON_SECONDS", SECONDS)


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
        stores = (KernelStore(watched(store.kernel, watch)) for store in (here, there))
        for _ in migrate_stores(*stores, "origin"):
            pass


def _killed(source: Path, target: Path, fatal: int | None) -> bool:
    """Return whether a migrating process was killed at a step."""
    process = forked.Process(target=_run, args=(source, target, fatal, []))
    process.start()
    process.join(60)
    process.kill()  # a fork of a busy process may hang
    process.join()
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


def test_a_migration_resumes_after_a_kill_at_many_steps(tmp_path: Path) -> None:
    """Wrong: a migration that is killed at some step loses or doubles data."""
    source, steps = _fill(tmp_path / "source.db", 5), list[str]()
    _run(source, tmp_path / "whole.db", None, steps)
    # the first commit is the lock of the migration, and the last one ends the lock
    _, noted, *_, ended, _ = (n for n, step in enumerate(steps, 1) if step == "after commit")
    # "before" one call is "after" the previous one
    for fatal in spread([n for n, step in enumerate(steps, 1) if step.startswith("before")], 15):
        target = tmp_path / f"killed-{fatal}.db"
        assert _killed(source, target, fatal), steps[fatal - 1]
        with closing(_store(target)) as store:
            assert is_unfinished(store) == (noted < fatal < ended)
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


def test_source_changes_between_killed_runs_are_migrated(source: Path, tmp_path: Path) -> None:
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


Open = Callable[[], Store]


def opened(store: Store) -> AgentMemory:
    return AgentMemory(store=store, blocks=[VectorMemory()])


def fill(store: Store) -> None:
    with opened(store) as memory:
        for name in ("a", "b", "c", "d"):
            for n in range(4):
                said = {"role": "user", "content": f"parrot {name}{n} likes mangos"}
                memory.update(name, said, user_id="ana")
        memory.flush()


def spoil_sql(path: Path) -> None:
    changes = [
        "UPDATE agent_memory_documents SET about = json_set(about, '$.cursors', '{x') "
        "WHERE collection = 'head' AND id = 'a'",
        "UPDATE agent_memory_messages SET body = 'x' WHERE seq = 2 AND session = 'b'",
        "UPDATE agent_memory_documents SET body = 'x' "
        "WHERE collection LIKE 'vector:%' AND session = 'c' AND first = 2",
    ]
    with closing(sqlite3.connect(path)) as connection:
        for change in changes:
            assert connection.execute(change).rowcount == 1
        connection.commit()


def spoil_redis(store: Store) -> None:
    kernel = cast("RedisKernel", store._kernel)
    meta, body = (KINDS.index(name) for name in ("meta", "body"))
    segments, heads = kernel.keys("segment:vector")[body], kernel.keys("head")[meta]
    head = store._server.ask("HGET", heads, "a").rpartition(b"\0")[0] + b"\0{x"
    spoilt = [(heads, "a", head), (kernel.log("b"), "2", b"{x")]
    spoilt += [(segments, field, b"x") for field in store._server.ask("HKEYS", segments)]
    for key, field, value in spoilt:
        assert store._server.ask("HSET", key, field, value) == 0


def repair(opened_store: Open, fatal: int = 0) -> int:
    """Repair all damage, but kill this process at step `fatal` of the store. Return the steps."""
    steps: list[str] = []

    def watch(step: str) -> None:
        steps.append(step)
        if len(steps) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    with closing(opened_store()) as store, opened(watched(store, watch)) as memory:
        for error in operations.damaged(memory):
            operations.repair(memory, error)
    return len(steps)


def killed(opened_store: Open, fatal: int) -> None:
    process = forked.Process(target=repair, args=(opened_store, fatal))
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)


def mended(opened_store: Open) -> Any:
    """Repair the rest, flush, and return all logs, vectors and cursors."""
    with closing(opened_store()) as store, opened(store) as memory:
        for error in operations.damaged(memory):
            operations.repair(memory, error)
        assert operations.damaged(memory) == []
        memory.flush()
        logs = {
            name: [(one.message.role, one.message.content) for one in memory.history(name)]
            for name in ("a", "b", "c", "d")
        }
        vectors = sorted(
            (one.session_id, one.first, one.text)
            for some, _ in store.all_vectors("vector")
            for one in some
        )
        cursors = [dict(memory.get(name).head.cursors) for name in logs]  # type: ignore[union-attr]
        return logs, vectors, cursors


def some(count: int) -> list[int]:
    """Return up to 12 odd steps: a kill "after" one call is a kill "before" the next."""
    return spread(range(1, count + 1, 2), 12)


def check_many_steps(damaged: Callable[[str], Open]) -> None:
    """Kill a repair at many steps, each time of new damaged data, and repair the rest."""
    expected = mended(damaged("whole"))
    assert len(expected[1]) == 16
    for fatal in some(repair(damaged("counted"))):
        here = damaged(f"killed{fatal}")
        killed(here, fatal)
        assert mended(here) == expected, fatal


def test_a_killed_repair_of_sqlite_can_be_repeated(tmp_path: Path) -> None:
    """Wrong: a killed repair loses whole records, or leaves damage that the next one misses."""
    source = tmp_path / "source.db"
    with closing(open_store(f"sqlite:///{source}")) as store:
        fill(store)
    spoil_sql(source)

    def copied(name: str) -> Open:
        file = shutil.copy(source, tmp_path / f"{name}.db")
        return lambda: open_store(f"sqlite:///{file}")

    check_many_steps(copied)


def test_a_killed_repair_of_redis_can_be_repeated(server: RedisServer) -> None:
    """Wrong: the same loss or damage, on Redis."""

    def opening(name: str) -> Open:
        return lambda: open_store(server.url, name)

    def filled(name: str) -> Open:
        with closing(opening(name)()) as store:
            fill(store)
            spoil_redis(store)
        return opening(name)

    check_many_steps(filled)
