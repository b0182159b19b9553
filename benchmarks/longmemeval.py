"""LongMemEval's questions, each with a haystack of sessions, read into `conversations`' form.

Wu et al., "LongMemEval: Benchmarking Chat Assistants on Long-Term Interactive Memory", ICLR 2025
(arXiv:2410.10813). The data is no part of this project. It is read as it is published: a JSON list
of questions, such as `longmemeval_s.json` and `longmemeval_oracle.json`. Left out are the questions
that have no answer (their ids end in `_abs`).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.conversations import BETWEEN, Conversation, Question


def is_longmemeval(given: Any) -> bool:
    """Whether decoded JSON is such a list."""
    return isinstance(given, list) and bool(given) and "haystack_sessions" in given[0]


def read(file: Path) -> list[Conversation]:
    """A conversation for each question of a file."""
    given = json.loads(file.read_text(encoding="utf-8"))
    return [_conversation(one) for one in given if not one["question_id"].endswith("_abs")]


def _conversation(given: dict[str, Any]) -> Conversation:
    sessions: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    evidence = set[str]()
    parts = zip(
        given["haystack_session_ids"],
        given["haystack_dates"],
        given["haystack_sessions"],
        strict=True,
    )
    for number, (name, day, said) in enumerate(parts):
        begun, messages = _time(day), []
        for place, one in enumerate(said):
            turn = f"{name}:{number}:{place}"
            message = {
                "role": one["role"],
                "content": one["content"],
                "created_at": begun + place * BETWEEN,
            }
            messages.append((turn, message))
            if one.get("has_answer"):
                evidence.add(turn)
        sessions[f"{given['question_id']}-{number}"] = messages
    question = Question(
        given["question"],
        given["question_type"],
        frozenset(evidence),
        str(given["answer"]),
        _time(given["question_date"]),
    )
    return Conversation(given["question_id"], sessions, [question])


def _time(day: str) -> datetime:
    """A date as the data has it: "2023/05/20 (Sat) 02:21"."""
    return datetime.strptime(day, "%Y/%m/%d (%a) %H:%M").replace(tzinfo=UTC)
