"""Records as Qdrant's points, filters, and batches. No I/O."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from agent_memory.core.records import Record
from agent_memory.stores.coding import record_body, record_of, to_micros

if TYPE_CHECKING:
    from qdrant_client import models

    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.postings import Terms

MEANING, WORDS = "meaning", "words"
"""The names of a point's vectors."""

_POINTS = UUID("6f1d2a34-8c1b-5a7e-9d7c-2b1f0f3d9a55")
_MOST = 256
_MOST_BYTES = 8 * 2**20  # a server's default limit is 32 MB; a proxy's is often lower
_FLOAT_BYTES = 22
_TERM_BYTES = 36
_REST_BYTES = 500


def batches(records: Sequence[Record], features: Features) -> Iterator[list[models.PointStruct]]:
    """Yield batches of points, limited by number and by size as JSON."""
    from qdrant_client import models

    if len(features) != len(records):
        raise ValueError("Pass features for each record.")
    batch: list[models.PointStruct] = []
    weight = 0
    for place, record in enumerate(records):
        payload = _payload(record, features, place)
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
    """Return the record in a point's payload.

    Raises:
        Damaged: The payload is damaged.
    """
    return record_of(SimpleNamespace(**(payload or {})), "vector", block)


def features_at(points: Sequence[Any], dimension: int) -> Features:
    """Return the features of points, in order."""
    import numpy as np

    from agent_memory.retrieval.features import PLACE, Features
    from agent_memory.retrieval.vectors import TOKEN, Tokens

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
    """Return a filter that matches all arguments."""
    from qdrant_client import models

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
    # A point without words has the vector too: the server then counts it for the rarity of words.
    words: dict[str, Any] = {WORDS: _sparse(features.words[place])}
    if not features.dimension or not features.meaning[place].any():  # not encoded yet
        return words
    return {MEANING: features.meaning[place].tolist(), **words}


def _sparse(terms: Terms) -> models.SparseVector:
    from qdrant_client import models

    return models.SparseVector(indices=terms.ids.tolist(), values=terms.weights.tolist())


def _terms(sparse: Any) -> Terms:
    import numpy as np

    from agent_memory.retrieval.postings import NO_TERMS, Terms

    if sparse is None:  # a server may leave out an empty vector
        return NO_TERMS
    return Terms(np.array(sparse.indices, np.uint32), np.array(sparse.values, np.float32))


def _weight(features: Features, place: int) -> int:
    pieces = features.tokens.of_record(place)
    terms = len(features.words[place].ids)
    return _FLOAT_BYTES * features.dimension + _TERM_BYTES * terms + 2 * pieces.nbytes


def _payload(record: Record, features: Features, place: int) -> dict[str, Any]:
    return {
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
