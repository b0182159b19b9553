"""Chats with an assistant that answers at length, as BEAM has them.

Tavakoli et al., "Beyond a Million Tokens: Benchmarking and Enhancing Long-Term Memory in LLMs",
2025 (arXiv:2510.27246). The data is CC BY-SA 4.0, and is no part of this project. It is read as it
lies in their repository: a folder for each chat, with `chat.json` and the questions in
`probing_questions/probing_questions.json`. Left out are the questions that have no answer, and
those for a summary of everything, which no search is meant to bring.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.conversations import BETWEEN, Conversation, Question

_CHAT = "chat.json"
_QUESTIONS = Path("probing_questions", "probing_questions.json")
_LEFT_OUT = ("abstention", "summarization")
_ANSWERS = ("answer", "ideal_answer", "ideal_response", "expected_compliance", "rubric")
_PLAN = re.compile(r"\s*->->.*$", re.DOTALL)  # the points of the plan that a message was made of


def read(folder: Path) -> list[Conversation]:
    """The chats of a folder, in the order of their numbers."""
    chats = sorted(folder.glob(f"*/{_CHAT}"), key=lambda file: _number(file.parent.name))
    return [_chat(file.parent) for file in chats]


def _number(name: str) -> tuple[int, str]:
    return (int(name) if name.isdecimal() else 0, name)


def _chat(folder: Path) -> Conversation:
    batches = json.loads((folder / _CHAT).read_text(encoding="utf-8"))
    asked = json.loads((folder / _QUESTIONS).read_text(encoding="utf-8"))
    sessions = {f"{folder.name}-{one['batch_number']}": _session(one) for one in batches}
    turns = {turn for messages in sessions.values() for turn, _ in messages}
    questions = [
        Question(one["question"], category.replace("_", " "), evidence, _answer(one))
        for category, some in asked.items()
        if category not in _LEFT_OUT
        for one in some
        if (evidence := frozenset(_ids(one.get("source_chat_ids"))) & turns)
    ]
    return Conversation(folder.name, sessions, questions)


def _session(batch: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """A batch's messages; a day stands at the first of those that were said on it."""
    messages = []
    day = None
    for place, one in enumerate(one for turn in batch["turns"] for one in turn):
        if named := one.get("time_anchor"):
            day = datetime.strptime(named, "%B-%d-%Y").replace(tzinfo=UTC)
        message = {"role": one["role"], "content": _PLAN.sub("", one["content"])}
        if day is not None:
            message["created_at"] = day + place * BETWEEN
        messages.append((str(one["id"]), message))
    return messages


def _answer(question: dict[str, Any]) -> str:
    """The right answer, under the name that its category has for it."""
    return next((str(question[name]) for name in _ANSWERS if question.get(name)), "")


def _ids(named: object) -> Iterator[str]:
    """The messages that a question names, in lists or under names."""
    if isinstance(named, dict):
        named = list(named.values())
    if isinstance(named, list):
        for one in named:
            yield from _ids(one)
    elif named is not None:
        yield str(named)
