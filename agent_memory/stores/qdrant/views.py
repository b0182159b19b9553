"""A query as requests to a server, and its answers as candidates. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from typing import TYPE_CHECKING, Any

from agent_memory.core.records import Hit, Record
from agent_memory.retrieval.query import Query
from agent_memory.stores.damage import undamaged
from agent_memory.stores.indexes import hits
from agent_memory.stores.qdrant.points import MEANING, WORDS, features_at, record_at, where

if TYPE_CHECKING:
    from qdrant_client import models

_REACH = 8  # the seqs on each side of a candidate that are searched for neighbours
_LEAST_COUNT = 0.5


def queries(owner: str, query: Query, depth: int) -> list[models.QueryRequest]:
    """Return the requests of a query.

    They find the nearest records by meaning, those with most of its words, and for each word the
    record with its highest weight. The last kind reveals the rarity of a word.

    Args:
        owner: The owner of the records.
        query: The query.
        depth: The number of candidates by meaning and by words.
    """
    from qdrant_client import models

    owned = where(owner=owner)
    # Servers before 1.19 ignore it, and compute the rarity of words over the collection.
    rarity = models.SearchParams(idf=models.IdfCorpusParams(corpus=owned))

    def words(numbers: Sequence[int], limit: int) -> models.QueryRequest:
        sparse = models.SparseVector(indices=list(numbers), values=[1.0] * len(numbers))
        nearest = models.NearestQuery(nearest=sparse)
        return models.QueryRequest(
            query=nearest, using=WORDS, params=rarity, filter=owned, limit=limit,
            with_payload=True, with_vector=True,
        )  # fmt: skip

    numbers_of_words = numbers_of(query)
    requests = [words([number], 1) for number in numbers_of_words]
    if numbers_of_words:
        requests.append(words(numbers_of_words, depth))
    if len(query.meaning):
        nearest = models.NearestQuery(nearest=query.meaning.tolist())
        requests.append(
            models.QueryRequest(
                query=nearest,
                using=MEANING,
                filter=owned,
                limit=depth,
                with_payload=True,
                with_vector=True,
            )
        )
    return requests


def neighbourhood(owner: str, points: Mapping[Any, models.ScoredPoint]) -> models.Filter:
    """Return a filter for the records near some points, in their sessions."""
    from qdrant_client import models

    spans_by_session: dict[str, list[tuple[int, int]]] = {}
    for session_id, seq in sorted(
        (point.payload["session_id"], point.payload["last"])
        for point in points.values()
        if point.payload
    ):
        spans = spans_by_session.setdefault(session_id, [])
        if spans and seq - _REACH <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], seq + _REACH)
        else:
            spans.append((seq - _REACH, seq + _REACH))
    near: list[Any] = [
        models.Filter(must=[
            models.FieldCondition(key="session_id", match=models.MatchValue(value=session_id)),
            models.FieldCondition(key="last", range=models.Range(gte=low, lte=high)),
        ])
        for session_id, spans in spans_by_session.items()
        for low, high in spans
    ]  # fmt: skip
    return models.Filter(must=where(owner=owner).must, should=near)


def holding(
    query: Query, answers: Sequence[Sequence[models.ScoredPoint]], count: int
) -> list[float]:
    """Return for each of the query's words how many of `count` records contain it.

    The numbers follow from the scores of each word's best record: its weight is known, and the
    rest is its rarity. If a word has several numbers, the most common counts.
    """
    counts: dict[int, float] = {}
    for number, best in zip(numbers_of(query), answers, strict=False):
        if best:
            words: Any = best[0].vector
            weights = dict(zip(words[WORDS].indices, words[WORDS].values, strict=True))
            worth = best[0].score / weights[number]
            counts[number] = max(0, min(count, round((count + 1) / exp(worth) - _LEAST_COUNT)))
    return [max(counts.get(number, 0) for number in word) for word in query.words]


def numbers_of(query: Query) -> list[int]:
    """Return the numbers of a query's words, without repetition."""
    return [*dict.fromkeys(number for word in query.words for number in word)]


def ranked_hits(
    points: Sequence[Any], dimension: int, query: Query, held: Sequence[float], count: int,
    limit: int, block: str,
) -> list[Hit]:  # fmt: skip
    """Return the best of some points and of the pending entries, compared in detail.

    Args:
        points: Points with payloads and vectors, without repetition.
        dimension: The dimension of the vectors of meaning.
        query: The query.
        held: The result of `holding`.
        count: The number of the owner's records on the server.
        limit: The most hits to return.
        block: The block of the records.
    """
    import numpy as np

    from agent_memory.retrieval.index import DEPTH, SegmentIndex
    from agent_memory.retrieval.score import informativeness, ranked

    read: list[tuple[Any, Record]] = undamaged(
        points, lambda point: (point, record_at(point.payload, block))
    )
    records = {record.id: record for _, record in read}
    features = features_at([point for point, _ in read], dimension)
    index = SegmentIndex(dimension).extended([record.id for _, record in read], features)
    own = index.candidates(query, len(index))._replace(total=count, holding=np.array(held))
    # The candidates are selected again, as other stores do. A server adds up the numbers of a word,
    # but only the best should count.
    depth = max(DEPTH, limit)
    words = own.weights @ informativeness(count, own.holding)
    first = [at for at in np.argsort(-words, kind="stable")[:depth] if words[at] > 0]
    first += [at for at in np.argsort(-own.cosines, kind="stable") if own.filled[at]][:depth]
    near = index.with_neighbours(own.names.numbers[np.array(first, np.intp)])
    compared = [own.at(np.flatnonzero(np.isin(own.names.numbers, near)))]
    if query.pending is not None:
        pending = query.pending
        records = {**records, **pending.records}
        compared.append(pending.index.candidates(pending.query, depth))
    return hits(ranked(compared, query, limit), records)
