"""agent-memory as a contender, through its public interface.

`python -m benchmarks.speed.ours WHICH FOLDER` serves it; see `serving`. WHICH is "sqlite" or
"memory". There are no long-term blocks: their work in the background would slow the contender that
is measured next. `growth` measures recall.
"""

import asyncio
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from agent_memory import AgentMemory, AsyncAgentMemory, Summarize, Trim, __version__
from benchmarks.messages import Chat, chats
from benchmarks.speed.backend import Job, Outcome, SyncBackend, Tally
from benchmarks.speed.serving import About, Place, Server, serve

Mode = Literal["inline", "background"]
_ENDLESS = 1_000_000_000
_OVERFLOW = 4096


class Ours(SyncBackend):
    """An `AgentMemory`. `read` returns a session's log, and `get` its context."""

    def __init__(self, folder: Path, budget: int | None, *, which: str) -> None:
        super().__init__(folder, budget)
        self.chunk = 500 if budget is None else 20
        self.memory = AgentMemory(
            store="memory://" if which == "memory" else f"sqlite:///{folder}/memory.db",
            max_tokens=budget or _ENDLESS,
            overflow=Trim(),
            blocks=[],
        )

    def fill(self, session: str, messages: Sequence[Chat]) -> None:
        self.memory.update(session, list(messages))

    def append(self, session: str, message: Chat) -> None:
        self.memory.update(session, message)

    def get(self, session: str) -> int:
        return len(self.memory.get(session).messages)

    def read(self, session: str) -> list[str]:
        return [str(entry.message.content) for entry in self.memory.history(session)]

    def work_in_tasks(self, shares: Sequence[Sequence[Job]], deadline: float) -> list[Outcome]:
        memory = AsyncAgentMemory(self.memory)

        async def work(jobs: Sequence[Job]) -> Tally:
            tally = Tally()
            for session, number, message in jobs:
                await memory.update(session, message)
                tally.done[session].append(number)
                if perf_counter() > deadline:
                    break
            tally.ended = perf_counter()
            return tally

        async def whole() -> list[Tally]:
            return list(await asyncio.gather(*[work(jobs) for jobs in shares]))

        tallies = asyncio.run(whole())
        return [(tally, self.read_back(tally)) for tally in tallies]

    def close(self) -> None:
        self.memory.close()


class OurServer(Server):
    """Does the work of all contenders, and some work of agent-memory alone."""

    def do_render(self, size: int, count: int, seconds: float) -> dict[str, Any]:
        """Get the context and render it as chat dicts."""
        place = Place("get", None, size)
        session, backend = self.session(place), self.backend(place)
        assert isinstance(backend, Ours)
        taken: list[int] = []
        deadline = perf_counter() + seconds
        while len(taken) < count and perf_counter() < deadline:
            began = time.perf_counter_ns()
            backend.memory.get(session.name).to_messages()
            taken.append(time.perf_counter_ns() - began)
        return {"ns": taken}

    def do_background(self, mode: Mode, count: int, delay: float) -> dict[str, Any]:
        """Append while each model call takes `delay` seconds; in inline mode, with `Trim`."""
        with _model(delay) as (fake, hurry):
            memory = AgentMemory(
                store=f"sqlite:///{self._new_folder()}/memory.db",
                max_tokens=_OVERFLOW,
                blocks=[],
                overflow=Trim() if mode == "inline" else Summarize(max_summary_tokens=200),
                overflow_mode=mode,
                model=None if mode == "inline" else "openai/fake",
                api_base=fake.api_base,
                api_key="fake",
            )
            try:
                if mode == "background":  # until litellm is loaded and a call under way
                    _overflow(memory, lambda: bool(fake.requests))
                taken = []
                for message in chats(0, count):
                    began = time.perf_counter_ns()
                    memory.update("timed", message)
                    taken.append(time.perf_counter_ns() - began)
                kept = len(memory.history("timed"))
            finally:
                hurry.set()
                memory.close()
            return {"ns": taken, "calls": len(fake.requests), "lost": count - kept}


def _overflow(memory: AgentMemory, begun: Callable[[], bool]) -> None:
    for message in chats(0, 200):
        memory.update("warm", message)
    deadline = perf_counter() + 60
    while not begun():
        if perf_counter() > deadline:
            raise TimeoutError("the model was not called within 60 s")
        time.sleep(0.05)


@contextmanager
def _model(delay: float) -> Iterator[tuple[Any, threading.Event]]:
    """Yield a model whose calls take `delay` seconds, and an event that ends the delays."""
    from agent_memory.testing import FakeLLM

    hurry = threading.Event()

    def slow(body: dict[str, Any]) -> str:
        hurry.wait(delay)
        return "A summary of what was said."

    with FakeLLM(slow) as fake:
        yield fake, hurry


def _make(which: str, folder: Path) -> Server:
    durability = "none" if which == "memory" else "power (WAL, synchronous=FULL)"
    note = "tokens are counted; no long-term blocks"
    about = About(__version__, durability, note, budgets=True, tasks=True)
    return OurServer(about, functools.partial(Ours, which=which), folder)


if __name__ == "__main__":
    serve(functools.partial(_make, sys.argv.pop(1)))
