"""Stores side by side: `python -m benchmarks speed stores URL URL ...`.

It writes to a new namespace, and deletes the data afterwards. The stores take turns in each round,
and the table shows medians. The raw insert into SQLite serves to compare machines.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated
from uuid import uuid4

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from agent_memory import AgentMemory, FlushToLTM, VectorMemory
from benchmarks.messages import chats

_HELD = 1_000
_APPENDS = 200


def main(
    urls: Annotated[list[str], typer.Argument(metavar="URL...")],
    rounds: Annotated[int, typer.Option(min=1)] = 5,
) -> None:
    """Measure and print a table, in microseconds."""
    found: dict[str, dict[str, list[float]]] = {}
    with TemporaryDirectory() as folder:
        for number in track(range(rounds), description="rounds"):
            found.setdefault("raw sqlite3 insert", {})
            _add(found["raw sqlite3 insert"], _floor(Path(folder, f"{number}.db")))
            for url in urls:
                _add(found.setdefault(url.partition("://")[0], {}), _store(url))
    works = list(dict.fromkeys(work for taken in found.values() for work in taken))
    table = Table("µs", *works)
    for name, taken in found.items():
        table.add_row(name, *(f"{median(taken[w]):,.0f}" if w in taken else "" for w in works))
    Console().print(table)


def _add(to: dict[str, list[float]], figures: Iterator[tuple[str, float]]) -> None:
    for work, value in figures:
        to.setdefault(work, []).append(value)


def _floor(path: Path) -> Iterator[tuple[str, float]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("PRAGMA synchronous=FULL")
        columns = "session TEXT, seq INTEGER, message TEXT, PRIMARY KEY (session, seq)"
        raw.execute(f"CREATE TABLE log ({columns})")
        text = str(chats(0, 1)[0])
        taken = _timed(lambda n: raw.execute("INSERT INTO log VALUES ('s', ?, ?)", (n, text)))
        yield "append", median(taken)


def _store(url: str) -> Iterator[tuple[str, float]]:
    said = chats(0, _HELD + 2 * _APPENDS)
    namespace = f"bench-{uuid4().hex}"

    def opened() -> AgentMemory:
        return AgentMemory(store=url, namespace=namespace, max_tokens=10**9)

    try:
        with opened() as memory:
            memory.update("s", said[:_HELD], user_id="u")
            taken = _timed(lambda n: memory.update("s", said[_HELD + n]))
            yield "append", median(taken)
            yield "append, p99", quantiles(taken, n=100)[98]
            yield "get, nothing new", median(_timed(lambda n: memory.get("s")))
        with opened() as memory:
            begun = perf_counter()
            memory.get("s")
            yield "first get of 1,200", (perf_counter() - begun) * 1e6
        blocks = FlushToLTM(blocks=[VectorMemory()])
        with AgentMemory(
            store=url, namespace=namespace, max_tokens=10**9, overflow=blocks
        ) as memory:
            memory.search("warm", user_id="u")
            begun = perf_counter()
            memory.flush("s")
            took = (perf_counter() - begun) / (_HELD + _APPENDS)
            yield "absorb, a message", took * 1e6
            memory.search("place", user_id="u")
            searches = _timed(lambda n: memory.search(f"place {n}", user_id="u"), 30)
            yield "search of 1,200", median(searches)
    finally:
        with opened() as memory:
            memory.delete_user("u")


def _timed(work: Callable[[int], object], count: int = _APPENDS) -> list[float]:
    taken = []
    for number in range(count):
        begun = perf_counter()
        work(number)
        taken.append((perf_counter() - begun) * 1e6)
    return taken
