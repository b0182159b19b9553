"""Many sessions at once, from threads or from tasks; then everything is read back and compared."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from benchmarks.backend import Backend, Job, Outcome
from benchmarks.messages import chats, number_of

How = Literal["threads", "tasks"]
_FILES = Path("/proc/self/fd")


def crowd(
    backend: Backend, sessions: int, messages: int, workers: int, how: How, seconds: float
) -> dict[str, Any]:
    """Append to all sessions from several workers, each of which owns a share of the sessions.

    A worker takes its sessions in turn, message by message, so that all of them live at once.

    Returns:
        How many messages in how many seconds; how many of them were lost or doubled; sessions out
        of order, and sessions that could not be read back; errors; most open files.
    """
    shares = [
        _share(backend, range(worker, sessions, workers), messages) for worker in range(workers)
    ]
    with _most_files() as most:
        began = perf_counter()
        deadline = began + seconds
        if how == "tasks":
            outcomes = backend.work_in_tasks(shares, deadline)
        else:
            outcomes = _in_threads(backend, shares, deadline)
    ended = max(tally.ended for tally, _ in outcomes)
    errors = [error for tally, _ in outcomes for error in tally.errors]
    return {
        "messages": sum(len(done) for tally, _ in outcomes for done in tally.done.values()),
        "seconds": ended - began,
        **_compare(outcomes),
        "unread": sum(len(tally.done) - len(found) for tally, found in outcomes),
        "errors": len(errors),
        "error": errors[0] if errors else None,
        "files": most[0],
    }


def _in_threads(
    backend: Backend, shares: Sequence[Sequence[Job]], deadline: float
) -> list[Outcome]:
    barrier = threading.Barrier(len(shares))

    def work(jobs: Sequence[Job]) -> Outcome:
        try:
            return backend.work_in_thread(jobs, deadline, barrier.wait)
        except BaseException:
            barrier.abort()  # else the others wait for this one for ever
            raise

    with ThreadPoolExecutor(len(shares)) as pool:
        return list(pool.map(work, shares))


def _share(backend: Backend, sessions: Sequence[int], messages: int) -> list[Job]:
    numbers = range(messages)
    prepared = {
        session: [backend.prepare(chat) for chat in chats(session * messages, messages)]
        for session in sessions
    }
    return [
        Job(f"s-{session}", session * messages + number, prepared[session][number])
        for number in numbers
        for session in sessions
    ]


def _compare(outcomes: Sequence[Outcome]) -> dict[str, int]:
    lost = doubled = disordered = 0
    for tally, found in outcomes:
        for session, done in tally.done.items():
            if session not in found:
                continue
            numbers = [number_of(content) for content in found[session]]
            lost += len(set(done) - set(numbers))
            doubled += len(numbers) - len(set(numbers))
            disordered += any(a > b for a, b in pairwise(numbers))
    return {"lost": lost, "doubled": doubled, "disordered": disordered}


@contextmanager
def _most_files() -> Iterator[list[int | None]]:
    """The most files that are open meanwhile; None where the system does not tell."""
    most: list[int | None] = [None]
    if not _FILES.is_dir():
        yield most
        return
    ended = threading.Event()

    def look() -> None:
        while True:
            most[0] = max(most[0] or 0, len(os.listdir(_FILES)))
            if ended.wait(0.1):
                return

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()
