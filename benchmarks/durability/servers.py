"""A server that is killed and comes back, under load.

    python -m benchmarks durability servers --store redis://127.0.0.1:7000/0 \
        --start "redis-server --port 7000 --dir data --appendonly yes --appendfsync always"

Processes write whole turns to the same sessions, read them, and delete other sessions. Meanwhile
the server is killed (SIGKILL) and started again. The processes retry failed writes by keys and ids,
and never reopen their memory. Then the stored data is compared with the acknowledged calls.
"""

import shlex
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from secrets import token_hex
from time import monotonic, sleep
from typing import Annotated

import typer

from agent_memory.errors import StoreUnavailable
from agent_memory.stores import open_store
from agent_memory.stores.base import Store
from agent_memory.testing import FakeLLM
from benchmarks.durability.child import finish
from benchmarks.durability.ledger import ERROR, REVIVED, Finding, compare
from benchmarks.durability.processes import Child, Hung
from benchmarks.durability.server_child import PARTS, USER, Task, live
from benchmarks.durability.site import Site, finder
from benchmarks.durability.verify import texts, verify

TORN = "torn"
SESSIONS = ("shared-1", "shared-2", "shared-3")
_START_SECONDS = 60.0
_MOST_BETWEEN = 10
"""Turns of each process between two kills."""


@dataclass(slots=True)
class Report:
    """Results of a run.

    `refused` counts errors by their text. `slowest` has the most seconds of a call, by kind.
    """

    namespace: str
    kills: int = 0
    messages: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


class _Watch:
    """Collect the reports of the processes."""

    def __init__(self, report: Report, children: list[Child]) -> None:
        self._report = report
        self._children = children
        self._changed = threading.Condition()
        self.said: dict[str, dict[str, list[str]]] = {name: {} for name in SESSIONS}
        self.seen: list[Counter[str]] = [Counter() for _ in children]

    def hear(self, place: int) -> None:
        """Read the reports of one process to its end."""
        child = self._children[place]
        try:
            for message in child.messages():
                with self._changed:
                    self._note(place, message)
                    self._changed.notify_all()
        except Hung as error:
            self._report.findings.append(Finding(ERROR, "", str(error)))
        with self._changed:
            if child.exit_code:
                told = f"a process ended with {child.exit_code}"
                self._report.findings.append(Finding(ERROR, "", told))
            self.seen[place]["ended"] += 1
            self._changed.notify_all()

    def wait(self, what: str, more: int = 0) -> None:
        """Wait until each running process has reported `what`, or has done so `more` more times."""
        with self._changed:
            wanted = [max(1, more and seen[what] + more) for seen in self.seen]
            self._changed.wait_for(
                lambda: all(
                    seen[what] >= least or seen["ended"]
                    for seen, least in zip(self.seen, wanted, strict=True)
                )
            )

    def _note(self, place: int, message: tuple[object, ...]) -> None:
        report, seen = self._report, self.seen[place]
        match message:
            case ("done", str(what), float(seconds), *about):
                report.slowest[what] = max(report.slowest.get(what, 0.0), seconds)
                if about:
                    session_id, name = map(str, about)
                    writer = name.partition(".")[0]
                    said = self.said[session_id].setdefault(writer, [])
                    said += [f"{name} {part}" for part in PARTS]
                    seen["turns"] += 1
            case ("refused", str(what), str(told), float(seconds)):
                report.slowest[what] = max(report.slowest.get(what, 0.0), seconds)
                report.refused[told] += 1
                seen["refused"] += 1
            case ("failed", str(what), str(error)):
                report.findings.append(Finding(ERROR, "", f"{what}: {error}"))
            case ("written",):
                seen["written"] += 1


