"""Repairs that are killed at many steps: the next repair completes them without a loss."""

import multiprocessing
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from agent_memory import AgentMemory, VectorMemory, operations
from agent_memory.engine import leases
from agent_memory.stores import open_store
from agent_memory.stores.base import Store
from agent_memory.stores.redis.kernel import RedisKernel
from agent_memory.stores.redis.scripts import KINDS
from agent_memory.testing import watched
from tests.kit import spread
from tests.servers.redis import RedisServer
from tests.servers.redis_suite import server, start

__all__ = ["server", "start"]  # fixtures
forked = multiprocessing.get_context("fork")

Open = Callable[[], Store]


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.05)


@pytest.fixture(autouse=True)
def no_children_left() -> Iterator[None]:
    yield
    assert not multiprocessing.active_children()


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


def test_sqlite_at_many_steps(tmp_path: Path) -> None:
    """Wrong: a repair that is killed loses whole records, or leaves damage that the next one
    misses."""
    source = tmp_path / "source.db"
    with closing(open_store(f"sqlite:///{source}")) as store:
        fill(store)
    spoil_sql(source)

    def copied(name: str) -> Open:
        shutil.copy(source, tmp_path / name)
        return lambda: open_store(f"sqlite:///{tmp_path / name}")

    expected = mended(copied("whole.db"))
    assert len(expected[1]) == 16
    for fatal in some(repair(copied("counted.db"))):
        here = copied(f"killed-{fatal}.db")
        killed(here, fatal)
        assert mended(here) == expected, fatal


def test_redis_at_many_steps(server: RedisServer) -> None:
    """Wrong: the same loss or damage, on Redis."""

    def opening(name: str) -> Open:
        return lambda: open_store(server.url, name)

    def filled(name: str) -> Open:
        with closing(opening(name)()) as store:
            fill(store)
            spoil_redis(store)
        return opening(name)

    expected = mended(filled("whole"))
    assert len(expected[1]) == 16
    for fatal in some(repair(filled("counted"))):
        here = filled(f"killed{fatal}")
        killed(here, fatal)
        assert mended(here) == expected, fatal
