"""Similarity of facts, and the detection of near-duplicate and old facts. Pure."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Literal

from agent_memory.core.settings_model import Duration, SettingsModel
from agent_memory.ltm_blocks.extractive.history.fact import Fact
from agent_memory.retrieval.words import words

if TYPE_CHECKING:
    import numpy as np

ALIKE = 0.35
"""Minimum similarity, of words or of vectors, at which a model is asked to compare two facts."""

_MOST_KNOWN = 10_000
_MARKS = ".,;:!?\"'`()[]{}<>"
_MORE_MARKS = "\u2026\u00a1\u00ab\u00bb\u00bf\u201c\u201d\u201e\u2018\u2013\u2014\u3001\u3002"
_SMALL_WORDS = "a also am an are is just really the user very"
_CLAUSE_WORDS = "and but or that where which while who whose"
_PLACING_WORDS = (
    "about after against along among around as at before behind below between by during for from "
    "in into near of off on over since through till to towards under until with within without"
)
_SMALL, _CLAUSES, _PLACING = (
    frozenset(some.split()) for some in (_SMALL_WORDS, _CLAUSE_WORDS, _PLACING_WORDS)
)


@lru_cache(_MOST_KNOWN)
def key_of(text: str) -> str:
    """Return a text in lower case, with single blanks and without punctuation around words."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    return " ".join(bare for word in folded.split() if (bare := word.strip(_MARKS + _MORE_MARKS)))


@lru_cache(_MOST_KNOWN)
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

    Such an older text has the same kind, or is similar in words or meaning. The most similar text
    comes first.

    Args:
        kind: The subject and the category of the new text.
        cosine: For each older text, the cosine similarity to the new text.
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
    weights = [sum(log(1 + len(texts) / counts[word]) for word in bag & heard) for bag in bags]
    best = sorted(range(len(texts)), key=lambda at: (-weights[at], -at))
    return sorted(best[:limit])


@lru_cache(_MOST_KNOWN)
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
            age, limit = now - last_said(fact), limits.get(fact.category.casefold())
            if limit is not None and age > limit:
                stale.append(Stale(fact, "expired"))
            elif self.max_age is not None and age > self.max_age:
                stale.append(Stale(fact, "old"))
        return stale

    def duplicates(self, facts: Sequence[Fact]) -> list[Stale]:
        """Return the facts that are near-duplicates of other facts."""
        order = sorted(facts, key=last_said, reverse=True)
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


def last_said(fact: Fact) -> datetime:
    """Return the time of a fact's last statement, or the fact's end if that is later."""
    latest = max(item.recorded_at for item in fact.evidence)
    return latest if fact.valid_to is None else max(latest, fact.valid_to)
