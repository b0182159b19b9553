"""`Fact`: what claims add up to, as it stands at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from agent_memory.core.records import Source
from agent_memory.ltm_blocks.extractive.history.claims import Claim, Kind
from agent_memory.ltm_blocks.extractive.history.periods import Period, written

_NEVER = "said since never to have been so"
_NOT_THE_USERS = "not what the user says"

_REMARK = rf"{_NEVER}|{_NOT_THE_USERS}|according to the \w+"
_TIME = r"^\[[^\]]*\d{4}[^\]]*\]\s*"
_REMARKS = re.compile(rf"{_TIME}|(?:\s*\((?:{_REMARK})(?:; (?:{_REMARK}))*\))+\.?$")

Why = Literal["", "refined", "updated", "ended", "contradicted", "outranked"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a fact rests on.

    Attributes:
        session_id: The session.
        seq: The message.
        quote: What it says, verbatim.
        role: Who said it.
        model: The model that found it.
        prompt: The version of the prompt that it was asked with.
        recorded_at: When it was said (UTC).
    """

    session_id: str
    seq: int
    quote: str
    role: str
    model: str
    prompt: str
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that was said to be so, with the time in which it was.

    Attributes:
        id: Its id; the same as long as anything it rests on is there.
        block: Name of the block that keeps it.
        text: A sentence that stands alone.
        subject: Of whom or what it tells; "user" for the user.
        category: One word.
        confidence: 0 to 1; the best that it rests on.
        role: Whose word it is: the weightiest that it rests on.
        valid_from: Since when it held (UTC); None where nobody knows.
        valid_to: Until when, that moment excluded; None while no end is known.
        recorded_at: When it was first said.
        superseded_at: When news came that it does not hold any more as it was told; None without.
        superseded_by: Id of the fact that took its place.
        why: What became of it: "refined" by one that says all of it and more, "updated", "ended",
            "contradicted", or "outranked" by what a weightier role says; empty where nothing did.
        evidence: What it rests on, oldest first.
        periods: In which times it held; more than one where another took its place for a while.
        field: The field of a profile that it fills.
        value: With what, as JSON.
        kind: "event", "state" or "plan"; empty where nobody said.
        when: The words that tell its time, where they are too vague for a date.
    """

    id: str
    block: str
    text: str
    subject: str
    category: str
    confidence: float
    role: str
    valid_from: datetime | None
    valid_to: datetime | None
    recorded_at: datetime
    superseded_at: datetime | None
    superseded_by: str | None
    why: Why
    evidence: tuple[Evidence, ...]
    periods: tuple[Period, ...]
    field: str | None = None
    value: Any = None
    kind: Kind = ""
    when: str = ""

    @property
    def sources(self) -> tuple[Source, ...]:
        """`(session_id, seq)` of the messages that it rests on."""
        return tuple(dict.fromkeys((one.session_id, one.seq) for one in self.evidence))

    @property
    def quote(self) -> str:
        """What the first of them says, verbatim."""
        return self.evidence[0].quote

    def holds(self, at: datetime) -> bool:
        """Whether it held at a moment."""
        return any(begin <= at < end for begin, end in self.periods)

    def is_current(self, at: datetime) -> bool:
        """Whether it is to be known at a moment: it holds, or is past or to come and still stands.

        So one whose place another took is not, while a journey that is over is.
        """
        if not self.periods:
            return False
        if self.superseded_at is not None and self.periods[-1][1] <= at:
            return False
        begun = (self.valid_from or self.periods[0][0]) <= at
        return self.holds(at) or not begun or self.periods[-1][1] <= at

    @property
    def time(self) -> str:
        """When it was, is or is planned, as far as that is known; else when it was said."""
        said = f"said {self.recorded_at:%Y-%m-%d}"
        known = written(self.valid_from, self.valid_to)
        if self.kind == "plan" and self.valid_from is not None:
            return f"planned for {known.removeprefix('since ')}"
        told = known or (f'"{self.when}", {said}' if self.when else said)
        return f"planned, {told}" if self.kind == "plan" else told


def rendered(fact: Fact) -> str:
    """A fact as a model is to read it, with whose word it is where that matters."""
    remarks = []
    if fact.why == "contradicted":
        remarks.append(_NEVER)
    elif fact.why == "outranked":
        remarks.append(_NOT_THE_USERS)
    if fact.role != "user":
        remarks.append(f"according to the {fact.role}")
    return f"{fact.text} ({'; '.join(remarks)})" if remarks else fact.text


def listed(one: Fact | Claim) -> str:
    """A fact as it is shown to a model that compares it with others."""
    about = ("" if one.subject == "user" else one.subject, one.category, one.kind)
    said = "" if one.valid_from else f"said {one.recorded_at:%Y-%m-%d}"
    time = filter(None, (written(one.valid_from, one.valid_to), said))
    return f"{', '.join(filter(None, about))} [{', '.join(time)}]: {one.text}"


def unmarked(text: str) -> str:
    """A fact's text without its time and the remarks, which who repeats it repeats too."""
    return _REMARKS.sub("", text) or text
