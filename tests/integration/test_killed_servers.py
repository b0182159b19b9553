"""A server that is killed and comes back while processes use it: nothing is lost, doubled or torn,
and the processes go on with the memory that they have open."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.durability.servers import run
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import CannotStart, untested
from tests.servers.redis import RedisServer, redis_binaries

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
