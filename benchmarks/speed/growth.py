"""Measure searches as messages grow: `python -m benchmarks speed growth --messages 100000`.

SQLite, and `VectorMemory` at its defaults with the local embedder (extra `local`). All users grow
evenly, in sessions of 100 messages. Searches are timed at 100, 1,000, 10,000 and 100,000 messages
of each user, and at the end.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agent_memory import AgentMemory, Recall, VectorMemory
from benchmarks.messages import machine, message_text, question_about, resident
from benchmarks.speed.contenders import clean_environment

STAGES = (100, 1_000, 10_000, 100_000)
SESSION = 100
_NEWEST = 20  # messages stored at each stage, and searched for immediately
_COLD = 20  # the most users whose first search a process times
_WARM_UP = 10**9  # the number of the first message that only warms up
_ROWS = {
    "messages": "messages in all",
    "rate": "stored and absorbed a second",
    "disk": "disk, MiB",
    "memory": "memory, MiB",
    "search": "search, a user at random: ms p50 (p95)",
    "one_more": "one more message stored and absorbed",
    "newest": "the search for it",
    "cold": "first search in a fresh process",
    "fresh": "its memory then, MiB",
}
Stage = dict[str, Any]
"""Values at one size: numbers, or a median and a 95th percentile in milliseconds."""


def main(
    messages: Annotated[int, typer.Option(min=1, help="Of all users together.")] = 100_000,
    users: Annotated[int, typer.Option(min=1)] = 1,
    questions: Annotated[int, typer.Option(min=1, help="At each stage.")] = 200,
    processes: Annotated[int, typer.Option(min=1, help="Fresh ones, at each stage.")] = 3,
    out: Annotated[Path | None, typer.Option(help="A JSON file for the figures.")] = None,
) -> None:
    """Measure and print a table."""
    if messages < users:
        raise typer.BadParameter("Each user needs at least one message.", param_hint="--messages")
    with TemporaryDirectory() as folder, Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("messages", total=messages // users * users)
        site = Site(Path(folder), users, messages // users)
        stages = site.grow(questions, processes, lambda count: progress.advance(bar, count))
    table = Table(f"messages of each of {users:,} users", *(f"{one['each']:,}" for one in stages))
    for name, title in _ROWS.items():
        table.add_row(title, *(_cell(one[name]) for one in stages))
    Console().print(table)
    if out is not None:
        figures = {"machine": machine(), "users": users, "stages": stages}
        out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


class Site:
    """A database in a folder, which grows until each user has `each` messages."""

    def __init__(self, folder: Path, users: int, each: int) -> None:
        self._folder, self._users, self._each = folder, users, each
        self._random = Random(users)

    def grow(self, questions: int, processes: int, advance: Callable[[int], object]) -> list[Stage]:
        """Store everything. Each stage has `questions` searches and `processes` new processes."""
        stages: list[Stage] = []
        with self.open() as memory:
            texts = [message_text(_WARM_UP + number) for number in range(SESSION)]
            _store(memory, "warm", texts, "warm")
            _warm(memory)
            held = 0
            for goal in (*(stage for stage in STAGES if stage < self._each), self._each):
                seconds, new = 0.0, (goal - held) * self._users
                for start in range(held, goal, SESSION):
                    seconds += self._session(memory, start, min(SESSION, goal - start), advance)
                rate, held = new / seconds, goal
                stage: Stage = {"each": held, "messages": held * self._users, "rate": rate}
                stage |= self._searches(memory, held, questions) | self._newest(memory, held)
                stage |= {"disk": self._disk(), "memory": resident()}
                stages.append(stage | self._cold(held, processes))
        return stages

    def open(self) -> AgentMemory:
        """Open a memory on the database."""
        return AgentMemory(
            store=f"sqlite:///{Path(self._folder, 'm.db').as_posix()}",
            max_tokens=10**9,
            embedding="local",
            blocks=[VectorMemory()],
            recall_timeout=600.0,
        )

    def question(self, user: int, held: int) -> str:
        """Return a question about one of the first messages of a user."""
        return question_about(user * self._each + self._random.randrange(held))

    def _disk(self) -> float:
        return sum(file.stat().st_size for file in self._folder.iterdir()) / 2**20

    def _session(
        self, memory: AgentMemory, start: int, count: int, advance: Callable[[int], object]
    ) -> float:
        """Store a session of each user; return the seconds until everything was absorbed."""
        seconds = 0.0
        for user in range(self._users):
            first = user * self._each + start
            texts = [message_text(number) for number in range(first, first + count)]
            begun = perf_counter()
            _store(memory, f"{user}-{start}", texts, f"{user}")
            seconds += perf_counter() - begun
            advance(count)
        return seconds

    def _searches(self, memory: AgentMemory, held: int, questions: int) -> Stage:
        users = [self._random.randrange(self._users) for _ in range(questions)]
        first = [_search(memory, self.question(user, held), user)[0] for user in users]
        return {"search": _spread(first)}

    def _newest(self, memory: AgentMemory, held: int) -> Stage:
        more, newest = [], []
        for number in range(_NEWEST):
            user, name = self._random.randrange(self._users), f"kestrel{held}x{number}"
            memory.search(self.question(user, held), user_id=f"{user}")  # loads the user's index
            begun = perf_counter()
            _store(memory, f"{user}-newest", [f"The bird is called {name}."], f"{user}")
            more.append((perf_counter() - begun) * 1e3)
            taken, found = _search(memory, f"Which bird is {name}?", user)
            if not any(name in recall.text for recall in found):
                raise RuntimeError(f"The newest message was not found: {name}.")
            newest.append(taken)
        return {"one_more": _spread(more), "newest": _spread(newest)}

    def _cold(self, held: int, processes: int) -> Stage:
        code = "from benchmarks.speed.growth import first_searches; first_searches()"
        answers = []
        for number in range(processes):
            given = json.dumps([str(self._folder), self._users, self._each, held, number])
            done = subprocess.run(
                [sys.executable, "-c", code, given],
                env=clean_environment(), stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            answers.append(json.loads(done.stdout))
        sizes = [one["memory"] for one in answers if one["memory"] is not None]
        return {
            "cold": _spread([ms for one in answers for ms in one["ms"]]),
            "fresh": median(sizes) if sizes else None,
        }


def first_searches() -> None:
    """Time the first search of some users in this new process, and print the milliseconds."""
    folder, users, each, held, number = json.loads(sys.argv[1])
    site = Site(Path(folder), users, each)
    some = Random(number).sample(range(users), min(users, _COLD))
    with site.open() as memory:
        _warm(memory)
        ms = [_search(memory, site.question(user, held), user)[0] for user in some]
        print(json.dumps({"ms": ms, "memory": resident()}))


def _warm(memory: AgentMemory) -> None:
    """Load the embedder, and by some counts the tokenizer."""
    for number in range(SESSION):
        memory.search(question_about(_WARM_UP + number), user_id="warm")


def _store(memory: AgentMemory, session: str, texts: Sequence[str], user: str) -> None:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    memory.update(session, messages, user_id=user)
    if errors := [one.error for one in memory.flush(session) if one.error]:
        raise RuntimeError(f"Not everything was absorbed: {errors[0]}.")


def _search(memory: AgentMemory, question: str, user: int) -> tuple[float, list[Recall]]:
    begun = perf_counter()
    found = memory.search(question, user_id=f"{user}")
    return (perf_counter() - begun) * 1e3, found


def _spread(taken: Sequence[float]) -> tuple[float, float]:
    if len(taken) == 1:
        return taken[0], taken[0]
    return median(taken), quantiles(taken, n=20, method="inclusive")[-1]


def _cell(value: float | tuple[float, float] | None) -> str:
    if value is None:
        return ""
    return f"{value[0]:,.1f} ({value[1]:,.1f})" if isinstance(value, tuple) else f"{value:,.0f}"
