"""What facts cost: `python -m benchmarks.facts`.

Calls and tokens for 1,000 messages of 60 tokens, through the public API, with a model that answers
at once over HTTP on this machine: a fact in every fifth message, one in ten of which changes one
before. Then the time in which facts are recalled, by how many there are, beside the floor: reading
and decoding the same rows with `sqlite3` and `json`.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agent_memory import AgentMemory, ExtractiveMemory, FlushToLTM, TokenCounter
from agent_memory.core.messages import Message
from agent_memory.core.records import Scope
from agent_memory.testing import FakeLLM
from benchmarks.running import machine
from benchmarks.scale import message_text

_MODEL = "openai/gpt-4o-mini"
_TOKENS = 60
_EVERY = 5
_CHANGES = 10
_NUMBERED = re.compile(r"^\[(\d+)\] \S+ \w+: (.*)$", re.MULTILINE)
_LISTED = re.compile(r"^New (\d+)\. .*\n +(\d+)\. ", re.MULTILINE)
_TOLD = re.compile(r"note (\d+) says (\w+)")


@dataclass(frozen=True)
class Setting:
    """How messages are absorbed.

    Attributes:
        name: What it is called.
        fields: Of the configuration.
        absorb: Of the strategy.
    """

    name: str
    fields: dict[str, Any]
    absorb: Any = "overflow"


SETTINGS = (
    Setting("defaults", {}),
    Setting("window of 20,000 tokens", {"max_tokens": 20_000}),
    Setting("window of 4,000 tokens", {"max_tokens": 4_000}),
    Setting("absorbed every 3,000 tokens", {}, 3_000),
    Setting("absorbed with every update", {}, "every_update"),
    Setting("the same, without a pause", {"quiet_seconds": 0}, "every_update"),
)


def text_of(number: int, counter: TokenCounter) -> str:
    """A message of about 60 tokens; each fifth holds something to note."""
    told = f"note {number} says {message_text(number).split()[0].lower()}. "
    words = (told if number % _EVERY == 0 else "") + message_text(number + 10_000_000)
    while counter.text(words) < _TOKENS:
        words += " " + message_text(number + len(words) + 20_000_000)
    pieces = words.split()
    while counter.text(" ".join(pieces)) > _TOKENS:
        pieces.pop()
    return " ".join(pieces)


def answer(body: dict[str, Any]) -> str:
    """What the model says: the notes of a batch, or that every tenth changes the nearest one."""
    asked = body["messages"][-1]["content"]
    if asked.startswith("<facts>"):
        pairs = [(int(new), int(older)) for new, older in _LISTED.findall(asked)]
        changed = [(new, older) for new, older in pairs if new % _CHANGES == 0]
        answers = [{"number": n, "answer": "update", "which": [older]} for n, older in changed]
        return json.dumps({"answers": answers})
    found = []
    for number, said in _NUMBERED.findall(asked):
        told = _TOLD.search(said)
        if told:
            text = f"Note {told[1]} is about {told[2]}."
            found.append({"text": text, "message": int(number), "quote": told[0]})
    return json.dumps({"facts": found})


@contextmanager
def memory_at(path: Path, fake: FakeLLM, setting: Setting) -> Iterator[AgentMemory]:
    """A memory of facts alone, in a file."""
    strategy = FlushToLTM(blocks=[ExtractiveMemory()], absorb=setting.absorb)
    with AgentMemory(
        store=f"sqlite:///{path}", model=_MODEL, api_base=fake.api_base, api_key="none",
        overflow=strategy, **setting.fields,
    ) as memory:  # fmt: skip
        yield memory


def cost(folder: Path, setting: Setting, messages: int) -> dict[str, float]:
    """Calls and tokens for 1,000 messages under a setting."""
    counter = TokenCounter(_MODEL)
    with FakeLLM(answer) as fake, memory_at(folder / "cost.db", fake, setting) as memory:
        begun = perf_counter()
        for number in range(messages):
            role = "assistant" if number % 2 else "user"
            message = {"role": role, "content": text_of(number, counter)}
            memory.update("s", message, user_id="u")
        memory.flush()
        seconds = perf_counter() - begun
        sent = [text for one in fake.requests for text in _texts(one)]
        known = len(memory.user("u").facts())
        calls = memory.stats().usage.calls
    each = 1000 / messages
    asked = sum(map(counter.text, sent))
    second = sum(1 for one in fake.requests if _texts(one)[-1].startswith("<facts>"))
    return {
        "calls": calls * each, "second": second * each, "tokens": asked * each,
        "facts": known * each, "seconds": seconds * each,
    }  # fmt: skip


def _texts(request: dict[str, Any]) -> list[str]:
    return [str(message["content"]) for message in request["messages"]]


def recall(folder: Path, count: int, questions: int) -> dict[str, float]:
    """Milliseconds of a recall among so many facts, the first and the others, and of the floor."""
    path = folder / "recall.db"
    setting = Setting("", {}, 6_000)
    with FakeLLM(answer) as fake, memory_at(path, fake, setting) as memory:
        for at in range(0, count, 100):
            said = [
                {"role": "user", "content": f"note {_EVERY * n} says {message_text(n)}"}
                for n in range(at, min(at + 100, count))
            ]
            memory.update(f"s-{at}", said, user_id="u")
            memory.flush(f"s-{at}")
        held = len(memory.user("u").facts())
    with FakeLLM(answer) as fake, memory_at(path, fake, setting) as memory:
        block, random = memory.blocks["extractive"], Random(count)
        block.get(Scope("nobody"), Message(role="user", content="warm up"), 50)
        taken = []
        for _ in range(questions + 1):
            question = Message(role="user", content=message_text(random.randrange(count)))
            begun = perf_counter()
            block.get(Scope("u"), question, 50)
            taken.append((perf_counter() - begun) * 1e3)
    floor = []
    with closing(sqlite3.connect(path)) as database:
        for _ in range(5):
            begun = perf_counter()
            for (body,) in database.execute(
                "SELECT body FROM agent_memory_documents WHERE collection LIKE 'fact:%'"
            ):
                json.loads(body)
            floor.append((perf_counter() - begun) * 1e3)
    return {"facts": held, "first": taken[0], "again": median(taken[1:]), "floor": median(floor)}


def run(
    messages: Annotated[int, typer.Option(min=1, help="Messages said under each setting.")] = 1000,
    facts: Annotated[str, typer.Option(help="Numbers of facts to recall from.")] = "100,1000,5000",
    questions: Annotated[int, typer.Option(min=1, help="Recalls timed at each.")] = 30,
) -> None:
    """Count what facts cost, and time how they are recalled."""
    console = Console()
    console.print(machine())
    paid = Table("messages are absorbed", title=f"For 1,000 messages of {_TOKENS} tokens")
    for column in ("calls", "of them second", "prompt tokens", "facts", "seconds"):
        paid.add_column(column, justify="right")
    sizes = [int(size) for size in facts.split(",")]
    timed = Table("facts", title="Recalling, ms")
    for column in ("first in a process", "p50", "floor: rows read", "p50 / floor"):
        timed.add_column(column, justify="right")
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("facts", total=len(SETTINGS) + len(sizes))
        for setting in SETTINGS:
            with TemporaryDirectory() as folder:
                one = cost(Path(folder), setting, messages)
            paid.add_row(
                setting.name, f"{one['calls']:,.0f}", f"{one['second']:,.0f}",
                f"{one['tokens']:,.0f}", f"{one['facts']:,.0f}", f"{one['seconds']:.1f}",
            )  # fmt: skip
            progress.advance(task)
        for size in sizes:
            with TemporaryDirectory() as folder:
                one = recall(Path(folder), size, questions)
            timed.add_row(
                f"{one['facts']:,.0f}", f"{one['first']:.1f}", f"{one['again']:.1f}",
                f"{one['floor']:.1f}", f"{one['again'] / one['floor']:.1f}",
            )  # fmt: skip
            progress.advance(task)
    console.print(paid)
    console.print(timed)


if __name__ == "__main__":
    typer.run(run)
