"""Check the contexts of random histories against the guarantees, at small budgets.

A history has messages of one token to fifty times the budget, pasted documents and pictures. It has
up to forty calls in a message, with results in any order, late, missing, or without a call.
"""

import json
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

from agent_memory import AgentMemory, Chain, FlushToLTM, Message, Summarize, TokenCounter, Trim
from agent_memory.core.context import leading_count
from agent_memory.core.records import Entry, Head, Summary
from agent_memory.core.shapes import role_of
from agent_memory.core.window import late_results, visible
from agent_memory.ltm_blocks import Resources, StaticMemory
from agent_memory.strategies.base import Departure, Strategy
from tests.histories import call, result, unpaired

Json = dict[str, Any]

COUNTER = TokenCounter(tokenizer="approximate")

_TOLD = """river stone harbour invoice parrot window ticket garden number colour Oslo Ana code
    refund the of and is was to a in on it for not seven QX-4471 2026-01-05 3.50 https://example.com/a"""
_WORDS = _TOLD.split()
_PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


class Wordy(Strategy):
    """Writes summaries that are longer than the messages they replace."""

    kind: str = "wordy"

    @property
    def summary_tokens(self) -> int:
        return 24

    def summarize(self, departure: Departure, resources: Resources) -> Summary | None:
        said = "And then they spoke of the harbour again. " * 200
        return Summary(said, 1, departure.upto, "wordy")


def strategies() -> list[Strategy]:
    """Return one of each kind, and some with settings that leave little."""
    return [
        Trim(),
        Trim(keep_messages=3),
        Trim(keep_tokens=20),
        Trim(by="importance"),
        Trim(max_turns=3, take_messages=2),
        Summarize(max_summary_tokens=24, max_messages=4, by="importance", max_stm_ratio=0.8),
        Summarize(max_summary_tokens=30),
        Wordy(),
        FlushToLTM(blocks=[StaticMemory(facts=["Ana lives in Oslo."])], max_stm_ratio=0.5),
        Chain([FlushToLTM(max_stm_ratio=0.7), Summarize(max_summary_tokens=24)]),
    ]


