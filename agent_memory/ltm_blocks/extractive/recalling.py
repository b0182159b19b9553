"""Ranking of an owner's facts for a question; see `ImportanceScorer`."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType

import numpy as np

from agent_memory.core.lazy import lazy_property
from agent_memory.core.records import Recall, Source
from agent_memory.core.text import terms
from agent_memory.ltm_blocks.extractive.history.fact import (
    Fact,
    ImportanceScorer,
    Stale,
    StalenessDetector,
    last_stated,
    rendered,
)
from agent_memory.retrieval.index import TextIndex
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.vectors import encoding_of

_SECONDS_A_DAY = 86_400
_OVERTAKEN = ("updated", "ended", "contradicted")


class Remembered:
    """The facts of one owner at one version, with the unit vectors that a recall needs."""

    def __init__(self, facts: Sequence[Fact], vectors: np.ndarray) -> None:
        self.facts = facts
        texts = [f"{fact.subject} {fact.category} {fact.text}" for fact in facts]
        self.index = TextIndex(texts, [*map(encoding_of, vectors)])
        self._stated_at = [last_stated(fact).timestamp() for fact in facts]
        self._duplicates: tuple[list[Fact], list[Stale]] = ([], [])

    def current(self, now: datetime) -> list[int]:
        """Return the indexes of the current facts."""
        return [place for place, fact in enumerate(self.facts) if fact.is_current(now)]

    def outdated(self, now: datetime) -> dict[Source, datetime]:
        """Return the messages whose facts were all updated, ended or contradicted.

        The value for a message is the time of the last of these changes.
        """
        since: dict[Source, datetime] = {}
        holding: set[Source] = set()
        for fact in self.facts:
            if fact.superseded_at is None or fact.why not in _OVERTAKEN or fact.is_current(now):
                holding.update(fact.sources)
                continue
            for source in fact.sources:
                since[source] = max(since.get(source, fact.superseded_at), fact.superseded_at)
        return {source: at for source, at in since.items() if source not in holding}

    def stale(
        self, now: datetime, detector: StalenessDetector, ttl: Mapping[str, timedelta]
    ) -> list[Stale]:
        """Return the current facts that are not worth recalling."""
        current = [self.facts[place] for place in self.current(now)]
        aged = detector.aged(current, now, ttl)
        stale = {item.fact.id for item in aged}
        fresh = [fact for fact in current if fact.id not in stale]
        cached = self._duplicates
        if cached[0] != fresh:  # the set of current facts changes rarely
            cached = self._duplicates = fresh, detector.duplicates(fresh)
        return aged + cached[1]

    @lazy_property
    def distinct(self) -> list[float]:
        """Return for each fact how rare its words are among all facts, 0 to 1."""
        term_sets = [set(terms(fact.text)) for fact in self.facts]
        holding = Counter(term for some in term_sets for term in some)
        most = math.log(1 + len(term_sets))
        return [
            sum(math.log((1 + len(term_sets)) / holding[term]) for term in some) / len(some) / most
            if some
            else 0.0
            for some in term_sets
        ]

    def recalls(
        self,
        places: Sequence[int],
        query: Query | None,
        scorer: ImportanceScorer,
        now: datetime,
        limit: int,
        recalled: Mapping[str, int] = MappingProxyType({}),
    ) -> list[Recall]:
        """Return the best of the facts at `places`, best first.

        `recalled` has the number of contexts that included each fact, by id.
        """
        relevance = (self.index.relevance(query) if query else np.zeros(len(self.facts))).tolist()

        def factors(place: int) -> dict[str, float]:
            fact = self.facts[place]
            age = (now.timestamp() - self._stated_at[place]) / _SECONDS_A_DAY
            distinct = self.distinct[place] if scorer.distinct else 0.0
            count = recalled.get(fact.id, 0)
            return scorer.factors(
                relevance[place], age, len(fact.evidence), fact.confidence, count, distinct
            )

        scores = {place: sum(factors(place).values()) for place in places}
        best = heapq.nlargest(limit, places, key=lambda place: (scores[place], -place))
        return [
            _recall(self.facts[place], factors(place), relevance[place] if query else None)
            for place in best
        ]


def _recall(fact: Fact, factors: dict[str, float], relevance: float | None) -> Recall:
    return Recall(
        block=fact.block,
        id=fact.id,
        text=rendered(fact),
        score=sum(factors.values()),
        created_at=fact.valid_from or fact.recorded_at,
        time=fact.time,
        sources=fact.sources,
        metadata={
            "category": fact.category,
            "subject": fact.subject,
            "role": fact.role,
            "quote": fact.quote,
            "confidence": fact.confidence,
        },
        views=factors,
        relevance=relevance,
    )
