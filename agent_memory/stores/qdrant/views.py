"""A question as requests to a server, and its answers as candidates. No I/O."""

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

_REACH = 8  # seqs to each side of a candidate, among which its neighbours are looked for
_LEAST_COUNT = 0.5


def queries(owner: str, query: Query, depth: int) -> list[models.QueryRequest]:
    """Return the requests of a question: the nearest by meaning, those that have most of its words,
    and for each word the record in which it is worth most, which tells its rarity.

    Args:
        owner: Whose records.
        query: What to look for.
        depth: So many by meaning and by words.
    """
    from qdrant_client import models

    owned = where(owner=owner)
    # servers before 1.19 pass it over, and count how rare a word is over the collection
    rarity = models.SearchParams(idf=models.IdfCorpusParams(corpus=owned))

    def words(numbers: Sequence[int], limit: int) -> models.QueryRequest:
        sparse = models.SparseVector(indices=list(numbers), values=[1.0] * len(numbers))
        nearest = models.NearestQuery(nearest=sparse)
        return models.QueryRequest(
            query=nearest, using=WORDS, params=rarity, filter=owned, limit=limit,
            with_payload=True, with_vector=True,
        )  # fmt: skip

    every = numbers_of(query)
    asked = [words([number], 1) for number in every]
    if every:
        asked.append(words(every, depth))
    if len(query.meaning):
        nearest = models.NearestQuery(nearest=query.meaning.tolist())
        asked.append(
            models.QueryRequest(
                query=nearest,
                using=MEANING,
                filter=owned,
                limit=depth,
                with_payload=True,
                with_vector=True,
            )
        )
    return asked


def neighbourhood(owner: str, points: Mapping[Any, models.ScoredPoint]) -> models.Filter:
    """Return what matches the records near some points, in their sessions."""
    from qdrant_client import models

    reached: dict[str, list[tuple[int, int]]] = {}
    for session_id, seq in sorted(
        (point.payload["session_id"], point.payload["last"])
        for point in points.values()
        if point.payload
    ):
        spans = reached.setdefault(session_id, [])
        if spans and seq - _REACH <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], seq + _REACH)
        else:
            spans.append((seq - _REACH, seq + _REACH))
    near: list[Any] = [
        models.Filter(must=[
            models.FieldCondition(key="session_id", match=models.MatchValue(value=session_id)),
            models.FieldCondition(key="last", range=models.Range(gte=low, lte=high)),
        ])
        for session_id, spans in reached.items()
        for low, high in spans
    ]  # fmt: skip
    return models.Filter(must=where(owner=owner).must, should=near)


def holding(
    query: Query, answers: Sequence[Sequence[models.ScoredPoint]], count: int
) -> list[float]:
    """Return how many of `count` records have each of the question's words, as the scores of the
    best record of each number tell: its weight there is known, and the rest is its rarity. For a
    word that is known by several numbers the commonest counts."""
    held: dict[int, float] = {}
    for number, best in zip(numbers_of(query), answers, strict=False):
        if best:
            words: Any = best[0].vector
            there = dict(zip(words[WORDS].indices, words[WORDS].values, strict=True))
            worth = best[0].score / there[number]
            held[number] = max(0, min(count, round((count + 1) / exp(worth) - _LEAST_COUNT)))
    return [max(held.get(number, 0) for number in word) for word in query.words]


def numbers_of(query: Query) -> list[int]:
    """Return the numbers of a question's words, each once."""
    return [*dict.fromkeys(number for word in query.words for number in word)]


def ranked_hits(
    points: Sequence[Any], dimension: int, query: Query, held: Sequence[float], count: int,
    limit: int, block: str,
) -> list[Hit]:  # fmt: skip
    """Return the best of some points and of what is pending, compared closely.

    Args:
        points: With payloads and vectors, each once.
        dimension: Numbers in a vector of meaning.
        query: The question.
        held: As `holding` gives it.
        count: How many records the owner has on the server.
        limit: So many at most.
        block: Whose they are.
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
    # chosen anew among what was read, as other stores choose: a server adds up the numbers of a
    # word, where the best one counts
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
