"""`Fact`, which results from one or several claims, and the score that ranks facts."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from agent_memory.core.records import Source
from agent_memory.core.settings_model import Range, SettingsModel, Weight
from agent_memory.ltm_blocks.extractive.history.claims import Claim, Kind
from agent_memory.ltm_blocks.extractive.history.periods import Period, Precision, written

_NEVER = "said since never to have been so"
_NOT_THE_USERS = "not what the user says"

_REMARK = rf"{_NEVER}|{_NOT_THE_USERS}|according to the \w+"
_TIME = r"^\[[^\]]*\d{4}[^\]]*\]\s*"
_REMARKS = re.compile(rf"{_TIME}|(?:\s*\((?:{_REMARK})(?:; (?:{_REMARK}))*\))+\.?$")

Why = Literal["", "refined", "updated", "ended", "contradicted", "outranked"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A source message of a fact.

    Attributes:
        role: The speaker's role.
        model: The model that found the fact.
        prompt: The version of the model's prompt.
        recorded_at: When the fact was stated (UTC).
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
    """A stated fact, with the time in which it was true.

    Attributes:
        id: The id, which stays the same as long as any of the fact's evidence exists.
        block: Name of the block.
        text: A self-contained sentence.
        subject: The person or thing that the fact is about; "user" for the user.
        category: One word.
        confidence: 0 to 1; the highest confidence of the evidence.
        role: The weightiest role of the evidence.
        valid_from: When the fact became true (UTC); None if unknown.
        valid_to: When the fact stopped being true, exclusive; None while no end is known.
        recorded_at: When the fact was first stated.
        superseded_at: When the fact was superseded; None if it was not superseded.
        superseded_by: Id of the fact that superseded this fact.
        why: How the fact was superseded: "refined" by a fact that includes it, "updated", "ended",
            "contradicted", or "outranked" by a weightier role; empty if it was not.
        evidence: The sources, oldest first.
        periods: The periods in which the fact was true. There are several periods if another fact
            replaced it for a while.
        field: The field of a profile that the fact fills.
        value: The field's value, as JSON.
        kind: "event", "state" or "plan"; empty if unknown.
        when: The words that state the fact's time, if they are too vague for a date.
        precision: The precision of `valid_from`: "month" or "day" if 1 January or the first of a
            month is meant as such.
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
    precision: Precision = "year"

    @property
    def sources(self) -> tuple[Source, ...]:
        """`(session_id, seq)` of the source messages."""
        return tuple(dict.fromkeys((item.session_id, item.seq) for item in self.evidence))

    @property
    def quote(self) -> str:
        """The verbatim quote of the first evidence."""
        return self.evidence[0].quote

    def holds(self, at: datetime) -> bool:
        """Return whether the fact was true at a time."""
        return any(begin <= at < end for begin, end in self.periods)

    def is_current(self, at: datetime) -> bool:
        """Return whether the fact is worth knowing at a time.

        Such a fact is true, will be true, or ended without being superseded. A finished journey is
        current. A replaced fact is not.
        """
        if not self.periods:
            return False
        if self.superseded_at is not None and self.periods[-1][1] <= at:
            return False
        begun = (self.valid_from or self.periods[0][0]) <= at
        return self.holds(at) or not begun or self.periods[-1][1] <= at

    @property
    def time(self) -> str:
        """The time of the fact in words. If this time is unknown, the time of the statement."""
        stated = f"said {self.recorded_at:%Y-%m-%d}"
        dates = written(self.valid_from, self.valid_to, self.precision)
        if self.kind == "plan" and self.valid_from is not None:
            return f"planned for {dates.removeprefix('since ')}"
        time = dates or (f'"{self.when}", {stated}' if self.when else stated)
        return f"planned, {time}" if self.kind == "plan" else time


def rendered(fact: Fact) -> str:
    """Return a fact as text for a model.

    Facts that are contradicted, outranked or not from the user are marked.
    """
    remarks = []
    if fact.why == "contradicted":
        remarks.append(_NEVER)
    elif fact.why == "outranked":
        remarks.append(_NOT_THE_USERS)
    if fact.role != "user":
        remarks.append(f"according to the {fact.role}")
    return f"{fact.text} ({'; '.join(remarks)})" if remarks else fact.text


def listed(fact: Fact | Claim) -> str:
    """Return a fact as a line of text for a model that compares facts."""
    about = ("" if fact.subject == "user" else fact.subject, fact.category, fact.kind)
    stated = "" if fact.valid_from else f"said {fact.recorded_at:%Y-%m-%d}"
    time = filter(None, (written(fact.valid_from, fact.valid_to, fact.precision), stated))
    return f"{', '.join(filter(None, about))} [{', '.join(time)}]: {fact.text}"


def unmarked(text: str) -> str:
    """Return a fact's text without the time and remarks that a model may have copied with it."""
    return _REMARKS.sub("", text) or text


class ImportanceScorer(SettingsModel):
    """Scores facts by the weighted mean of six factors from 0 to 1. The weight 0 disables a factor.

    The score follows the retrieval of Park et al., "Generative Agents", 2023 (relevance, recency,
    importance). Data from the log replaces a model's guesses.

    Attributes:
        relevance: Weight of the probability that the fact is relevant to the question.
        recency: Weight of recency, which halves every `half_life_days` after the last statement.
        use: Weight of the number of messages that state the fact: log2(1 + messages) / 4, at most
            1.
        confidence: Weight of the model's confidence.
        recalled: Weight of the number of contexts that included the fact: log2(1 + contexts) / 4,
            at most 1. Counting needs a write for each context.
        distinct: Weight of the rarity of the fact's words among the user's facts.
        half_life_days: Half-life of recency, in days.
    """

    relevance: Weight = 1.0
    recency: Weight = 0.1
    use: Weight = 0.05
    confidence: Weight = 0.1
    recalled: Weight = 0.0
    distinct: Weight = 0.0
    half_life_days: Annotated[float, Range(0, 1_000_000, above=True)] = 90.0

    def factors(
        self,
        relevance: float,
        age_days: float,
        mentions: int,
        confidence: float,
        recalled: int = 0,
        distinct: float = 0.0,
    ) -> dict[str, float]:
        """Return each factor's contribution to the score, by name.

        Args:
            relevance, confidence, distinct: 0 to 1.
            age_days: Days since the fact was last stated.
            mentions: Number of messages that state the fact.
            recalled: Number of contexts that included the fact.
        """
        values = {
            "relevance": relevance,
            "recency": 0.5 ** (max(0.0, age_days) / self.half_life_days),
            "use": min(1.0, math.log2(1 + mentions) / 4),
            "confidence": confidence,
            **({"recalled": min(1.0, math.log2(1 + recalled) / 4)} if self.recalled else {}),
            **({"distinct": distinct} if self.distinct else {}),
        }
        whole = sum(getattr(self, name) for name in values)
        return {
            name: getattr(self, name) * value / whole if whole else 0.0
            for name, value in values.items()
        }
