"""A server that is killed and comes back while processes use it: nothing is lost, doubled or torn,
and the processes go on with the memory that they have open."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, Summarize, VectorMemory, operations
from agent_memory.cli.doctor import _rank
from agent_memory.errors import Damaged
from benchmarks.durability.servers import run
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import CannotStart, untested
from tests.servers.redis import RedisServer, redis_binaries
from tests.servers.sql import Served, empty_database, opened, serve

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", [PostgresServer, MariaDBServer])
def test_sql_servers(kind: type[PostgresServer | MariaDBServer]) -> None:
    """Wrong: what was acknowledged is gone, a retry is stored twice, part of a turn is stored, a
    call hangs or fails with a driver's error, or a memory has to be opened anew.
    """
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


def test_the_program_that_makes_tables_dies_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: tests fail for a crash of MariaDB's own, or one that always dies is tried for ever."""
    try:
        server = MariaDBServer()
    except CannotStart as reason:
        untested("MariaDB", reason)
    real, seen = shutil.which("mariadb-install-db"), tmp_path / "seen"
    dying = tmp_path / "mariadb-install-db"
    dying.write_text(f'#!/bin/sh\n[ -e {seen} ] && exec {real} "$@"\ntouch {seen}\nexit 1\n')
    dying.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    try:
        server.start()
        assert server.ready()
    finally:
        server.remove()
    dying.write_text("#!/bin/sh\nexit 1\n")
    server = MariaDBServer()
    with pytest.raises(CannotStart, match="mariadb-install-db"):
        server.start()
    server.remove()


def test_redis(tmp_path: Path) -> None:
    """Wrong: as above, on Redis with `appendfsync always`; or the command for all this fails."""
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


# --- damage ---------------------------------------------------------------------------------------


pytest.importorskip("pymysql")

SESSIONS = [f"s{n}" for n in range(5)]
SERVERS: dict[str, tuple[Callable[[], Any], str]] = {
    "postgres": (PostgresServer, "AGENT_MEMORY_TEST_POSTGRES"),
    "mariadb": (MariaDBServer, "AGENT_MEMORY_TEST_MYSQL"),
}
_HEAD = "WHERE collection = 'head' AND id = 's1'"
CHANGES = {
    "body": f"documents SET body = '{{broken' {_HEAD}",
    "about": f"documents SET about = '{{broken' {_HEAD}",
    **{
        f"{name} {value}": f"documents SET {column} = '{{\"{name}\":{value}}}' {_HEAD}"
        for column, name, value in [
            ("body", "summary", '{"text":5}'),
            ("body", "system", "7"),
            ("about", "cursors", '["a"]'),
            ("about", "pinned", "7"),
        ]
    },
    "message": "messages SET body = 'x' WHERE seq = 2 AND session = 's1'",
    "vector": "documents SET body = 'x' WHERE collection LIKE 'vector:%' AND session = 's1'",
    "catalog": "documents SET body = '{x' WHERE collection LIKE 'catalog:%'",
    "segment": "documents SET data = 'x' WHERE collection LIKE 'segment:%'",
}


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Served]:
    make, variable = SERVERS[request.param]
    yield from serve(make, variable)


def remembering(url: str) -> AgentMemory:
    blocks = [VectorMemory()]
    return AgentMemory(store=url, blocks=blocks, overflow=Summarize(), max_tokens=2_000)


def said(number: int | str) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": f"the parrot number {number} likes mangos"},
        {"role": "assistant", "content": f"noted about parrot {number}"},
        {"role": "user", "content": f"thanks for parrot {number}"},
    ]


def found(memory: AgentMemory) -> set[str]:
    """The sessions of which something is recalled."""
    recalls = memory.search("which parrot likes mangos", user_id="ana", limit=50)
    return {session_id for one in recalls for session_id, _ in one.sources}


@pytest.mark.parametrize("change", CHANGES)
def test_one_record_stops_nobody_and_is_put_right(server: Served, change: str) -> None:
    """Wrong: on a server what is damaged hides what is whole, or `doctor --repair` leaves it."""
    url = empty_database(server)
    others = {*SESSIONS} - {"s1"}
    with remembering(url) as memory:
        for name in SESSIONS:
            memory.update(name, said(name), user_id="ana")
        memory.flush()
    with opened(url) as database:
        spoilt = f"UPDATE agent_memory_{CHANGES[change]}"
        database.read(lambda connection: connection.define(spoilt))
    with remembering(url) as memory:
        for name in others:
            memory.update(name, said("new"))
        with suppress(Damaged):
            memory.update("s1", said("new"))
        assert {one.session_id for one in memory.flush() if one.error is None} >= others
        assert memory.stats().sessions == len(SESSIONS)
        assert found(memory) >= others
        for error in sorted(operations.damaged(memory), key=_rank):
            operations.repair(memory, error)
        memory.flush()
        assert operations.damaged(memory) == []
        assert found(memory) == {*SESSIONS}
        assert memory.get("s1", "parrot").messages
