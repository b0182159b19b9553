"""The interface of a contender's memory, and the loops that time it. Needs only Python.

A backend has plain methods (`SyncBackend`) or coroutines (`AsyncBackend`). All backends are timed
by the same loops.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any, NamedTuple

from benchmarks.messages import Chat


class Job(NamedTuple):
    """One message to append: its session, its number in the session, and the prepared message."""

    session: str
    number: int
    message: Any


@dataclass
class Tally:
    """Results of a worker: acknowledged numbers by session, errors, and the time of its end."""

    done: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    ended: float = 0.0


Outcome = tuple[Tally, dict[str, list[str]]]
"""A worker's tally, and the contents of its sessions, without the unreadable ones."""


class Backend(ABC):
    """A memory, opened in a folder of its own.

    `budget` is the token budget of a context; None for a budget that no context reaches.
    """

    chunk = 500  # messages that `fill` gets at a time

    def __init__(self, folder: Path, budget: int | None) -> None:
        self.folder = folder
        self.budget = budget

    def prepare(self, message: Chat) -> Any:
        """Return the message in the contender's format. This is not timed."""
        return message

    @abstractmethod
    def fill_all(self, session: str, messages: Sequence[Any]) -> None:
        """Append messages as fast as possible. This is not timed."""

    @abstractmethod
    def time_appends(self, session: str, messages: Sequence[Any], deadline: float) -> list[int]:
        """Return the nanoseconds of each append. Stop at the deadline."""

    @abstractmethod
    def time_gets(self, session: str, count: int, deadline: float) -> tuple[list[int], int]:
        """Return the nanoseconds of each get, and the number of messages of the last get."""

    @abstractmethod
    def work_in_thread(
        self, jobs: Sequence[Job], deadline: float, wait: Callable[[], Any]
    ) -> Outcome:
        """Do jobs in the calling thread, wait for the other threads, and read the sessions."""

    def work_in_tasks(self, shares: Sequence[Sequence[Job]], deadline: float) -> list[Outcome]:
        """Do shares of jobs, one asyncio task for each share, and read the sessions."""
        raise NotImplementedError("not run from tasks")

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close files and connections."""


class SyncBackend(Backend):
    """A backend with plain methods."""

    @abstractmethod
    def fill(self, session: str, messages: Sequence[Any]) -> None:
        """Append messages as fast as it goes."""

    @abstractmethod
    def append(self, session: str, message: Any) -> None:
        """Append one message."""

    @abstractmethod
    def get(self, session: str) -> int:
        """Fetch the context, and tell how many messages it holds."""

    @abstractmethod
    def read(self, session: str) -> list[str]:
        """The contents of all that is stored, oldest first."""

    def fill_all(self, session: str, messages: Sequence[Any]) -> None:
        self.fill(session, messages)

    def time_appends(self, session: str, messages: Sequence[Any], deadline: float) -> list[int]:
        return self._timed((partial(self.append, session, one) for one in messages), deadline)[0]

    def time_gets(self, session: str, count: int, deadline: float) -> tuple[list[int], int]:
        return self._timed(repeat(partial(self.get, session), count), deadline)

    def work_in_thread(
        self, jobs: Sequence[Job], deadline: float, wait: Callable[[], Any]
    ) -> Outcome:
        tally = Tally()
        for session, number, message in jobs:
            try:
                self.append(session, message)
            except Exception as error:  # noqa: BLE001 - whatever a contender raises is counted
                tally.errors.append(f"{type(error).__name__}: {error}")
            else:
                tally.done[session].append(number)
            if perf_counter() > deadline:
                break
        tally.ended = perf_counter()
        wait()
        return tally, self.read_back(tally)

    def _timed(self, calls: Iterable[Callable[[], Any]], deadline: float) -> tuple[list[int], Any]:
        taken, found = [], None
        for call in calls:
            began = perf_counter_ns()
            found = call()
            taken.append(perf_counter_ns() - began)
            if perf_counter() > deadline:
                break
        return taken, found

    def read_back(self, tally: Tally) -> dict[str, list[str]]:
        """The contents of a worker's sessions."""
        found = {}
        for session in tally.done:
            try:
                found[session] = self.read(session)
            except Exception as error:  # noqa: BLE001 - whatever a contender raises is counted
                tally.errors.append(f"{type(error).__name__}: {error}")
        return found


class AsyncBackend(Backend):
    """A backend with coroutines. They share an event loop, which does not end between calls."""

    def __init__(self, folder: Path, budget: int | None) -> None:
        super().__init__(folder, budget)
        self.runner = asyncio.Runner()

    @abstractmethod
    async def fill(self, session: str, messages: Sequence[Any]) -> None:
        """Append messages as fast as it goes."""

    @abstractmethod
    async def append(self, session: str, message: Any) -> None:
        """Append one message."""

    @abstractmethod
    async def get(self, session: str) -> int:
        """Fetch the context, and tell how many messages it holds."""

    @abstractmethod
    async def read(self, session: str) -> list[str]:
        """The contents of all that is stored, oldest first."""

    async def end_loop(self) -> None:
        """Close what belongs to the running loop."""

    def fill_all(self, session: str, messages: Sequence[Any]) -> None:
        self.runner.run(self.fill(session, messages))

    def time_appends(self, session: str, messages: Sequence[Any], deadline: float) -> list[int]:
        calls = (partial(self.append, session, one) for one in messages)
        return self.runner.run(self._timed(calls, deadline))[0]

    def time_gets(self, session: str, count: int, deadline: float) -> tuple[list[int], int]:
        return self.runner.run(self._timed(repeat(partial(self.get, session), count), deadline))

    def work_in_thread(
        self, jobs: Sequence[Job], deadline: float, wait: Callable[[], Any]
    ) -> Outcome:
        async def whole() -> Outcome:
            tally = await self.work(jobs, deadline)
            wait()
            found = await self.read_back(tally)
            await self.end_loop()
            return tally, found

        return asyncio.run(whole())

    def work_in_tasks(self, shares: Sequence[Sequence[Job]], deadline: float) -> list[Outcome]:
        async def whole() -> list[Outcome]:
            tallies = await asyncio.gather(*[self.work(jobs, deadline) for jobs in shares])
            return [(tally, await self.read_back(tally)) for tally in tallies]

        return self.runner.run(whole())

    def close(self) -> None:
        self.runner.run(self.end_loop())
        self.runner.close()

    async def work(self, jobs: Sequence[Job], deadline: float) -> Tally:
        """Do jobs one after the other."""
        tally = Tally()
        for session, number, message in jobs:
            try:
                await self.append(session, message)
            except Exception as error:  # noqa: BLE001 - whatever a contender raises is counted
                tally.errors.append(f"{type(error).__name__}: {error}")
            else:
                tally.done[session].append(number)
            if perf_counter() > deadline:
                break
        tally.ended = perf_counter()
        return tally

    async def read_back(self, tally: Tally) -> dict[str, list[str]]:
        """The contents of a worker's sessions."""
        found = {}
        for session in tally.done:
            try:
                found[session] = await self.read(session)
            except Exception as error:  # noqa: BLE001 - whatever a contender raises is counted
                tally.errors.append(f"{type(error).__name__}: {error}")
        return found

    async def _timed(
        self, calls: Iterable[Callable[[], Awaitable[Any]]], deadline: float
    ) -> tuple[list[int], Any]:
        taken, found = [], None
        for call in calls:
            began = perf_counter_ns()
            found = await call()
            taken.append(perf_counter_ns() - began)
            if perf_counter() > deadline:
                break
        return taken, found
