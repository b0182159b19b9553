"""A memory that grows: `python -m benchmarks.scale --messages 100000 --users 1`.

Embedded: SQLite, `VectorMemory` at its defaults with the local embedder (extra `local`), through
the public API alone. All users grow evenly, in sessions of 100 messages, each said in one update
and flushed; at 100, 1,000, 10,000 and 100,000 messages of each user, and at the end, searches are
timed over what is there. The texts are made up, the same in each run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate
from math import log
from pathlib import Path
from random import Random
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer
from pydantic import PrivateAttr
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agent_memory import AgentMemory, Message, Recall, VectorMemory
from agent_memory.core.records import Scope
from benchmarks.contenders import clean_environment
from benchmarks.running import machine
from benchmarks.serving import resident

STAGES = (100, 1_000, 10_000, 100_000)
SESSION = 100
_NEWEST = 20  # messages said at each stage, and sought at once
_COLD = 20  # users at most whose first search each process times
_MIB = 2**20
_WARM = "warm"  # a user beside the others
_WARM_UP = range(10**9, 10**9 + SESSION)
_SHOWN = {
    "search": "search, a user at random: ms p50 (p95)",
    "again": "the same user again",
    "inside": "of that, in the block",
    "one_more": "one more message said and absorbed",
    "newest": "the search for it",
    "cold": "first search in a fresh process",
}
_TEXT = """
the be to of and a in that have i it for not on with he as you do at this but his by from they we
say her she or an will my one all would there their what so up out if about who get which go me
"""
_COMMON = _TEXT.split()  # of English, and by the weights below nearly a third of what is said


@cache
def vocabulary() -> tuple[list[str], list[float]]:
    """30,000 words, and what those up to each weigh, by Zipf's law: the most frequent are English,
    the others made of syllables."""
    random = Random(30_000)
    syllables = [a + b + c for a in "bdfgklmnprstv" for b in "aeiou" for c in ("", "n", "r", "l")]
    made: dict[str, None] = {}
    while len(made) < 30_000 - len(_COMMON):
        made["".join(random.choices(syllables, k=random.randint(2, 3)))] = None
    words = [*_COMMON, *made]
    return words, list(accumulate(1 / (rank + 2.7) for rank in range(1, len(words) + 1)))


def message_text(number: int) -> str:
    """The text of a message: half of all have up to 20 words, one in a hundred 200 and more."""
    words = _words(number)
    sentences = [" ".join(words[at : at + 12]) for at in range(0, len(words), 12)]
    return ". ".join(sentences).capitalize() + "."


def question_about(number: int) -> str:
    """A question about a message, in some of its own words."""
    words = _words(number)
    telling = [word for word in words if word not in _COMMON] or words
    some = Random(f"about {number}").sample(telling, min(4, len(telling)))
    return f"What did we say about {' '.join(some)}?"


def _words(number: int) -> list[str]:
    random = Random(number)
    length = min(max(round(random.lognormvariate(log(20), 1.0)), 1), 800)
    words, weights = vocabulary()
    return random.choices(words, cum_weights=weights, k=length)


class TimedVectorMemory(VectorMemory):
    """`VectorMemory`, with the milliseconds that each of its searches took in it alone."""

    _taken: list[float] = PrivateAttr(default_factory=list)  # bound copies write to the same

    @property
    def taken(self) -> list[float]:
        """Of all searches so far."""
        return self._taken

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        begun = perf_counter()
        try:
            return super().get(scope, message, limit)
        finally:
            self._taken.append((perf_counter() - begun) * 1e3)


@dataclass(frozen=True)
class Stage:
    """What was measured at a size.

    Attributes:
        each: Messages of each user.
        messages: Messages of all users.
        rate: Messages a second, said and absorbed, since the stage before.
        disk: MiB of the database's files.
        memory: MiB that the process holds; None where the system does not tell.
        taken: Median and 95th percentile of milliseconds, by what took them: a search of a user
            picked at random, another of the same user, the block's part of that one; one more
            message said and absorbed, and the search for it; the first search of a user in a
            process that has loaded the embedder (files are in the system's cache).
        fresh: MiB that such a process holds after first searches of up to 20 users.
    """

    each: int
    messages: int
    rate: float
    disk: float
    memory: float | None
    taken: dict[str, dict[str, float]]
    fresh: float | None


def run(
    messages: Annotated[int, typer.Option(min=1, help="Of all users together.")] = 100_000,
    users: Annotated[int, typer.Option(min=1)] = 1,
    questions: Annotated[int, typer.Option(min=1, help="At each stage.")] = 200,
    processes: Annotated[int, typer.Option(min=1, help="Fresh ones, at each stage.")] = 3,
    out: Annotated[Path | None, typer.Option(help="A JSON file for the figures.")] = None,
) -> None:
    """Measure and print tables."""
    if messages < users:
        raise typer.BadParameter("Each user says one message at least.", param_hint="--messages")
    each = messages // users
    with TemporaryDirectory() as folder, Progress(console=Console(stderr=True)) as progress:
        said = progress.add_task("messages", total=each * users)
        site = Site(Path(folder), users, each)
        before, stages = site.grow(
            questions, processes, lambda count: progress.advance(said, count)
        )
        closed = site.disk()
    told = {
        "machine": machine(),
        "users": users,
        "questions": questions,
        "processes": processes,
        "memory_before": before,
        "disk_closed": closed,
        "stages": [asdict(stage) for stage in stages],
    }
    _show(told, stages)
    if out is not None:
        out.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


class Site:
    """A database in a folder, and who says what in it.

    Args:
        folder: Where the database lies.
        users: How many users there are.
        each: How many messages each will have said at the end.
    """

    def __init__(self, folder: Path, users: int, each: int) -> None:
        self._folder = folder
        self._users = users
        self._each = each
        self._random = Random(users)

    def grow(
        self, questions: int, processes: int, advance: Callable[[int], None]
    ) -> tuple[float | None, list[Stage]]:
        """Say everything, and measure at each stage.

        Args:
            questions: So many searches at each.
            processes: So many fresh processes at each.
            advance: Told how many more messages were said.

        Returns:
            MiB that the process held before, with all that it needs loaded; and the stages.
        """
        block = TimedVectorMemory()
        stages = []
        with self.open(block) as memory:
            said = [_chat(number, message_text(number)) for number in _WARM_UP]
            _told(memory, _WARM, said, _WARM)
            _warm(memory)
            before, held = resident(), 0
            for goal in (*(stage for stage in STAGES if stage < self._each), self._each):
                spent = 0.0
                for start in range(held, goal, SESSION):
                    spent += self._say(memory, start, min(SESSION, goal - start), advance)
                rate = (goal - held) * self._users / spent
                held = goal
                taken = self._asked(memory, block, held, questions) | self._newest(memory, held)
                cold, fresh = self._cold(held, processes)
                stages.append(
                    Stage(
                        each=held,
                        messages=held * self._users,
                        rate=rate,
                        disk=self.disk(),
                        memory=resident(),
                        taken={name: _spread(ms) for name, ms in {**taken, "cold": cold}.items()},
                        fresh=fresh,
                    )
                )
        return before, stages

    def open(self, block: VectorMemory) -> AgentMemory:
        """A memory on the database."""
        return AgentMemory(
            store=f"sqlite:///{Path(self._folder, 'm.db').as_posix()}",
            max_tokens=10**9,
            embedding="local",
            blocks=[block],
            recall_timeout=600.0,
        )

    def disk(self) -> float:
        """MiB of the database's files."""
        return sum(file.stat().st_size for file in self._folder.iterdir()) / _MIB

    def question(self, user: int, held: int) -> str:
        """A question about one of the first messages of a user."""
        return question_about(user * self._each + self._random.randrange(held))

    def somebody(self) -> int:
        """A user picked at random."""
        return self._random.randrange(self._users)

    def _say(
        self, memory: AgentMemory, start: int, count: int, advance: Callable[[int], None]
    ) -> float:
        """A session of each user; the seconds until all was absorbed."""
        spent = 0.0
        for user in range(self._users):
            first = user * self._each + start
            said = [_chat(number, message_text(number)) for number in range(first, first + count)]
            begun = perf_counter()
            _told(memory, f"{user}-{start}", said, f"{user}")
            spent += perf_counter() - begun
            advance(count)
        return spent

    def _asked(
        self, memory: AgentMemory, block: TimedVectorMemory, held: int, questions: int
    ) -> dict[str, list[float]]:
        somebody, again, inside = [], [], []
        for _ in range(questions):
            user = self.somebody()
            somebody.append(_search(memory, self.question(user, held), user)[0])
            again.append(_search(memory, self.question(user, held), user)[0])
            inside.append(block.taken[-1])
        return {"search": somebody, "again": again, "inside": inside}

    def _newest(self, memory: AgentMemory, held: int) -> dict[str, list[float]]:
        more, newest = [], []
        for number in range(_NEWEST):
            user, name = self.somebody(), f"kestrel{held}x{number}"
            memory.search(self.question(user, held), user_id=f"{user}")  # the user is not new to it
            begun = perf_counter()
            _told(memory, f"{user}-newest", [_chat(0, f"The bird is called {name}.")], f"{user}")
            more.append((perf_counter() - begun) * 1e3)
            took, found = _search(memory, f"Which bird is {name}?", user)
            if not any(name in recall.text for recall in found):
                raise RuntimeError(f"What was said last is not found: {name}.")
            newest.append(took)
        return {"one_more": more, "newest": newest}

    def _cold(self, held: int, processes: int) -> tuple[list[float], float | None]:
        """Milliseconds of first searches in fresh processes, and MiB that these hold then."""
        code = "from benchmarks.scale import first_searches; first_searches()"
        taken: list[float] = []
        sizes: list[float] = []
        for number in range(processes):
            asked = json.dumps([str(self._folder), self._users, self._each, held, number])
            done = subprocess.run(
                [sys.executable, "-c", code, asked],
                env=clean_environment(),
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            told = json.loads(done.stdout)
            taken += told["ms"]
            if told["memory"] is not None:
                sizes.append(told["memory"])
        return taken, median(sizes) if sizes else None


def first_searches() -> None:
    """In a process of its own: search some users for the first time, and print what it took."""
    folder, users, each, held, number = json.loads(sys.argv[1])
    site = Site(Path(folder), users, each)
    some = Random(number).sample(range(users), min(users, _COLD))
    with site.open(VectorMemory()) as memory:
        _warm(memory)
        ms = [_search(memory, site.question(user, held), user)[0] for user in some]
        print(json.dumps({"ms": ms, "memory": resident()}))


def _warm(memory: AgentMemory) -> None:
    """Have all loaded that searches need: the embedder and, after some counts, the tokenizer."""
    for number in _WARM_UP:
        memory.search(question_about(number), user_id=_WARM)


def _chat(number: int, text: str) -> dict[str, str]:
    return {"role": ("user", "assistant")[number % 2], "content": text}


def _told(memory: AgentMemory, session: str, said: Sequence[dict[str, str]], user: str) -> None:
    memory.update(session, said, user_id=user)
    if errors := [one.error for one in memory.flush(session) if one.error]:
        raise RuntimeError(f"Not all was absorbed: {errors[0]}.")


def _search(memory: AgentMemory, question: str, user: int) -> tuple[float, list[Recall]]:
    begun = perf_counter()
    found = memory.search(question, user_id=f"{user}")
    return (perf_counter() - begun) * 1e3, found


def _spread(taken: Sequence[float]) -> dict[str, float]:
    if len(taken) == 1:
        return {"p50": taken[0], "p95": taken[0]}
    return {"p50": median(taken), "p95": quantiles(taken, n=20, method="inclusive")[-1]}


def _show(told: dict[str, Any], stages: Sequence[Stage]) -> None:
    console = Console()
    table = Table("messages of each user", *(f"{stage.each:,}" for stage in stages))
    table.add_row("messages in all", *(f"{stage.messages:,}" for stage in stages))
    table.add_row("said and absorbed a second", *(f"{stage.rate:,.0f}" for stage in stages))
    table.add_row("disk, MiB", *(f"{stage.disk:,.1f}" for stage in stages))
    table.add_row("memory, MiB", *(_mib(stage.memory) for stage in stages), end_section=True)
    for name, shown in _SHOWN.items():
        spreads = [stage.taken[name] for stage in stages]
        table.add_row(shown, *(f"{one['p50']:,.1f} ({one['p95']:,.1f})" for one in spreads))
    table.add_row("its memory then, MiB", *(_mib(stage.fresh) for stage in stages))
    console.print(table)
    console.print(
        f"Users: {told['users']:,}. With next to nothing stored, {_mib(told['memory_before'])} MiB "
        f"of memory; once closed, {told['disk_closed']:,.1f} MiB of disk."
    )


def _mib(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


if __name__ == "__main__":
    typer.run(run)
