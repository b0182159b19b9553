"""What is sought, as one query for each view, and their answers as hits. No I/O.

Every query names the best of all views first (`prefetch`) and then has them all scored by its own
view, so that one request gives each candidate's score in each view.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.core.records import Hit
from agent_memory.retrieval.beside import estimated
from agent_memory.retrieval.features import Query
from agent_memory.retrieval.views import MEANINGS, VIEWS, WORDS
from agent_memory.stores.damage import undamaged
from agent_memory.stores.qdrant.points import record_at, where

if TYPE_CHECKING:
    from qdrant_client import models

_SHARDS = 16
"""Each shard has its own candidates; of a collection with more of them, the last are cut off."""


def queries(owner: str, query: Query, depth: int) -> dict[str, models.QueryRequest]:
    """By view, what to ask of it; views that nothing is sought in are left out."""
    from qdrant_client import models

    owned = where(owner=owner)
    asked = dict(_asked(query, owned))
    best = [
        models.Prefetch(query=query, using=view, params=params, filter=owned, limit=depth)
        for view, (query, params) in asked.items()
    ]
    # a vector scores every candidate, words only those that have one of them
    whole = [view for view in asked if view in MEANINGS][:1] or list(asked)
    return {
        view: models.QueryRequest(
            prefetch=best,
            query=query,
            using=view,
            params=params,
            filter=owned,
            limit=len(asked) * depth * _SHARDS,
            with_payload=view in whole,
        )
        for view, (query, params) in asked.items()
    }


def hits(answers: Mapping[str, Sequence[models.ScoredPoint]], depth: int, block: str) -> list[Hit]:
    """The `depth` best of each view, with what every view gives them.

    Args:
        answers: Of each view, best first.
        depth: As in `queries`.
        block: Whose they are.
    """
    scores = {view: {point.id: point.score for point in answers[view]} for view in answers}
    payloads = {
        point.id: point.payload
        for points in answers.values()
        for point in points
        if point.payload is not None
    }
    found = dict.fromkeys(
        point.id for points in answers.values() for point in points[:depth] if point.score > 0
    )

    def hit(name: Any) -> Hit:
        row = tuple(float(scores.get(view, {}).get(name, 0.0)) for view in VIEWS)
        return Hit(record_at(payloads[name], block), row)

    # not those deleted while it was searched
    return undamaged([name for name in found if name in payloads], hit)


def with_beside(found: list[Hit], query: Query, count: int, depth: int) -> list[Hit]:
    """What a server found, and what the question names beside it.

    How rare words are on the server nobody tells: so they count as rare as they are beside it,
    among all that there is.

    Args:
        found: By the server.
        query: The question.
        count: How many records the owner has there, about.
        depth: As in `queries`.
    """
    beside = query.beside
    if beside is None or depth <= 0:
        return found
    there = {hit.record.id for hit in found}
    ids, scores = estimated(beside, query.meaning, count, depth)
    rows = zip(ids, scores.tolist(), strict=True)
    more = [Hit(beside.records[name], tuple(row)) for name, row in rows if name not in there]
    return [*found, *more]


def _asked(
    query: Query, owned: models.Filter
) -> Iterator[tuple[str, tuple[Any, models.SearchParams | None]]]:
    from qdrant_client import models

    if query.words:
        terms = list(query.words)
        words = models.SparseVector(indices=terms, values=[1.0] * len(terms))
        # servers before 1.19 pass it over, and count how rare a word is over the collection
        rarity = models.SearchParams(idf=models.IdfCorpusParams(corpus=owned))
        for view in WORDS:
            yield view, (models.NearestQuery(nearest=words), rarity)
    if len(query.meaning):
        vector = query.meaning.tolist()
        for view in MEANINGS:
            yield view, (models.NearestQuery(nearest=vector), None)
