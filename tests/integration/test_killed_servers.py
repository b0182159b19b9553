"""A database server that is killed and restarted while processes use it."""

import re
import shlex
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


def test_redis(tmp_path: Path) -> None:
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
