"""Retry, cut, kill, verify: `python -m benchmarks.torture_once --store redis://127.0.0.1:6379/0`.

Processes write to the same sessions and make each write up to six times, by a key or by messages
with ids, while their connections are cut and they are killed. Each message must stand in its log
once, and each process's in the order of its writes. A store may hold other data: the run keeps to a
namespace of its own, and removes it if nothing was found.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from secrets import token_hex
from tempfile import TemporaryDirectory
from threading import Thread
from time import monotonic
from typing import Annotated, Any, TypeVar

import typer

from agent_memory import AgentMemory, Trim
from agent_memory.errors import StoreError
from benchmarks.cut_line import CutLine
from benchmarks.torture_processes import Child

T = TypeVar("T")

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Work:
    """What one process is to do.

    Attributes:
        url: The store.
        namespace: Where in it.
        name: Begins its messages.
        first: The number of its first write.
        last: The number after its last.
        sessions: How many sessions there are.
        odds: How likely a connection is cut.
        seed: Decides how often each write is made.
    """

    url: str
    namespace: str
    name: str
    first: int
    last: int
    sessions: int
    odds: float
    seed: str

    def texts(self, number: int) -> list[str]:
        """What a write says: each third one says three things."""
        said = f"{self.name} {number}"
        return [said] if number % 3 else [f"{said} {part}" for part in range(3)]

    def session(self, number: int) -> str:
        """Where it says it."""
        return f"s{number % self.sessions}"


def opened(url: str, namespace: str) -> AgentMemory:
    """A memory that makes room often, and keeps nothing but logs."""
    settings: dict[str, Any] = {"overflow": Trim(), "max_tokens": 200, "blocks": []}
    return AgentMemory(store=url, namespace=namespace, tokenizer="approximate", **settings)


def write(work: Work, pipe: Connection) -> None:
    """Make each write up to six times, and tell of it once it was heard as often."""
    logging.disable(logging.ERROR)  # calls fail on purpose
    random = Random(work.seed)
    line = CutLine(work.url, work.odds, work.seed) if _is_far(work.url) and work.odds else None
    memory = _heard(lambda: opened(line.url if line else work.url, work.namespace))
    for number in range(work.first, work.last):
        given, terms = _write(work, number)
        for _ in range(1 + random.randint(0, _TRIES)):
            _heard(lambda: memory.update(work.session(number), given, **terms))  # noqa: B023
        pipe.send((number, line.cuts if line else 0))
    pipe.close()


def _write(work: Work, number: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    texts = work.texts(number)
    said: list[dict[str, Any]] = [{"role": "user", "content": text} for text in texts]
    if number % 2:
        return said, {"key": f"{work.name} {number}"}
    return [{**one, "id": one["content"]} for one in said], {}


def _heard(call: Callable[[], T]) -> T:
    while True:
        try:
            return call()
        except StoreError:
            continue


def _is_far(url: str) -> bool:
    return not url.startswith("sqlite:")


class _Writer(Thread):
    """Has the writes of one name made, by one process after another."""

    def __init__(self, work: Work, kills: int) -> None:
        super().__init__()
        self.work = work
        self._kills = kills
        self._random = Random(work.seed)
        self.cuts = 0
        self.killed = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            begin, left = 0, self._kills
            while begin < self.work.last:
                begin = self._go(begin, left)
                left -= 1
        except BaseException as error:  # noqa: BLE001 - told by the run
            self.failed = error

    def _go(self, begin: int, left: int) -> int:
        """Run a process; the number to go on with: what it told last is written once more."""
        work = self.work
        seed = str(self._random.random())
        child = Child(write, Work(work.url, work.namespace, work.name, begin, work.last,
                                  work.sessions, work.odds, seed))  # fmt: skip
        most = (work.last - begin) // max(left, 1)
        kill = (self._random.randint(0, most), self._random.uniform(0, 0.05)) if left > 0 else None
        told = list(child.messages(kill))
        if told:
            begin, cuts = told[-1]
            self.cuts += cuts
        if child.exit_code == 0:
            return work.last
        if child.exit_code and child.exit_code > 0:
            raise StoreError(f"Process {work.name} ended with {child.exit_code}.")
        self.killed += 1
        return begin


def wrong(memory: AgentMemory, works: list[Work]) -> Iterator[str]:
    """What is wrong with the logs."""
    sessions = {work.session(number) for work in works for number in range(work.last)}
    for session_id in sorted(sessions):
        log = memory.history(session_id)
        if [entry.seq for entry in log] != list(range(1, len(log) + 1)):
            yield f"{session_id}: seqs are not consecutive"
        texts = [entry.message.text() for entry in log]
        for work in works:
            numbers = [n for n in range(work.last) if work.session(n) == session_id]
            said = [text for number in numbers for text in work.texts(number)]
            found = [text for text in texts if text.split()[0] == work.name]
            if found == said:
                continue
            counts = Counter(found)
            yield from (f"{session_id}: lost: {text}" for text in said if not counts[text])
            yield from (f"{session_id}: doubled: {text}" for text in counts if counts[text] > 1)
            if len(found) == len(said):
                yield f"{session_id}: {work.name} is out of order"


def main(
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="The store; by default a temporary file.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 8,
    writes: Annotated[int, typer.Option(min=1, help="Writes of each.")] = 200,
    kills: Annotated[int, typer.Option(min=0, help="Kills of each.")] = 10,
    sessions: Annotated[int, typer.Option(min=1, help="Sessions that all write to.")] = 3,
    odds: Annotated[
        float, typer.Option(help="How likely each message cuts its connection.")
    ] = 0.02,
    seed: Annotated[int, typer.Option(help="Another seed is another run.")] = 0,
) -> None:
    """Retry each write, cut connections, kill processes, and look at what is stored."""
    began, namespace = monotonic(), f"torture-{token_hex(4)}"
    with TemporaryDirectory(prefix="torture-") as folder:
        url = store or f"sqlite:///{Path(folder) / 'memory.db'}"
        writers = [
            _Writer(Work(url, namespace, f"w{n}", 0, writes, sessions, odds, f"{seed} {n}"), kills)
            for n in range(processes)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        found = [f"{one.work.name}: {one.failed}" for one in writers if one.failed]
        with opened(url, namespace) as memory:
            found += wrong(memory, [writer.work for writer in writers])
            entries = memory.stats().entries
            if not found:
                for head in memory.sessions(limit=sessions):
                    memory.delete(head.session_id)
    typer.echo(
        f"{entries:,} messages, {sum(one.killed for one in writers):,} kills, "
        f"{sum(one.cuts for one in writers):,} cuts, {monotonic() - began:.0f} s"
    )
    for told in found[:25]:
        typer.echo(told)
    if found:
        typer.echo(f"{len(found)} things are wrong. Kept for a look: {url}, {namespace}.")
        raise typer.Exit(1)
    typer.echo("good: none lost, none doubled, in order")


if __name__ == "__main__":
    typer.run(main)
