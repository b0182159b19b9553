"""Serves one contender: requests and answers are lines of JSON on stdin and stdout.

The first line of output describes the contender. Each request names a work, which the method
`do_<work>` does. An answer has nanoseconds ("ns") and other results, or "skipped", or "error".
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter
from typing import Any, Literal, NamedTuple

from benchmarks.messages import chats, number_of, resident
from benchmarks.speed.backend import Backend, Job, Outcome

How = Literal["threads", "tasks"]
Open = Callable[[Path, int | None], Backend]
_FILL_SECONDS, _TRIAL_SECONDS = 60.0, 2.0
_GROWTH = 10  # a session may grow by a tenth before a new one takes its place


@dataclass
class About:
    """A description of a contender. With `tasks`, its async interface is measured, too."""

    version: str
    durability: str
    note: str = ""
    budgets: bool = False
    tasks: bool = False


@dataclass
class _Session:
    name: str
    size: int = 0
    fill_seconds: float = 0.0


class Place(NamedTuple):
    """The key of a backend. Works do not share backends."""

    work: str
    budget: int | None
    size: int


class Skip(Exception):  # not a failure
    """A contender skips a work. The message is the reason."""


class Server:
    """Answers requests, with a backend for each place."""

    def __init__(self, about: About, open_backend: Open, folder: Path) -> None:
        self.about = about
        self._open = open_backend
        self._folder = folder
        self._backends: dict[Place, Backend] = {}
        self._sessions: dict[Place, _Session] = {}
        self._too_slow: dict[Place, str] = {}
        self._names = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks."""
        fields = dict(request)
        work = fields.pop("work")
        try:
            found: dict[str, Any] = getattr(self, f"do_{work}")(**fields)
        except (Skip, NotImplementedError) as reason:
            return {"skipped": str(reason)}
        except Exception as error:  # noqa: BLE001 - the answer has the error; the next work may succeed
            return {"error": f"{type(error).__name__}: {error}"[:300]}
        return found

    def do_append(self, size: int, count: int, rounds: int, seconds: float) -> dict[str, Any]:
        """Append single messages to sessions that hold `size` of them."""
        taken: list[int] = []
        place = Place("append", None, size)
        most = size + max(1, size // _GROWTH)
        deadline = perf_counter() + seconds
        while len(taken) < count:
            session = self.session(place)
            room = most - session.size
            slow = session.fill_seconds > 1.0
            if slow:  # all rounds share the session; the time to fill it does not count
                deadline = perf_counter() + seconds
            share = max(1, size // _GROWTH // rounds) if slow else room
            taken += self._appends(place, session, min(share, room, count - len(taken)), deadline)
            if session.size >= most:
                del self._sessions[place]
            if slow or perf_counter() > deadline:
                break
        return {"ns": taken}

    def do_get(
        self, size: int, count: int, seconds: float, budget: int | None = None
    ) -> dict[str, Any]:
        """Fetch the context of a session that holds `size` messages, `count` times."""
        place = self._held(budget, size)
        session, backend = self.session(place), self.backend(place)
        backend.time_gets(session.name, 1, 0.0)
        taken, found = backend.time_gets(session.name, count, perf_counter() + seconds)
        if budget is None and found < size:
            return {"error": f"a get gave {found} of {session.size} messages"}
        return {"ns": taken, "messages": found}

    def do_turn(self, size: int, count: int, seconds: float) -> dict[str, Any]:
        """Fetch the context, each time after one append, which is not timed."""
        place = Place("turn", None, size)
        session, backend = self.session(place), self.backend(place)
        taken: list[int] = []
        deadline = perf_counter() + seconds
        while len(taken) < count and perf_counter() < deadline:
            self._appends(place, session, 1, 0.0)
            taken += backend.time_gets(session.name, 1, 0.0)[0]
        return {"ns": taken}

    def do_open(self, size: int, count: int, seconds: float) -> dict[str, Any]:
        """Reopen the files and fetch the context, `count` times. Only the fetch is timed."""
        place = self._held(None, size)
        session, folder = self.session(place), self.backend(place).folder
        taken: list[int] = []
        deadline = perf_counter() + seconds
        while len(taken) < count and perf_counter() < deadline:
            backend = self._open(folder, None)
            taken += backend.time_gets(session.name, 1, 0.0)[0]
            backend.close()
        return {"ns": taken}

    def do_run(self, count: int, seconds: float, budget: int | None = None) -> dict[str, Any]:
        """Append single messages to a new session."""
        self._need_budget(budget)
        session, place = _Session(self._name()), Place("run", budget, 0)
        return {"ns": self._appends(place, session, count, perf_counter() + seconds)}

    def do_crowd(
        self, sessions: int, messages: int, workers: int, how: Any, seconds: float
    ) -> dict[str, Any]:
        """Append to many sessions at the same time, in a new folder."""
        if how == "tasks" and not self.about.tasks:
            raise Skip("not run from tasks")
        backend = self._open(self._new_folder(), None)
        found = crowd(backend, sessions, messages, workers, how, seconds)
        try:
            backend.close()
        except Exception as error:  # noqa: BLE001 - counted like its other errors
            told = f"{type(error).__name__}: {error}"
            found |= {"errors": found["errors"] + 1, "error": found["error"] or told}
        return found

    def do_first(self) -> dict[str, Any]:
        """Append one message, and return the memory that the process takes."""
        self._appends(Place("first", None, 0), _Session(self._name()), 1, 0.0)
        return {"rss": resident()}

    def close(self) -> None:
        """Close all backends."""
        for backend in self._backends.values():
            backend.close()

    def session(self, place: Place) -> _Session:
        """Return the session of a place. Fill a new one if there is none."""
        if place in self._too_slow:
            raise Skip(self._too_slow[place])
        if place not in self._sessions:
            session = _Session(self._name())
            backend, began = self.backend(place), perf_counter()
            while session.size < place.size:
                count = min(backend.chunk, place.size - session.size)
                backend.fill_all(session.name, _prepared(backend, session.size, count))
                session.size += count
                taken = session.fill_seconds = perf_counter() - began
                if taken > _TRIAL_SECONDS and taken * place.size / session.size > _FILL_SECONDS:
                    self._too_slow[place] = (
                        f"filling takes over {_FILL_SECONDS:.0f} s "
                        f"({taken:.1f} s for the first {session.size:,})"
                    )
                    raise Skip(self._too_slow[place])
            self._sessions[place] = session
        return self._sessions[place]

    def backend(self, place: Place) -> Backend:
        """The backend of a place, opened at first use."""
        if place not in self._backends:
            self._backends[place] = self._open(self._new_folder(), place.budget)
        return self._backends[place]

    def _held(self, budget: int | None, size: int) -> Place:
        self._need_budget(budget)
        return Place("get", budget, size)

    def _appends(self, place: Place, session: _Session, count: int, deadline: float) -> list[int]:
        backend = self.backend(place)
        messages = _prepared(backend, session.size, count)
        taken = backend.time_appends(session.name, messages, deadline)
        session.size += len(taken)
        return taken

    def _need_budget(self, budget: int | None) -> None:
        if budget is not None and not self.about.budgets:
            raise Skip("it has no token budget")

    def _new_folder(self) -> Path:
        folder = self._folder / self._name()
        folder.mkdir()
        return folder

    def _name(self) -> str:
        self._names += 1
        return f"n{self._names}"


def crowd(
    backend: Backend, sessions: int, messages: int, workers: int, how: How, seconds: float
) -> dict[str, Any]:
    """Append to all sessions from several workers, each of which owns a share of the sessions.

    A worker appends to its sessions in turn. The result has the number of messages and the seconds,
    the numbers of lost and doubled messages, of unordered and unreadable sessions, and the errors.
    """
    shares = [
        _share(backend, range(worker, sessions, workers), messages) for worker in range(workers)
    ]
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
    }


def _in_threads(
    backend: Backend, shares: Sequence[Sequence[Job]], deadline: float
) -> list[Outcome]:
    barrier = threading.Barrier(len(shares))

    def work(jobs: Sequence[Job]) -> Outcome:
        try:
            return backend.work_in_thread(jobs, deadline, barrier.wait)
        except BaseException:
            barrier.abort()  # so that the other threads do not wait forever
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


def _prepared(backend: Backend, first: int, count: int) -> Sequence[Any]:
    return [backend.prepare(chat) for chat in chats(first, count)]


def serve(make: Callable[[Path], Server]) -> None:
    """Answer requests until the input ends. Other output of the process goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    server = make(Path(mkdtemp(dir=sys.argv[1])))
    print(json.dumps(asdict(server.about)), file=answers)
    for line in sys.stdin:
        print(json.dumps(server.answer(json.loads(line))), file=answers)
    server.close()
