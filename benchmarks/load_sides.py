"""What a load is put on: the service, an empty route of FastAPI, and inserts without a server."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter, sleep
from urllib.parse import urlsplit
from uuid import uuid4

from agent_memory import AgentMemory
from agent_memory.server.keys import KeyRing

_COMMAND = [sys.executable, "-c", "from agent_memory.cli.entry import main; main()"]
_START_SECONDS = 60.0
_TABLE = "CREATE TABLE raw (session TEXT, seq BIGINT, message TEXT, PRIMARY KEY (session, seq))"


@dataclass(frozen=True, slots=True)
class Side:
    """Processes that serve the same.

    Attributes:
        name: Which side it is.
        ports: Where they listen.
        processes: They.
        key: The credential that they ask for.
    """

    name: str
    ports: list[int]
    processes: list[subprocess.Popen[str]]
    key: str = "none"

    def rss(self) -> float:
        """What they hold, in MB."""
        return sum(_resident(one.pid) for one in self.processes)

    def cpu(self) -> float:
        """Seconds of CPU that they have used so far."""
        ticks = os.sysconf("SC_CLK_TCK")
        return sum(_ticks(one.pid) for one in self.processes) / ticks


@contextmanager
def service(url: str, processes: int, users: int) -> Iterator[Side]:
    """`agent-memory serve` over a store, at its defaults, but without a limit of requests."""
    with AgentMemory(store=url) as memory:
        ring = KeyRing(memory.components.store)
        key, _ = ring.create("load", ["*"], ["read", "write"])
    command = [*_COMMAND, "serve", "--port", "0", "--rate", "0", "--store", url]
    with _started("agent-memory", [command] * processes) as started:
        ports = []
        for one in started:
            assert one.stdout is not None
            found = re.search(r":(\d+)/v1", one.stdout.readline())
            assert found is not None, "it did not start"
            ports.append(int(found[1]))
        yield Side("agent-memory", ports, started, key)


@contextmanager
def empty(processes: int, more: list[str]) -> Iterator[Side]:
    """An empty route, behind uvicorn without a log of its requests.

    Args:
        processes: How many.
        more: More options of uvicorn.
    """
    ports = [_free_port() for _ in range(processes)]
    command = [sys.executable, "-m", "uvicorn", "benchmarks.load_empty:app", "--no-access-log"]
    commands = [[*command, "--log-level", "error", "--port", str(port), *more] for port in ports]
    with _started("empty", commands) as started:
        for port in ports:
            _await(port)
        yield Side("empty FastAPI", ports, started)


@contextmanager
def database(url: str) -> Iterator[str]:
    """A database of its own beside a given one of PostgreSQL, until the end."""
    import psycopg

    name = f"load_{uuid4().hex[:8]}"
    with closing(psycopg.connect(url, autocommit=True)) as server:
        server.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def raw(url: str, folder: Path) -> Iterator[Callable[[float], float]]:
    """Inserts on one connection, a row a commit, the text ready and the number known.

    Yields:
        Inserts for so many seconds, and tells how many a second they were.
    """
    text, numbers = "x" * 400, count()
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(folder / "raw.db", isolation_level=None)) as file:
            file.execute("PRAGMA journal_mode=WAL")
            file.execute("PRAGMA synchronous=FULL")
            file.execute(_TABLE)
            into = "INSERT INTO raw VALUES (?, ?, ?)"
            yield lambda seconds: _rate(
                lambda: file.execute(into, ("s", next(numbers), text)), seconds
            )
        return
    import psycopg

    with closing(psycopg.connect(url, autocommit=True)) as server:
        server.execute(_TABLE.encode())
        put = b"INSERT INTO raw VALUES (%s, %s, %s)"
        yield lambda seconds: _rate(
            lambda: server.execute(put, ("s", next(numbers), text)), seconds
        )


def _rate(insert: Callable[[], object], seconds: float) -> float:
    begun, done = perf_counter(), 0
    while perf_counter() - begun < seconds:
        insert()
        done += 1
    return done / (perf_counter() - begun)


@contextmanager
def _started(name: str, commands: list[list[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    quiet = subprocess.DEVNULL
    started = [
        subprocess.Popen(one, stdout=subprocess.PIPE, stderr=quiet, text=True) for one in commands
    ]
    try:
        yield started
    finally:
        for one in started:
            one.terminate()
        for one in started:
            one.wait()


def _await(port: int) -> None:
    deadline = perf_counter() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if perf_counter() > deadline:
                raise
            sleep(0.1)
        else:
            return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _ticks(pid: int) -> int:
    after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(after[11]) + int(after[12])
