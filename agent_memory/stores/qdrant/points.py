"""Records as Qdrant's points, filters, and batches. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from agent_memory.core.records import Record
from agent_memory.retrieval.views import MEANINGS, WORDS
from agent_memory.stores.coding import record_body, record_of, to_micros

if TYPE_CHECKING:
    from qdrant_client import models

    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.terms import Terms

_POINTS = UUID("6f1d2a34-8c1b-5a7e-9d7c-2b1f0f3d9a55")
_MOST = 256
_MOST_BYTES = 8 * 2**20  # a server takes 32 MB, if not set otherwise; a proxy often less
_FLOAT_BYTES = 22
_TERM_BYTES = 36
_REST_BYTES = 500


def batches(records: Sequence[Record], features: Features) -> Iterator[list[models.PointStruct]]:
    """Points to send at once, by number and by what they weigh as JSON."""
    from qdrant_client import models

    if len(features) != len(records):
        raise ValueError("Give features for each record.")
    batch: list[models.PointStruct] = []
    weight = 0
    for place, record in enumerate(records):
        payload = _payload(record)
        weighs = _weight(features, place) + 2 * len(payload["body"].encode()) + _REST_BYTES
        if batch and (len(batch) == _MOST or weight + weighs > _MOST_BYTES):
            yield batch
            batch, weight = [], 0
        point = str(uuid5(_POINTS, record.id))
        vectors = _vectors(features, place)
        batch.append(models.PointStruct(id=point, vector=vectors, payload=payload))
        weight += weighs
    if batch:
        yield batch


def record_at(payload: dict[str, Any] | None, block: str) -> Record:
    """The record that a point's payload holds.

    Raises:
        Damaged: It is not what was written.
    """
    return record_of(SimpleNamespace(**(payload or {})), "vector", block)


def features_at(vectors: Sequence[Any], dimension: int) -> Features:
    """The features that points' vectors hold, in their order."""
    import numpy as np

    from agent_memory.retrieval.features import Features

    rows = [
        [one.get(name, [0.0] * dimension) if dimension else [] for one in vectors]
        for name in MEANINGS
    ]
    words = [[_terms(one.get(name)) for one in vectors] for name in WORDS]
    meaning, around = (np.array(some, np.float32).reshape(len(vectors), dimension) for some in rows)
    return Features(meaning, around, *words)


def where(
    *, owner: str | None = None, session_id: str | None = None, after: int = 0
) -> models.Filter:
    """What matches all that is given."""
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
    # views are the names of a point's vectors; dense ones it lacks where nothing embeds
    rows = (features.meaning, features.meaning_around) if features.dimension else ()
    vectors: dict[str, Any] = {
        name: row[place].tolist() for name, row in zip(MEANINGS, rows, strict=False)
    }
    for name, words in zip(WORDS, (features.words, features.words_around), strict=True):
        # without any word, too: so the point counts when a server counts how rare words are
        vectors[name] = _sparse(words[place])
    return vectors


def _sparse(terms: Terms) -> models.SparseVector:
    from qdrant_client import models

    return models.SparseVector(indices=terms.ids.tolist(), values=terms.weights.tolist())


def _terms(sparse: Any) -> Terms:
    import numpy as np

    from agent_memory.retrieval.terms import NO_TERMS, Terms

    if sparse is None:  # a server may leave out a vector of no words
        return NO_TERMS
    return Terms(np.array(sparse.indices, np.uint32), np.array(sparse.values, np.float32))


def _weight(features: Features, place: int) -> int:
    terms = len(features.words[place].ids) + len(features.words_around[place].ids)
    return 2 * _FLOAT_BYTES * features.dimension + _TERM_BYTES * terms


def _payload(record: Record) -> dict[str, Any]:
    return {
        "id": record.id,
        "owner": record.owner,
        "session_id": record.session_id,
        "first": record.first,
        "last": record.last,
        "created_at": to_micros(record.created_at),
        "body": record_body(record),
    }
