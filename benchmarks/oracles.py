"""Conversations, each with an oracle by hand: what is to be known after it, and what never.

Those of this project stand in `benchmarks/told`, one JSON file each; benchmarks/MODELS.md tells
their form. LoCoMo's file is read too (see `conversations`): of it only questions and evidence are
known.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from benchmarks import conversations
from benchmarks.conversations import ADVERSARIAL, BETWEEN, Conversation
from benchmarks.wording import says

TOLD = Path(__file__).with_name("told")

Turns = frozenset[str]


def _dated(date: str) -> str:
    if date != "none":
        datetime.strptime(date, "%Y-%m-%d"[: {4: 2, 7: 5}.get(len(date), 8)])
    return date


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sign(_Form):
    """By which words a fact is known.

    Attributes:
        keywords: All of them are in it; `a|b` is either, `a&b` both. They begin where a word does.
        without: None of these is.
        why: What kind of thing it is, or why it must not be there.
        evidence: The numbers of the messages that say it.
        date: Of an expected fact: the day, month or year on which it began or is to be; "none"
            where nothing of it is said; None where it is not judged.
        again: Of an expected fact: it is said more than once, and is one fact all the same.
    """

    keywords: tuple[str, ...] = Field(min_length=1)
    without: tuple[str, ...] = ()
    why: str = ""
    evidence: tuple[int, ...] = ()
    date: Annotated[str, AfterValidator(_dated)] | None = None
    again: bool = False

    def fits(self, text: str) -> bool:
        """Whether a text says it."""
        return all(says(text, one) for one in self.keywords) and not any(
            says(text, one) for one in self.without
        )


class Asked(_Form):
    """A question; `answer` are keywords as a `Sign` has them, none where they are not known."""

    question: str
    answer: tuple[str, ...] = ()
    evidence: tuple[int, ...] = Field(min_length=1)


class _Session(_Form):
    at: datetime
    messages: tuple[tuple[int, str, str], ...]


class _File(_Form):
    name: str
    about: str
    user: str
    assistant: str
    sessions: tuple[_Session, ...]
    facts: tuple[Sign, ...]
    never: tuple[Sign, ...]
    gone: tuple[Sign, ...]
    questions: tuple[Asked, ...]


@dataclass(frozen=True)
class Told:
    """A conversation and what is known of it.

    Attributes:
        sessions: For each session, its messages in order, with their turns' ids.
        of_user: The turns that the user said.
        facts: Those to be found.
        never: What must never be a fact.
        gone: What must not be a current fact at the end.
        questions: Each with its keywords, and the turns that hold its answer.
    """

    name: str
    sessions: dict[str, list[tuple[str, dict[str, Any]]]]
    questions: tuple[tuple[str, tuple[str, ...], Turns], ...]
    facts: tuple[Sign, ...] = ()
    never: tuple[Sign, ...] = ()
    gone: tuple[Sign, ...] = ()
    of_user: Turns = field(init=False)

    def __post_init__(self) -> None:
        said = (one for messages in self.sessions.values() for one in messages)
        users = frozenset(turn for turn, message in said if message["role"] == "user")
        object.__setattr__(self, "of_user", users)

    @property
    def evidence(self) -> Turns:
        """What the user said that a fact or an answer rests on."""
        needed = {turn for *_, turns in self.questions for turn in turns}
        return self.of_user & (needed | {str(n) for one in self.facts for n in one.evidence})

    def first(self, messages: int) -> Told:
        """Only so many messages of it, and what is known from them."""
        left, sessions = messages, {}
        for name, said in self.sessions.items():
            if left > 0:
                sessions[name] = said[:left]
            left -= len(said)
        turns = {turn for said in sessions.values() for turn, _ in said}

        def known(signs: tuple[Sign, ...]) -> tuple[Sign, ...]:
            return tuple(one for one in signs if turns.issuperset(map(str, one.evidence)))

        questions = tuple(one for one in self.questions if one[2] <= turns)
        return replace(
            self, sessions=sessions, questions=questions,
            facts=known(self.facts), never=known(self.never), gone=known(self.gone),
        )  # fmt: skip


def read(path: Path) -> list[Told]:
    """The conversations of a file, or of a folder of files.

    Raises:
        ValueError: A file has another form.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    return [one for file in files for one in _of_file(file)]


def _of_file(file: Path) -> list[Told]:
    given = json.loads(file.read_text(encoding="utf-8"))
    if isinstance(given, list):
        return [_of_locomo(one) for one in conversations.read(file)]
    try:
        return [_of_ours(_File.model_validate(given))]
    except ValidationError as error:
        raise ValueError(f"{file} is no conversation with an oracle: {error}") from error


def _of_ours(file: _File) -> Told:
    sessions = {}
    for number, session in enumerate(file.sessions, 1):
        sessions[f"{file.name}-{number}"] = [
            (
                str(turn),
                {
                    "role": role,
                    "name": file.user if role == "user" else file.assistant,
                    "content": text,
                    "created_at": session.at.replace(tzinfo=UTC) + place * BETWEEN,
                },
            )
            for place, (turn, role, text) in enumerate(session.messages)
        ]
    questions = tuple(
        (one.question, one.answer, frozenset(map(str, one.evidence))) for one in file.questions
    )
    return Told(file.name, sessions, questions, file.facts, file.never, file.gone)


def _of_locomo(one: Conversation) -> Told:
    """Only what the user said is looked for, so only questions that this answers are asked."""
    bare = Told(one.name, one.sessions, ())
    questions = tuple(
        (asked.text, (), asked.evidence)
        for asked in one.questions
        if asked.category != ADVERSARIAL and asked.evidence <= bare.of_user
    )
    return replace(bare, questions=questions)