def text(rng: random.Random, budget: int) -> str:
    """Return a text of one token to fifty times the budget. Most are short."""
    size = rng.choice([1, 1, 3, 8, 20, 20, budget // 4, budget // 2, budget, budget * 2])
    if rng.random() < 0.02:
        size = budget * 50
    words = " ".join(rng.choices(_WORDS, k=max(1, min(size, 60))))
    ends = rng.choice([". ", "\n", " ", ""])
    whole = (words + ends) * (1 + size // 60)
    return whole.strip() or "x"


def content(rng: random.Random, budget: int) -> Any:
    if rng.random() < 0.9:
        return text(rng, budget)
    parts: list[Any] = [{"type": "text", "text": text(rng, budget)}, _PICTURE]
    return rng.sample(parts * rng.randint(1, 3), rng.randint(1, 2))


def group(rng: random.Random, budget: int, number: int) -> Iterator[Json]:
    """Yield a message with calls, then their results."""
    count = rng.choice([1, 1, 1, 2, 3, 8, 40])
    ids = [f"call_{number}_{n}" for n in range(count)]
    calls = [call([one], "find", json.dumps({"q": text(rng, budget // 8)[:2_000]})) for one in ids]
    yield {**calls[0], "tool_calls": [one for each in calls for one in each["tool_calls"]]}
    if rng.random() < 0.2:
        rng.shuffle(ids)
    size = budget if count < 8 else max(8, budget // 8)
    for one in ids:
        if rng.random() < 0.99:
            yield result(one, text(rng, size))


def history(rng: random.Random, budget: int) -> list[Json]:
    said: list[Json] = []
    for number in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.42:
            said.append({"role": "user", "content": content(rng, budget)})
        elif kind < 0.7:
            said.append({"role": "assistant", "content": text(rng, budget)})
        elif kind < 0.95:
            said += group(rng, budget, number)
        elif kind < 0.97:
            said.append({"role": "tool", "tool_call_id": "nobody", "content": "stray"})
        else:
            said.append({"role": "system", "content": text(rng, budget // 4)})
    return said


def wrong(context: Any, log: Sequence[Entry], asked: str | None, known: set[int]) -> list[str]:
    """Return the guarantees that a context breaks."""
    found: list[str] = []
    chat = context.to_messages()
    cost = COUNTER.context(chat) if chat else 0
    if not cost <= context.tokens <= context.max_tokens:
        found.append(f"{cost} tokens, said to be {context.tokens}, of {context.max_tokens}")
    found += unpaired(chat)
    turns = chat[leading_count(context.messages) :]
    turns = [one for one in turns if not _is_memory(one)]
    shown = visible(log, was_cut=False)
    newest = shown[-1] if shown else None
    late = late_results(log) if context.head is not None and context.head.start else ()
    if newest is not None and newest.seq < max(late, default=0):
        if asked is None and not (turns and turns[-1]["role"] == "assistant"):
            found.append("the newest message, a result without its call, is not at the end as text")
    elif asked is None and newest is not None and not (turns and _same(turns[-1], newest)):
        found.append(f"the newest message, a {role_of(newest.message)}, is not at the end")
    if asked is not None and not (turns and turns[-1]["role"] == "user"):
        found.append("the question is not at the end")
    users = [entry for entry in shown if role_of(entry.message) == "user"]
    was_cut = len(turns) < len(shown) + (asked is not None)
    if users and was_cut and not (turns and turns[0]["role"] == "user"):
        found.append(f"it begins with {turns[0]['role'] if turns else 'nothing'}")
    if users and asked is None and newest is not None:
        opener = [entry for entry in users if entry.seq <= newest.seq][-1]
        if not any(_same(one, opener) for one in turns):
            found.append("the user message of the newest turn is missing")
        of_turn = [entry for entry in shown if entry.seq >= opener.seq]
        said = [one.to_openai() for one in context.messages]
        whole = [one for one in of_turn if entry_view(one) in said]
        covered = context.head is not None and context.head.start >= opener.seq
        if len(whole) < len(of_turn) and not (context.warnings or covered):
            found.append("something of the newest turn is cut, and no warning says so")
    hidden = {entry.seq for entry in log if not entry.message.is_system}
    hidden -= {entry.seq for entry in shown} | {*late}
    start = context.head.start if context.head is not None else 0
    calls = {
        one["id"]: entry.seq for entry in log for one in entry_view(entry).get("tool_calls") or ()
    }
    left_out = {
        calls.get(entry_view(entry).get("tool_call_id"), entry.seq)
        for entry in log
        if entry.seq in hidden and entry.seq > start
    }
    if left_out - known and not context.warnings:
        found.append("a call or a result is left out, and no warning says so")
    known |= left_out
    return found


def entry_view(entry: Entry) -> Json:
    return entry.message.to_openai() or {}


def _is_memory(message: Json) -> bool:
    return str(message.get("content")).startswith("<memory>") and message["role"] == "system"


def _same(shown: Json, entry: Entry) -> bool:
    """Return whether a message of a chat shows this entry, whole or in part."""
    view = entry_view(entry)
    if shown["role"] != view["role"] or shown.get("tool_call_id") != view.get("tool_call_id"):
        return False
    said, there = _text(view.get("content")), _text(shown.get("content"))
    return not said or said.startswith(re.split("[\u2026\\[\n]", there)[0][:4].rstrip())


def _text(content: Any) -> str:
    said = Message(role="user", content=content).text()
    return said.split("</memory>")[-1].strip()


def play(seed: int) -> list[str]:
    """Store one random history, check the contexts on the way, and return the errors."""
    rng = random.Random(seed)
    budget = rng.choice([64, 80, 128, 256, 500, 1_000])
    said = history(rng, budget)
    strategy = rng.choice(strategies())
    if strategy.summary_tokens * 2 > budget:
        strategy = Trim()
    found: list[str] = []
    known: set[int] = set()
    with AgentMemory(
        store="memory://",
        max_tokens=budget,
        overflow=strategy,
        tokenizer="approximate",
        memory_role=rng.choice(["system", "user", "leading"]),
        blocks=(),
    ) as memory:
        before: Head | None = None
        for message in said:
            head = memory.update("s", message)
            new = [COUNTER.message(Message.of(message))]
            if before is not None and head.start != before.start:
                new += [held(before)]
                if held(head) >= sum(new):
                    found.append(f"{sum(new)} tokens before an overflow, {held(head)} after it")
            before = head
            again = memory.update("s", [])
            if (again.start, again.version) != (head.start, head.version):
                found.append("a compaction without new input")
            if rng.random() < 0.5:
                found += wrong(memory.get("s"), memory.history("s"), None, known)
        log = memory.history("s")
        if [one.message.to_dict() for one in log] != [Message.of(one).to_dict() for one in said]:
            found.append("the log says something else")
        found += wrong(memory.get("s"), log, None, known)
        found += wrong(memory.get("s", "What is the code QX-4471?"), log, "What", known)
        lower = memory.get("s", max_tokens=max(64, budget // 2))
        found += wrong(lower, log, None, known)
    return [f"seed {seed}, {strategy!r}, {budget}: {one}" for one in found]


def held(head: Head) -> int:
    return head.window_tokens + (head.summary.tokens if head.summary is not None else 0)
