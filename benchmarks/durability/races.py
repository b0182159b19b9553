"""Processes and threads that all write at the same time: one session, then a hundred."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

from agent_memory.stores.base import Store
from benchmarks.durability.ledger import ERROR, Finding, compare
from benchmarks.durability.processes import Child, Hung
from benchmarks.durability.site import Mode, Site
from benchmarks.durability.verify import texts

USERS = ("race-user", "race-other")

Said = list[tuple[str, str]]
"""The messages of one writer in their order, each as its session and text."""


@dataclass(slots=True)
class Race:
    """A race: the messages of each writer, the longest update by mode, and callers' errors."""

    said: dict[str, Said]
    stalls: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def check(self, store: Store) -> list[Finding]:
        """Return messages that were lost, doubled, or out of their writer's order."""
        wanted: dict[str, dict[str, list[str]]] = {}
        for writer, said in self.said.items():
            for session_id, text in said:
                wanted.setdefault(session_id, {}).setdefault(writer, []).append(text)
        findings: list[Finding] = []
        for session_id, by_writer in wanted.items():
            log = texts(store, session_id)
            for writer, said_here in by_writer.items():
                mine = [text for text in log if text.startswith(f"{writer}.")]
                findings += compare(session_id, mine, said_here)
        return findings


def user_of(session_id: str) -> str:
    """Return the user of a race's session."""
    return USERS[len(session_id) % 2]


def plan(name: str, processes: int, threads: int, sessions: int, messages: int) -> Race:
    """Return a race in which each thread writes `messages` messages, to the sessions in turn."""
    said: dict[str, Said] = {}
    for place in range(processes * threads):
        writer = f"p{place // threads}t{place % threads}"
        numbers = [(place + n) % sessions for n in range(messages)]
        said[writer] = [
            (f"{name}-{number}", f"{writer}.{n} speaks in {name}")
            for n, number in enumerate(numbers)
        ]
    return Race(said)


def run_race(site: Site, race: Race, threads: int, advance: Callable[[], None]) -> None:
    """Run a race. Every second process absorbs in the background."""
    writers = sorted(race.said.items())
    parts = [dict(writers[n : n + threads]) for n in range(0, len(writers), threads)]
    ready = threading.Barrier(len(parts))

    def run(place: int) -> None:
        mode: Mode = "background" if place % 2 else "inline"
        child = Child(write, site, mode, parts[place])
        try:
            for message in child.messages():
                match message:
                    case ("ready",):
                        ready.wait()
                        child.go()
                    case ("said", seconds):
                        race.stalls[mode] = max(race.stalls[mode], seconds)
                        advance()
                    case ("failed", session_id, error):
                        race.findings.append(Finding(ERROR, session_id, error))
        except Hung as error:
            race.findings.append(Finding(ERROR, "", str(error)))
        if child.exit_code:
            told = f"a process ended with {child.exit_code}"
            race.findings.append(Finding(ERROR, "", told))

    with ThreadPoolExecutor(len(parts)) as pool:
        for done in [pool.submit(run, place) for place in range(len(parts))]:
            done.result()


def write(site: Site, mode: Mode, said: Mapping[str, Said], told: Connection) -> None:
    """Write the messages of one process."""
    lock = threading.Lock()

    def tell(*message: Any) -> None:
        with lock:
            told.send(message)

    def say(session_id: str, text: str) -> None:
        began = perf_counter()
        try:
            memory.update(
                session_id, {"role": "user", "content": text}, user_id=user_of(session_id)
            )
        except Exception as error:  # noqa: BLE001 - any error is a finding, which the parent notes
            tell("failed", session_id, f"update: {type(error).__name__}: {error}")
        else:
            tell("said", perf_counter() - began)

    def say_all(mine: Said) -> None:
        for session_id, text in mine:
            say(session_id, text)

    store = site.store()
    with site.memory(store, mode) as memory:
        tell("ready")
        told.recv()
        with ThreadPoolExecutor(len(said)) as pool:
            done = [pool.submit(say_all, mine) for mine in said.values()]
        for one in done:
            one.result()
    store.close()
