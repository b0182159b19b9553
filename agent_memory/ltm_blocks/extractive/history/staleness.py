"""`StalenessDetector`: facts that say what another says, and facts that have grown old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent_memory.ltm_blocks.extractive.history.fact import Fact
from agent_memory.ltm_blocks.extractive.history.likeness import gist, jaccard, shingles

if TYPE_CHECKING:
    import numpy as np

Age = Annotated[timedelta, Field(gt=timedelta())]


@dataclass(frozen=True, slots=True)
class Stale:
    """A fact that is not worth recalling.

    Attributes:
        fact: The fact.
        why: "duplicate": another says it. "old": it was not said again for `max_age`. "expired":
            nor for what its category is given (`ttl`).
        of: For a duplicate, the fact that says it.
    """

    fact: Fact
    why: Literal["duplicate", "old", "expired"]
    of: Fact | None = None


class StalenessDetector(BaseModel):
    """Finds near-duplicates and old facts; what it finds is not recalled, and stays in the history.

    Near-duplicates have all words in common that change anything, names, numbers and negations
    among them, and most word shingles (Jaccard) or nearly the same vector; and they hold at the
    same time. The user's own stays, then the one that was said more often, then last.

    Attributes:
        jaccard: Share of two-word shingles from which on two facts say the same.
        cosine: The same for their vectors, given that they have half of `jaccard` in common.
        max_age: How long a fact is recalled after it was last said; None for always.
        report_only: Nothing is kept from being recalled; `User.stale` tells all the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    jaccard: float = Field(default=0.8, gt=0, le=1)
    cosine: float = Field(default=0.92, gt=0, le=1)
    max_age: Age | None = None
    report_only: bool = False

    def find(
        self,
        facts: Sequence[Fact],
        vectors: np.ndarray,
        now: datetime,
        ttl: Mapping[str, timedelta] | None = None,
    ) -> list[Stale]:
        """The stale ones of facts that are current.

        Args:
            facts: The facts.
            vectors: (n, dimension) what each means, of unit length; no columns without an embedder.
            now: When they are to be recalled.
            ttl: For a category, how long after they were last said its facts are recalled.
        """
        aged = self.aged(facts, now, ttl)
        gone = {one.fact.id for one in aged}
        fresh = [place for place, fact in enumerate(facts) if fact.id not in gone]
        return aged + self.duplicates([facts[place] for place in fresh], vectors[fresh])

    def aged(
        self, facts: Sequence[Fact], now: datetime, ttl: Mapping[str, timedelta] | None = None
    ) -> list[Stale]:
        """Those of `find` that have grown old."""
        limits = {category.strip().casefold(): age for category, age in (ttl or {}).items()}
        found: list[Stale] = []
        for fact in facts if limits or self.max_age is not None else ():
            age, limit = now - last_said(fact), limits.get(fact.category.casefold())
            if limit is not None and age > limit:
                found.append(Stale(fact, "expired"))
            elif self.max_age is not None and age > self.max_age:
                found.append(Stale(fact, "old"))
        return found

    def duplicates(self, facts: Sequence[Fact], vectors: np.ndarray) -> list[Stale]:
        """Those of `find` that another says."""
        order = sorted(
            range(len(facts)),
            key=lambda at: (
                facts[at].role != "user",
                -len(facts[at].evidence),
                -last_said(facts[at]).timestamp(),
                at,
            ),
        )
        said = {at: shingles(facts[at].text) for at in order}
        by_gist: dict[tuple[str, tuple[tuple[str, ...], ...]], list[int]] = {}
        found = []
        for at in order:
            fact = facts[at]
            before = by_gist.setdefault((fact.subject.casefold(), gist(fact.text)), [])
            same = next(
                (
                    other
                    for other in before
                    if self._alike(said, vectors, at, other) and _meet(fact, facts[other])
                ),
                None,
            )
            if same is None:
                before.append(at)
            else:
                found.append(Stale(fact, "duplicate", facts[same]))
        return found

    def _alike(
        self,
        said: Mapping[int, frozenset[tuple[str, str]]],
        vectors: np.ndarray,
        one: int,
        other: int,
    ) -> bool:
        common = jaccard(said[one], said[other])
        return common >= self.jaccard or (
            common >= self.jaccard / 2 and bool(vectors[one] @ vectors[other] >= self.cosine)
        )


def _meet(one: Fact, other: Fact) -> bool:
    """Whether there is a time in which both hold: two journeys to one place are two."""
    return any(
        begin < until and since < end
        for begin, end in one.periods
        for since, until in other.periods
    )


def last_said(fact: Fact) -> datetime:
    """When it was last said, or its end, if that is later: plans grow old once they are over."""
    said = max(one.recorded_at for one in fact.evidence)
    return said if fact.valid_to is None else max(said, fact.valid_to)
