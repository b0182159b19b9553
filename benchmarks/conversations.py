"""Conversations with questions, as messages that a memory takes; and LoCoMo's, read into that form.

Maharana et al., "Evaluating Very Long-Term Conversational Memory of LLM Agents", ACL 2024. The data
is CC BY-NC 4.0, and is no part of this project.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ADVERSARIAL = "adversarial"
"""The category of questions that have no answer; some name evidence all the same."""

_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: ADVERSARIAL}
_TURN = re.compile(r"D(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")

BETWEEN = timedelta(seconds=30)
"""From one message to the next, where the source dates whole sessions only."""


@dataclass(frozen=True)
class Question:
    """A question and the ids of the turns that hold its answer.

    Attributes:
        answer: The right answer; empty where the source has none.
        asked_at: When it is asked; None for after all that was said.
    """

    text: str
    category: str
    evidence: frozenset[str]
    answer: str = ""
    asked_at: datetime | None = None


@dataclass(frozen=True)
class Conversation:
    """One long conversation.

    Attributes:
        name: Of the conversation.
        sessions: For each session, its messages in order, with their turns' ids.
        questions: Those that have evidence.
    """

    name: str
    sessions: dict[str, list[tuple[str, dict[str, Any]]]]
    questions: list[Question]


def read(file: Path) -> list[Conversation]:
    """The conversations of a file of LoCoMo's."""
    return [_conversation(one) for one in json.loads(file.read_text(encoding="utf-8"))]


def _conversation(given: dict[str, Any]) -> Conversation:
    said = given["conversation"]
    numbers = sorted(int(m[1]) for key in said if (m := _SESSION.fullmatch(key)))
    sessions = {
        f"{given['sample_id']}-{number}": _session(said, number)
        for number in numbers
        if said[f"session_{number}"]
    }
    turns = {turn for messages in sessions.values() for turn, _ in messages}
    questions = [
        Question(
            one["question"], _CATEGORIES[one["category"]], evidence, str(one.get("answer", ""))
        )
        for one in given["qa"]
        if (evidence := _evidence(one) & turns)
    ]
    return Conversation(given["sample_id"], sessions, questions)


def _session(said: dict[str, Any], number: int) -> list[tuple[str, dict[str, Any]]]:
    begun = datetime.strptime(said[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")
    messages = []
    for place, turn in enumerate(said[f"session_{number}"]):
        picture = turn.get("blip_caption")
        message = {
            "role": "user" if turn["speaker"] == said["speaker_a"] else "assistant",
            "name": turn["speaker"],
            "content": turn["text"] + (f" [shares an image: {picture}]" if picture else ""),
            "created_at": begun.replace(tzinfo=UTC) + place * BETWEEN,
        }
        messages.append((turn["dia_id"], message))
    return messages


def _evidence(question: dict[str, Any]) -> frozenset[str]:
    """The turns that a question names; some are written together, or with zeros."""
    named = " ".join(question.get("evidence", []))
    return frozenset(f"D{int(m[1])}:{int(m[2])}" for m in _TURN.finditer(named))
