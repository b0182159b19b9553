"""Read LoCoMo's, BEAM's and LongMemEval's data as messages and questions.

- LoCoMo: a JSON file. Maharana et al., "Evaluating Very Long-Term Conversational Memory of LLM
  Agents", ACL 2024; CC BY-NC 4.0.
- BEAM: a folder with a folder for each chat. Tavakoli et al., "Beyond a Million Tokens", 2025
  (arXiv:2510.27246); CC BY-SA 4.0. Left out: questions without an answer, or for a summary of all.
- LongMemEval: a JSON list of questions, each with its own sessions. Wu et al., ICLR 2025
  (arXiv:2410.10813). Questions without an answer are left out (their ids end in `_abs`).

The data is not part of this project.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ADVERSARIAL = "adversarial"
"""The category of questions without an answer. Some of them name evidence nevertheless."""

_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: ADVERSARIAL}
_TURN = re.compile(r"D(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")

_CHAT = "chat.json"
_QUESTIONS = Path("probing_questions", "probing_questions.json")
_LEFT_OUT = ("abstention", "summarization")
_ANSWERS = ("answer", "ideal_answer", "ideal_response", "expected_compliance", "rubric")
_PLAN = re.compile(r"\s*->->.*$", re.DOTALL)  # the plan's points for a message

BETWEEN = timedelta(seconds=30)
"""The time between two messages, if the source dates only sessions or days."""


@dataclass(frozen=True)
class Question:
    """A question and the ids of the turns that hold its answer.

    `answer` is empty if the source has none. Without `asked_at`, the question follows the last
    message.
    """

    text: str
    category: str
    evidence: frozenset[str]
    answer: str = ""
    asked_at: datetime | None = None


@dataclass(frozen=True)
class Conversation:
    """A long conversation: its sessions with the ids of their turns, and its questions."""

    name: str
    sessions: dict[str, list[tuple[str, dict[str, Any]]]]
    questions: list[Question]


def read(path: Path) -> list[Conversation]:
    """Read a file or folder in any of the three formats."""
    if path.is_dir():
        chats = sorted(path.glob(f"*/{_CHAT}"), key=lambda file: _number(file.parent.name))
        return [_beam(file.parent) for file in chats]
    given: Any = json.loads(path.read_text(encoding="utf-8"))
    if given and "haystack_sessions" in given[0]:
        return [_longmemeval(one) for one in given if not one["question_id"].endswith("_abs")]
    return [_locomo(one) for one in given]


def _locomo(given: dict[str, Any]) -> Conversation:
    said = given["conversation"]
    numbers = sorted(int(m[1]) for key in said if (m := _SESSION.fullmatch(key)))
    sessions = {
        f"{given['sample_id']}-{number}": _locomo_session(said, number)
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


def _locomo_session(said: dict[str, Any], number: int) -> list[tuple[str, dict[str, Any]]]:
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
    """Return the turns that a question names, such as "D1:3". One text may name several turns."""
    named = " ".join(question.get("evidence", []))
    return frozenset(f"D{int(m[1])}:{int(m[2])}" for m in _TURN.finditer(named))


def _number(name: str) -> tuple[int, str]:
    return (int(name) if name.isdecimal() else 0, name)


def _beam(folder: Path) -> Conversation:
    batches = json.loads((folder / _CHAT).read_text(encoding="utf-8"))
    asked = json.loads((folder / _QUESTIONS).read_text(encoding="utf-8"))
    sessions = {f"{folder.name}-{one['batch_number']}": _beam_session(one) for one in batches}
    turns = {turn for messages in sessions.values() for turn, _ in messages}
    questions = [
        Question(one["question"], category.replace("_", " "), evidence, _answer(one))
        for category, some in asked.items()
        if category not in _LEFT_OUT
        for one in some
        if (evidence := frozenset(_ids(one.get("source_chat_ids"))) & turns)
    ]
    return Conversation(folder.name, sessions, questions)


def _beam_session(batch: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return a batch's messages. Only the first message of each day has the date."""
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
    """Return the right answer. Its field's name depends on the category."""
    return next((str(question[name]) for name in _ANSWERS if question.get(name)), "")


def _ids(named: object) -> Iterator[str]:
    """Yield the ids of messages in nested lists and dicts."""
    if isinstance(named, dict):
        named = list(named.values())
    if isinstance(named, list):
        for one in named:
            yield from _ids(one)
    elif named is not None:
        yield str(named)


def _longmemeval(given: dict[str, Any]) -> Conversation:
    sessions: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    evidence = set[str]()
    columns = ("haystack_session_ids", "haystack_dates", "haystack_sessions")
    parts = zip(*(given[column] for column in columns), strict=True)
    for number, (name, day, said) in enumerate(parts):
        begun, messages = _longmemeval_time(day), []
        for place, one in enumerate(said):
            turn = f"{name}:{number}:{place}"
            said_at = begun + place * BETWEEN
            message = {"role": one["role"], "content": one["content"], "created_at": said_at}
            messages.append((turn, message))
            if one.get("has_answer"):
                evidence.add(turn)
        sessions[f"{given['question_id']}-{number}"] = messages
    question = Question(
        given["question"],
        given["question_type"],
        frozenset(evidence),
        str(given["answer"]),
        _longmemeval_time(given["question_date"]),
    )
    return Conversation(given["question_id"], sessions, [question])


def _longmemeval_time(day: str) -> datetime:
    """Return the time for a text such as "2023/05/20 (Sat) 02:21"."""
    return datetime.strptime(day, "%Y/%m/%d (%a) %H:%M").replace(tzinfo=UTC)
