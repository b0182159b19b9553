"""What a conversation's prompts cost, and how much of them a provider's cache can take.

python -m benchmarks.cost --data FILE

A log of one conversation is said turn by turn, as one session. Before each message of the user a
prompt is made as it would be sent, by this library and by what people do without one, and held
against the prompt before it: what both begin with is charged as cached. What is the same is counted
by whole messages. No model is asked: summaries and facts are made by a stand-in over HTTP, which
cuts the first sentence out of what it is given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from agent_memory import AgentMemory, ExtractiveMemory, Summarize, Trim, VectorMemory
from agent_memory.core.context import render_memory
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.testing import FakeLLM

Chat = list[dict[str, Any]]
Next = Callable[[dict[str, Any]], Chat]
"""Gives the prompt for a message of the user."""

_COUNTER = TokenCounter()
_SENTENCE = re.compile(r"^\[(\d+)\] \S+ ([^:]+): ([^.!?\n]{30,200}[.!?])", re.MULTILINE)
_USER = "user"


@dataclass
class Bill:
    """What prompts of one way cost.

    Attributes:
        tokens: Of all prompts.
        kept: How many of them were the same as in the prompt before.
        largest: Tokens of the largest.
        asked: Of the way's own calls of a model.
        asked_kept: How many of these were the same as in its call before, for the same.
        calls: How many those were.
    """

    tokens: int = 0
    kept: int = 0
    largest: int = 0
    asked: int = 0
    asked_kept: int = 0
    calls: int = 0
    _before: Chat = field(default_factory=list)

    def send(self, prompt: Chat) -> None:
        """Add a prompt."""
        tokens = _COUNTER.context(prompt)
        self.tokens += tokens
        self.kept += alike(self._before, prompt)
        self.largest = max(self.largest, tokens)
        self._before = prompt


def alike(before: Chat, now: Chat) -> int:
    """Tokens of the messages that two prompts begin with alike."""
    tokens = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            break
        tokens += _COUNTER.chat(one)
    return tokens


def fitting(said: Sequence[dict[str, Any]], room: int) -> Chat:
    """The newest messages that fit."""
    chosen: Chat = []
    for one in reversed(said):
        room -= _COUNTER.chat(one)
        if room < 0:
            break
        chosen.append(one)
    return chosen[::-1]


def everything(said: Chat, message: dict[str, Any]) -> Chat:
    """The whole history, whatever it costs."""
    return [*said, message]


def newest(budget: int, said: Chat, message: dict[str, Any]) -> Chat:
    """A sliding window."""
    return fitting([*said, message], budget)


def on_top(memory: AgentMemory, budget: int, said: Chat, message: dict[str, Any]) -> Chat:
    """A sliding window below what is recalled: as many do it, in the system message."""
    context = memory.get("s", message, user_id=_USER)
    told = render_memory(context.recalls, list(context.blocks))
    head = [{"role": "system", "content": told}] if told else []
    return [*head, *fitting([*said, message], budget - sum(map(_COUNTER.chat, head)))]


def ours(memory: AgentMemory, message: dict[str, Any]) -> Chat:
    """As the library sends it."""
    return memory.get("s", message, user_id=_USER).to_messages()


def answered(body: dict[str, Any]) -> str:
    """What the stand-in says: of some of the lines a fact, of a window its beginning."""
    told = str(body["messages"][-1]["content"])
    purpose = str(body["messages"][0]["content"])
    if purpose.startswith("New facts"):
        return json.dumps({"answers": []})
    if "find facts" not in purpose:
        return " ".join(told.split()[:200])
    found = [
        {
            "text": f"{name} said: {text}", "subject": "user", "category": "other",
            "kind": "event", "message": int(number), "quote": text, "when": "", "since": "",
            "until": "", "confidence": 1, "known": [], "relation": "new",
        }
        for number, name, text in _SENTENCE.findall(told)[::3]
    ]  # fmt: skip
    return json.dumps({"facts": found})


def memories(
    stack: ExitStack, budget: int, fake: FakeLLM, *, facts: bool
) -> Iterator[tuple[str, AgentMemory]]:
    """The ways of this library, by name."""
    model = {"model": "openai/any", "api_base": fake.api_base, "api_key": "-"}
    ways: dict[str, dict[str, Any]] = {
        "Trim, nothing recalled": {"blocks": [], "overflow": Trim()},
        "Trim, messages": {"blocks": [VectorMemory()], "overflow": Trim()},
        "the same in the system message": {
            "blocks": [VectorMemory()], "overflow": Trim(), "memory_role": "leading",
        },
        "Summarize, messages, facts": {
            "blocks": [VectorMemory(), ExtractiveMemory()], "overflow": Summarize(), **model,
        },
    }  # fmt: skip
    for name, settings in ways.items():
        if facts or "facts" not in name:
            memory = AgentMemory("memory://", max_tokens=budget, **settings)
            yield name, stack.enter_context(memory)


def run(
    data: Annotated[Path, typer.Option(exists=True, help="JSON Lines, a message each.")],
    budget: Annotated[list[int], typer.Option(min=500, help="Repeatable.")] = [4_000, 16_000],  # noqa: B006
    rate: Annotated[float, typer.Option(help="Dollars for a million tokens.")] = 3.0,
    cached: Annotated[float, typer.Option(help="The same, where they are cached.")] = 0.3,
    facts: Annotated[bool, typer.Option(help="Summaries and facts, too.")] = True,
    out: Annotated[Path | None, typer.Option(help="A JSON file for the figures.")] = None,
) -> None:
    """Measure and print a table for each budget."""
    said = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines() if line]
    messages = [{"role": one["role"], "content": one["content"]} for one in said]
    figures: dict[str, Any] = {}
    for each in budget:
        bills = measured(messages, each, facts=facts)
        turns = sum(1 for one in messages if one["role"] == "user")
        Console().print(table(bills, turns, each, rate, cached))
        figures[str(each)] = {name: vars(bill) for name, bill in bills.items()}
    for bill in (one for some in figures.values() for one in some.values()):
        bill.pop("_before")
    if out is not None:
        out.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def measured(messages: Chat, budget: int, *, facts: bool) -> dict[str, Bill]:
    """What each way's prompts come to."""
    with ExitStack() as stack:
        fake = stack.enter_context(FakeLLM(default=answered))
        own = dict(memories(stack, budget, fake, facts=facts))
        said: Chat = []
        ways: dict[str, Next] = {
            "everything": partial(everything, said),
            "the newest messages": partial(newest, budget, said),
            "the same below recalls": partial(on_top, own["Trim, messages"], budget, said),
            **{name: partial(ours, memory) for name, memory in own.items()},
        }
        bills = {name: Bill() for name in ways}
        for message in track(messages, f"{budget:,} tokens", transient=True):
            if message["role"] == "user":
                for name, made in ways.items():
                    bills[name].send(made(message))
            said.append(message)
            for memory in own.values():
                memory.update("s", message, user_id=_USER)
        asked: dict[str, Chat] = {}
        last = bills[next(reversed(bills))]
        for body in fake.requests:
            prompt = body["messages"]
            purpose = str(prompt[0]["content"])[:40]
            last.calls += 1
            last.asked += _COUNTER.context(prompt)
            last.asked_kept += alike(asked.get(purpose, []), prompt)
            asked[purpose] = prompt
    return bills


def table(bills: dict[str, Bill], turns: int, budget: int, rate: float, cached: float) -> Table:
    """The bills of one budget."""
    made = Table(title=f"{turns} turns at {budget:,} tokens; dollars for 1,000 turns")
    made.add_column("way")
    for name in (
        "tokens a turn",
        "largest",
        "kept",
        "dollars",
        "own calls",
        "their tokens",
        "kept",
    ):
        made.add_column(name, justify="right")
    for name, bill in bills.items():
        new = bill.tokens - bill.kept + bill.asked - bill.asked_kept
        dollars = (new * rate + (bill.kept + bill.asked_kept) * cached) / 1e6
        made.add_row(
            name,
            f"{bill.tokens / turns:,.0f}",
            f"{bill.largest:,}",
            f"{bill.kept / bill.tokens:.0%}",
            f"{dollars / turns * 1_000:.2f}",
            f"{bill.calls}",
            f"{bill.asked:,}",
            f"{bill.asked_kept / bill.asked:.0%}" if bill.asked else "",
        )
    return made


if __name__ == "__main__":
    typer.run(run)
