"""Translates records to Qdrant's points, queries to requests, and answers to hits. No I/O."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from math import exp
from typing import Any
from uuid import UUID, uuid5

import numpy as np

from agent_memory.core.records import Hit, Record
from agent_memory.errors import MissingExtra
from agent_memory.retrieval.features import NO_TERMS, PLACE, Features, Terms
from agent_memory.retrieval.index import DEPTH, SegmentIndex
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.score import informativeness, ranked
from agent_memory.retrieval.vectors import TOKEN, Tokens
from agent_memory.stores.damage import undamaged
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.coding import record_body, record_from, to_micros
from agent_memory.stores.kernel.indexes import hits

try:
    from qdrant_client import models as models
except ImportError as error:
    raise MissingExtra("A Qdrant vector store", "qdrant") from error

MEANING, WORDS = "meaning", "words"
"""The names of a point's two vectors: its meaning (dense) and its words (sparse)."""

_POINTS = UUID("6f1d2a34-8c1b-5a7e-9d7c-2b1f0f3d9a55")
_MOST = 256
_MOST_BYTES = 8 * 2**20  # a server's default limit is 32 MB; a proxy's is often lower
_FLOAT_BYTES = 22
_TERM_BYTES = 36
_REST_BYTES = 500
_REACH = 8  # neighbours are searched up to this many seqs before and after a candidate
_LEAST_COUNT = 0.5


def batches(records: Sequence[Record], features: Features) -> Iterator[list[models.PointStruct]]:
    """Yield points in batches of at most `_MOST` points and about `_MOST_BYTES` of JSON."""
    if len(features) != len(records):
        raise ValueError("Pass features for each record.")
    batch: list[models.PointStruct] = []
    weight = 0
    for place, record in enumerate(records):
        payload: dict[str, Any] = {
            "id": record.id,
            "owner": record.owner,
            "session_id": record.session_id,
            "first": record.first,
            "last": record.last,
            "created_at": to_micros(record.created_at),
            "body": record_body(record),
            "place": features.places[place].tolist(),
            "tokens": b64encode(features.tokens.of_record(place).tobytes()).decode("ascii"),
        }
        point_weight = _weight(features, place) + 2 * len(payload["body"].encode()) + _REST_BYTES
        if batch and (len(batch) == _MOST or weight + point_weight > _MOST_BYTES):
            yield batch
            batch, weight = [], 0
        point = str(uuid5(_POINTS, record.id))
        vectors = _vectors(features, place)
        batch.append(models.PointStruct(id=point, vector=vectors, payload=payload))
        weight += point_weight
    if batch:
        yield batch


def record_at(payload: dict[str, Any] | None, block: str) -> Record:
    """Return the record in a point's payload. Raise `Damaged` if the payload is damaged."""

    def get(name: str) -> Any:
        return (payload or {}).get(name)

    document = k.Document(
        collection=f"{k.VECTOR}{block}",
        id=get("id"),
        owner=get("owner"),
        session=get("session_id"),
        first=get("first"),
        last=get("last"),
        about=get("created_at"),
        body=get("body"),
    )
    return record_from(document)


def features_at(points: Sequence[Any], dimension: int) -> Features:
    meaning = np.zeros((len(points), dimension), np.float32)
    words, tokens, places = [], [], np.zeros(len(points), PLACE)
    for at, point in enumerate(points):
        if dimension:
            meaning[at] = point.vector.get(MEANING, 0.0)
        words.append(_terms(point.vector.get(WORDS)))
        pieces = np.frombuffer(b64decode(point.payload["tokens"]), np.int8)
        tokens.append(pieces.reshape(-1, TOKEN))
        places[at] = tuple(point.payload["place"])
    return Features(meaning, Tokens.of(tokens), words, places)


def where(
    *, owner: str | None = None, session_id: str | None = None, after: int = 0
) -> models.Filter:
    if owner is None and session_id is None:
        raise ValueError("Name an owner or a session.")
    must: list[Any] = [
        models.FieldCondition(key=key, match=models.MatchValue(value=value))
        for key, value in (("owner", owner), ("session_id", session_id))
        if value is not None
    ]
    if after:
        must.append(models.FieldCondition(key="last", range=models.Range(gt=after)))
    return models.Filter(must=must)


