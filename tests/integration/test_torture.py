"""Processes and servers that are killed while many write: nothing is lost or doubled."""

import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from agent_memory import AgentMemory
from agent_memory.core.records import Head, Record
from agent_memory.core.system_collections import DELETED
from agent_memory.engine.system_records import Kind, SystemRecords
from agent_memory.retrieval.features import Features
from agent_memory.stores.base import Store
from agent_memory.testing import FakeLLM
from agent_memory.testing.contract import stored
from benchmarks.durability.ledger import Ledger, Op
from benchmarks.durability.servers import run
from benchmarks.durability.site import FACTS, VECTORS, Site, finder
from benchmarks.durability.verify import catch_up, verify
from tests.kit import mark_deleting
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import CannotStart, untested
from tests.servers.redis import RedisServer, redis_binaries

ROOT = Path(__file__).parents[2]
OWNERS = {"user:u", "user:v", "session:s", "session:t"}


@pytest.mark.timeout(300)
def test_killed_writers_neither_lose_nor_duplicate_data(tmp_path: Path) -> None:
    """Wrong: `kill -9` or concurrent writers lose or duplicate a message or a record."""
    path = tmp_path / "memory.db"
    command = [sys.executable, "-m", "benchmarks", "durability", "--store", f"sqlite:///{path}"]
    command += ["--kills", "10", "--processes", "3", "--threads", "2", "--messages", "6"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with closing(sqlite3.connect(path)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        left = {name: database.execute(f"SELECT * FROM {name}").fetchall() for (name,) in tables}
    # the lock of a killed worker stays, as a digest
    passed = {f"fact:{DELETED.name}", "lock"}
    documents = left["agent_memory_documents"]
    left["agent_memory_documents"] = [row for row in documents if row[1] not in passed]
    assert [name for name, rows in left.items() if rows] == ["agent_memory_meta"]


@dataclass(frozen=True)
class Place:
    """A memory that has caught up, and its place."""

    path: Path
    memory: AgentMemory
    store: Store

    def look(self) -> set[str]:
        return {finding.kind for finding in verify(self.store, OWNERS)}

    def head(self) -> Head:
        return stored(self.store)

    def fact(self, **changes: object) -> Record:
        claims = [one for one in self.store.records(FACTS, "user:u") if one.sources]
        return replace(claims[3], **changes)

    def put(self, block: str, **changes: object) -> None:
        record = self.fact(id="planted", **changes)
        if block == FACTS:
            self.store.put_records(FACTS, [record])
        else:
            features = Features.of_vectors(np.eye(384, dtype=np.float32)[:1])
            self.store.put_vectors(VECTORS, [record], features)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    path = tmp_path / "memory.db"
    with FakeLLM(finder()) as model:
        site = Site(f"sqlite:///{path}", "n", model.api_base)
        store = site.store()
        with site.memory(store) as memory:
            memory.update("s", {"role": "system", "content": "Be brief."}, user_id="u")
            for n in range(1, 9):
                memory.update("s", {"role": "user", "content": f"message {n}"})
            memory.update("t", {"role": "user", "content": "alone"})
            assert catch_up(memory) == []
            yield Place(path, memory, store)
        store.close()


def _lose(place: Place) -> None:
    with closing(sqlite3.connect(place.path, isolation_level=None)) as database:
        database.execute("DELETE FROM agent_memory_messages WHERE seq = 4")


PLANTED: dict[str, tuple[Callable[[Place], object], set[str]]] = {
    "nothing": (lambda it: None, set()),
    "an entry deleted": (_lose, {"lost", "reordered", "orphaned"}),
    "a vector doubled": (lambda it: it.put(VECTORS), {"vector doubled"}),
    "a fact doubled": (lambda it: it.put(FACTS), {"extractive doubled"}),
    "a vector of a session that is gone": (
        lambda it: it.put(VECTORS, session_id="gone"), {"orphaned"}),
    "a fact of a message that is gone": (lambda it: it.put(FACTS, first=99), {"orphaned"}),
    "a fact of another message": (lambda it: it.put(FACTS, first=2), {"orphaned"}),
    "a fact of a system message": (
        lambda it: it.put(FACTS, first=1, text="Be brief."), {"orphaned"}),
    "a record of another user": (
        lambda it: it.put(FACTS, owner="user:v"), {"foreign", "extractive doubled"}),
    "vectors lost": (
        lambda it: it.store.delete_vectors(VECTORS, session_id="s", after=8), {"vector missing"}),
    "a fact lost": (
        lambda it: it.store.delete_records(FACTS, record_id=it.fact().id), {"extractive missing"}),
    "a cursor behind": (
        lambda it: it.store.move(replace(it.head(), cursors={VECTORS: 9, FACTS: 5})), {"behind"}),
    "a message not absorbed": (
        lambda it: it.memory.update("s", "newest"),
        {"behind", "vector missing", "extractive missing"}),
    "a lease left": (lambda it: it.store.lease("s", "w", 60), {"leased"}),
    "a deletion begun": (lambda it: mark_deleting(it.store), {"unfinished", "due"}),
    "a user's deletion begun": (
        lambda it: SystemRecords(it.store).write(Kind.USER_DELETIONS, "u"), {"unfinished"}),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_the_verifier_detects_planted_faults(place: Place, fault: str) -> None:
    """Wrong: a torture run reports success although data is lost or duplicated."""
    plant, expected = PLANTED[fault]
    plant(place)
    assert place.look() == expected


def _acknowledge(ledger: Ledger, op: Op, result: object) -> None:
    ledger.begin(op)
    ledger.done(op, result)


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger({"s": "u"})
    _acknowledge(ledger, Op("update", "s", ("a", "b", "c")), 3)
    assert ledger.findings == []
    return ledger


def test_the_verifier_tracks_unacknowledged_messages(ledger: Ledger) -> None:
    """Wrong: the verifier counts an unacknowledged message as lost, or ignores a lost one."""
    _acknowledge(ledger, Op("update", "shared", ("x",)), 7)
    ledger.begin(Op("update", "shared", ("y",)))
    said = ledger.shared["shared"]
    assert (said.begun, said.unsure) == (["x", "y"], {"y"})


@pytest.mark.parametrize("kind", [PostgresServer, MariaDBServer])
def test_a_killed_sql_server_loses_no_messages(kind: type[PostgresServer | MariaDBServer]) -> None:
    """Wrong: an acknowledged message is lost, a retry is stored twice, a turn is stored in part, or
    a call hangs or raises a driver's error."""
    pytest.importorskip("psycopg" if kind is PostgresServer else "pymysql")
    try:
        server = kind()
        server.start()
    except CannotStart as reason:
        untested(kind.__name__, reason)
    try:
        report = run(server.url, server.kill, server.start, kills=2)
    finally:
        server.remove()
    assert report.findings == []
    assert report.kills == 2
    for told in report.refused:
        assert re.match(r"The (PostgreSQL|MySQL) server .*\.$", told), told


def test_a_killed_redis_server_loses_no_acknowledged_message(tmp_path: Path) -> None:
    """Wrong: the same on Redis with `appendfsync always`, or the benchmark's command fails."""
    try:
        binary = next(iter(redis_binaries().values()))
    except CannotStart as reason:
        untested("Redis", reason)
    server = RedisServer(tmp_path, binary, ("--appendfsync", "always"))
    command = [sys.executable, "-m", "benchmarks", "durability", "servers", "--store", server.url]
    command += ["--start", shlex.join(server.command()), "--kills", "2", "--processes", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 kills" in done.stdout
    assert "good: none lost" in done.stdout
