"""`Fact`, which results from one or several claims: its score, similarity and staleness."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from agent_memory.core.records import Source
from agent_memory.core.settings_model import Duration, Range, SettingsModel, Weight
from agent_memory.core.text import word_lists
from agent_memory.ltm_blocks.extractive.history.claims import Claim, Kind
from agent_memory.ltm_blocks.extractive.history.periods import Period, Precision, written
from agent_memory.retrieval.words import words

if TYPE_CHECKING:
    import numpy as np

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
        total = sum(getattr(self, name) for name in values)
        return {
            name: getattr(self, name) * value / total if total else 0.0
            for name, value in values.items()
        }


ALIKE = 0.35
"""Minimum similarity, of words or of vectors, at which a model is asked to compare two facts."""

_MOST_CACHED = 10_000
_MARKS = ".,;:!?\"'`()[]{}<>"
_MORE_MARKS = "\u2026\u00a1\u00ab\u00bb\u00bf\u201c\u201d\u201e\u2018\u2013\u2014\u3001\u3002"
_SMALL, _CLAUSES, _PLACING = (
    frozenset(word_lists()[f"fact {kind} words"]) for kind in ("small", "clause", "placing")
)


@lru_cache(_MOST_CACHED)
def key_of(text: str) -> str:
    """Return a text in lower case, with single blanks and without punctuation around words."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    return " ".join(bare for word in folded.split() if (bare := word.strip(_MARKS + _MORE_MARKS)))


@lru_cache(_MOST_CACHED)
def gist(text: str) -> tuple[tuple[str, ...], ...]:
    """Return all significant words, by clause. Texts with different gists differ in meaning.

    The gist ignores the order of a clause's prepositional phrases: "at Acme", "as an engineer".
    """
    clauses: list[list[str]] = [[""]]
    for word in key_of(text).split():
        if word in _CLAUSES:
            clauses.append([word])
        elif word in _PLACING:
            clauses[-1].append(word)
        elif word not in _SMALL:
            clauses[-1][-1] += f" {word}"
    return tuple(tuple(sorted(phrases)) for phrases in clauses)


def candidates(
    text: str,
    kind: tuple[str, str],
    others: Sequence[str],
    kinds_of_others: Sequence[tuple[str, str]],
    cosine: np.ndarray,
) -> list[tuple[int, float]]:
    """Return the indexes and similarities of older texts that a new text may repeat or change.

    Such an older text has the same kind (subject and category), or is similar in words or meaning
    (`cosine`). The most similar text comes first.
    """
    bag, near_by = _bag(text), cosine.tolist()
    likeness = [max(near_by[at], _share(bag, _bag(other))) for at, other in enumerate(others)]
    near = [at for at, each in enumerate(likeness) if each >= ALIKE or kind == kinds_of_others[at]]
    return [(at, likeness[at]) for at in sorted(near, key=lambda at: -likeness[at])]


def most_alike(texts: Sequence[str], messages: Sequence[str], limit: int) -> list[int]:
    """Return the indexes of the older texts that messages may repeat or change, ascending.

    At most `limit` texts are returned: those that share the rarest words with the messages (by
    inverse document frequency, Sparck Jones, 1972). Ties go to the later text.
    """
    if len(texts) <= limit:
        return list(range(len(texts)))
    bags = [_bag(text) for text in texts]
    heard = frozenset(word for text in messages for word in words(text))
    counts = Counter(word for bag in bags for word in bag)
    weights = [sum(math.log(1 + len(texts) / counts[word]) for word in bag & heard) for bag in bags]
    best = sorted(range(len(texts)), key=lambda at: (-weights[at], -at))
    return sorted(best[:limit])


@lru_cache(_MOST_CACHED)
def _bag(text: str) -> frozenset[str]:
    return frozenset(words(text))


def _share(first: frozenset[str], second: frozenset[str]) -> float:
    least = min(len(first), len(second))
    return len(first & second) / least if least else 0.0


@dataclass(frozen=True, slots=True)
class Stale:
    """A fact that is not worth recalling.

    Attributes:
        why: "duplicate": another fact says the same. "old": not stated again for `max_age`.
            "expired": not stated again for the `ttl` of its category.
        of: The fact that a duplicate repeats.
    """

    fact: Fact
    why: Literal["duplicate", "old", "expired"]
    of: Fact | None = None


class StalenessDetector(SettingsModel):
    """Finds near-duplicate and old facts. They are not recalled, but stay in the history.

    Near-duplicates have the same significant words, including names, numbers and negations, and are
    true at the same time. Of two near-duplicates, the fact that the user stated stays. If this does
    not decide, the fact that was stated more often stays, or else the fact that was stated last.

    Attributes:
        max_age: How long a fact is recalled, counted from its last statement or its end, whichever
            is later; None for always.
    """

    max_age: Duration | None = None

    def aged(
        self, facts: Sequence[Fact], now: datetime, ttl: Mapping[str, timedelta] | None = None
    ) -> list[Stale]:
        """Return the facts that are old or expired."""
        limits = {category.strip().casefold(): age for category, age in (ttl or {}).items()}
        stale: list[Stale] = []
        for fact in facts if limits or self.max_age is not None else ():
            age, limit = now - last_stated(fact), limits.get(fact.category.casefold())
            if limit is not None and age > limit:
                stale.append(Stale(fact, "expired"))
            elif self.max_age is not None and age > self.max_age:
                stale.append(Stale(fact, "old"))
        return stale

    def duplicates(self, facts: Sequence[Fact]) -> list[Stale]:
        """Return the facts that are near-duplicates of other facts."""
        order = sorted(facts, key=last_stated, reverse=True)
        order.sort(key=lambda fact: (fact.role != "user", -len(fact.evidence)))
        by_gist: dict[tuple[str, tuple[tuple[str, ...], ...]], list[Fact]] = {}
        stale = []
        for fact in order:
            before = by_gist.setdefault((fact.subject.casefold(), gist(fact.text)), [])
            same = next((other for other in before if _meet(fact, other)), None)
            if same is None:
                before.append(fact)
            else:
                stale.append(Stale(fact, "duplicate", same))
        return stale


def _meet(fact: Fact, other: Fact) -> bool:
    """Return whether two facts are true at the same time. Two journeys may be years apart."""
    return any(
        begin < until and since < end
        for begin, end in fact.periods
        for since, until in other.periods
    )


def last_stated(fact: Fact) -> datetime:
    """Return the time of a fact's last statement, or the fact's end if that is later."""
    latest = max(item.recorded_at for item in fact.evidence)
    return latest if fact.valid_to is None else max(latest, fact.valid_to)