def _vectors(features: Features, place: int) -> dict[str, Any]:
    # A point without words also has this vector, so that the server counts the point when it
    # computes the rarity of words.
    ids, weights = (column.tolist() for column in features.words[place])
    words: dict[str, Any] = {WORDS: models.SparseVector(indices=ids, values=weights)}
    if not features.dimension or not features.meaning[place].any():  # not encoded yet
        return words
    return {MEANING: features.meaning[place].tolist(), **words}


def _terms(sparse: Any) -> Terms:
    if sparse is None:  # a server may leave out an empty vector
        return NO_TERMS
    return Terms(np.array(sparse.indices, np.uint32), np.array(sparse.values, np.float32))


def _weight(features: Features, place: int) -> int:
    pieces = features.tokens.of_record(place)
    terms = len(features.words[place].ids)
    return _FLOAT_BYTES * features.dimension + _TERM_BYTES * terms + 2 * pieces.nbytes


def queries(owner: str, query: Query, depth: int) -> list[models.QueryRequest]:
    """Return the requests of a query.

    A word of the query has an id for each of its forms, such as its stem in each language. For each
    id, one request finds the record in which this form has the highest weight. The record's score
    shows how rare the form is. The last two requests are for the records that match most of the
    words, and for the records nearest in meaning.
    """
    owned = where(owner=owner)
    # Servers before 1.19 ignore `idf`, and compute the rarity of words over the whole collection.
    rarity = models.SearchParams(idf=models.IdfCorpusParams(corpus=owned))

    def request(nearest: Any, using: str, limit: int) -> models.QueryRequest:
        return models.QueryRequest(
            query=models.NearestQuery(nearest=nearest), using=using, filter=owned, limit=limit,
            params=rarity if using == WORDS else None, with_payload=True, with_vector=True,
        )  # fmt: skip

    def words(numbers: Sequence[int], limit: int) -> models.QueryRequest:
        sparse = models.SparseVector(indices=list(numbers), values=[1.0] * len(numbers))
        return request(sparse, WORDS, limit)

    numbers_of_words = numbers_of(query)
    requests = [words([number], 1) for number in numbers_of_words]
    if numbers_of_words:
        requests.append(words(numbers_of_words, depth))
    if len(query.meaning):
        requests.append(request(query.meaning.tolist(), MEANING, depth))
    return requests


def neighbourhood(owner: str, points: Mapping[Any, models.ScoredPoint]) -> models.Filter:
    """Return a filter for the neighbours of points in the points' sessions."""
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
    """Return for each of the query's words how many of the owner's `count` records contain it.

    A word has an id for each of its forms. `answers` begins with the best record for each id. The
    score of this record is the form's weight in the record times the form's rarity. Because the
    weight is known, the score shows the rarity, and the rarity shows the number of records with the
    form. For each word, the highest of these numbers is returned.
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
    """Return the ids of the forms of all words in a query, without repetition."""
    return [*dict.fromkeys(number for word in query.words for number in word)]


def ranked_hits(
    points: Sequence[Any], dimension: int, query: Query, held: Sequence[float], count: int,
    limit: int, block: str,
) -> list[Hit]:  # fmt: skip
    """Return the hits with the highest scores among points and the query's pending entries.

    No point is repeated. `held` is the result of `holding` for the owner's `count` records.
    """
    read: list[tuple[Any, Record]] = undamaged(
        points, lambda point: (point, record_at(point.payload, block))
    )
    records = {record.id: record for _, record in read}
    features = features_at([point for point, _ in read], dimension)
    index = SegmentIndex(dimension).extended([record.id for _, record in read], features)
    own = index.candidates(query, len(index))._replace(total=count, holding=np.array(held))
    # The candidates are selected again, as other stores select them: only the best form of each
    # query word counts. Qdrant adds up the weights of all forms of a word.
    depth = max(DEPTH, limit)
    words = own.weights @ informativeness(count, own.holding)
    first = [at for at in np.argsort(-words, kind="stable")[:depth] if words[at] > 0]
    first += [at for at in np.argsort(-own.cosines, kind="stable") if own.filled[at]][:depth]
    near = index.with_neighbours(own.numbers[np.array(first, np.intp)])
    compared = [own.at(np.flatnonzero(np.isin(own.numbers, near)))]
    if query.pending is not None:
        pending = query.pending
        records = {**records, **pending.records}
        compared.append(pending.index.candidates(pending.query, depth))
    return hits(ranked(compared, query, limit), records)