def run(
    url: str,
    kill: Callable[[], object],
    start: Callable[[], object],
    *,
    kills: int,
    processes: int = 2,
    writers: int = 2,
    seed: int = 0,
    advance: Callable[[], object] = lambda: None,
) -> Report:
    """Kill and restart a server, then check the store. Empty the namespace if nothing is wrong.

    Each process has `writers` threads that write. Every second process absorbs in the background.
    """
    report, random = Report(f"durability-{token_hex(4)}"), Random(seed)
    with FakeLLM(finder()) as model:
        site = Site(url, report.namespace, model.api_base)
        tasks = [
            Task(f"p{place}", SESSIONS, writers, "inline" if place % 2 else "background")
            for place in range(processes)
        ]
        children = [Child(live, site, task) for task in tasks]
        watch = _Watch(report, children)
        with ThreadPoolExecutor(processes) as pool:
            heard = [pool.submit(watch.hear, place) for place in range(processes)]
            watch.wait("turns", 1)
            for _ in range(kills):
                watch.wait("turns", random.randint(1, _MOST_BETWEEN))
                sleep(random.uniform(0, 0.05))
                kill()
                watch.wait("refused", 1)
                start()
                report.kills += 1
                advance()
            watch.wait("turns", 2)  # the first may have been stored before the kill
            for what in ("written", "ended"):
                for child, seen in zip(children, watch.seen, strict=True):
                    if not seen["ended"]:
                        child.go()
                watch.wait(what)
            for one in heard:
                one.result()
        last = Child(finish, site)
        report.findings += last.messages()
        if last.exit_code:
            report.findings.append(Finding(ERROR, "", f"the last ended with {last.exit_code}"))
        store = site.store()
        try:
            _look(store, report, watch, tasks)
            if not report.findings:
                _clean(site, store)
        finally:
            store.close()
    return report


def _look(store: Store, report: Report, watch: _Watch, tasks: list[Task]) -> None:
    """Compare the store with the acknowledged messages."""
    report.findings += verify(store, {f"user:{USER}", *(f"session:{one}" for one in SESSIONS)})
    for session_id, by_writer in watch.said.items():
        log = texts(store, session_id)
        for writer, said in by_writer.items():
            report.messages += len(said)
            mine = [text for text in log if text.startswith(f"{writer}.")]
            report.findings += compare(session_id, mine, said)
        writers = {text.partition(".")[0] for text in log}
        report.findings += [
            Finding(REVIVED, session_id, writer) for writer in writers.difference(by_writer)
        ]
        for first in range(0, len(log), len(PARTS)):
            name = log[first].partition(" ")[0]
            if log[first : first + len(PARTS)] != [f"{name} {part}" for part in PARTS]:
                report.findings.append(Finding(TORN, session_id, log[first]))
    for task in tasks:
        if texts(store, task.gone):
            report.findings.append(Finding(REVIVED, task.gone, "deleted at the end"))


def _clean(site: Site, store: Store) -> None:
    with site.memory(store) as memory:
        for session_id in SESSIONS:
            memory.delete(session_id)


class Command:
    """A server that a command starts in the foreground; `url` shows whether it answers."""

    def __init__(self, words: str, url: str) -> None:
        self._words, self._url = shlex.split(words), url
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers. Start it again if it ends immediately."""
        deadline = monotonic() + _START_SECONDS
        while True:
            if self._process is None or self._process.poll() is not None:
                quiet = subprocess.DEVNULL
                self._process = subprocess.Popen(self._words, stdout=quiet, stderr=quiet)
            try:
                open_store(self._url).close()
                return
            except StoreUnavailable:
                if monotonic() > deadline:
                    self.kill()
                    raise
                sleep(0.1)

    def kill(self) -> None:
        """Kill it, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def main(
    store: Annotated[str, typer.Option(metavar="URL", help="The store on that server.")],
    start: Annotated[
        str, typer.Option(metavar="COMMAND", help="Starts the server, in the foreground.")
    ],
    kills: Annotated[int, typer.Option(min=1, help="How often to kill it.")] = 20,
    processes: Annotated[int, typer.Option(min=1, help="Processes that use it.")] = 4,
    writers: Annotated[int, typer.Option(min=1, help="Threads of each that write.")] = 2,
    seed: Annotated[int, typer.Option(help="Another seed is another run.")] = 0,
) -> None:
    """Kill a server repeatedly while processes use it, and verify what is stored."""
    began, server = monotonic(), Command(start, store)
    server.start()
    try:
        report = run(
            store, server.kill, server.start,
            kills=kills, processes=processes, writers=writers, seed=seed,
        )  # fmt: skip
    finally:
        server.kill()
    print(f"{report.kills:,} kills, {report.messages:,} messages, {monotonic() - began:.0f} s")
    slowest = ", ".join(f"{call} {most:.2f} s" for call, most in report.slowest.items())
    print(f"slowest calls: {slowest}")
    print(f"refused {report.refused.total():,} times:")
    for words, count in report.refused.most_common(12):
        print(f"  {count:,} x {words}")
    for one in report.findings[:25]:
        print(f"{one.kind}: {one.session_id}: {one.detail}")
    if report.findings:
        print(
            f"{len(report.findings)} things are wrong. Not deleted: namespace {report.namespace}."
        )
        raise typer.Exit(1)
    print("good: none lost, none doubled, none torn, in order")
