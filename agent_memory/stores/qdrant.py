"""Vectors on a Qdrant server, or in qdrant-client's local mode (for trials and tests)."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from agent_memory.errors import DimensionMismatch, MissingExtra, StoreUnavailable
from agent_memory.records import Lease, Record
from agent_memory.stores.coding import mismatch, record_body, record_of, to_micros

if TYPE_CHECKING:
    import numpy as np
    from qdrant_client import models

_POINTS = UUID("6f1d2a34-8c1b-5a7e-9d7c-2b1f0f3d9a55")
_META = "collection"
_BATCH = 256
_TIMEOUT_SECONDS = 10


class QdrantStore:
    """One collection per namespace and block; one point per record, filtered by owner.

    Args:
        url: "http://host:6333" (its key, if any, comes from QDRANT_API_KEY), or ":memory:".
        namespace: As in the session store.

    Raises:
        MissingExtra: qdrant-client is not installed.
    """

    def __init__(self, url: str, namespace: str = "default") -> None:
        if importlib.util.find_spec("qdrant_client") is None:
            raise MissingExtra("A Qdrant vector store", "qdrant")
        from qdrant_client import QdrantClient

        self._url = url
        self._local = url == ":memory:"
        if self._local:
            self._client = QdrantClient(location=url)
        else:
            self._client = QdrantClient(
                url=url, api_key=os.environ.get("QDRANT_API_KEY"), timeout=_TIMEOUT_SECONDS
            )
        self._prefix = f"agent_memory_{namespace}_"
        self._opened: dict[str, int] = {}

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        """As `VectorStore.open_vectors`."""
        from qdrant_client import models
        from qdrant_client.http.exceptions import UnexpectedResponse

        name = self._prefix + block
        with self._reached():
            if not self._client.collection_exists(name):
                size = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
                try:
                    self._client.create_collection(name, vectors_config=size)
                except UnexpectedResponse as error:
                    if error.status_code != 409:  # another process was first
                        raise
                self._index(name)
            self._compare(name, block, dimension, model)
        self._opened[block] = dimension

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        vectors: np.ndarray,
        *,
        lease: Lease | None = None,
    ) -> None:
        """As `VectorStore.put_vectors`."""
        from qdrant_client import models

        if not records:
            return
        self._check(block, vectors.shape[1])
        points = [
            models.PointStruct(id=_point(r.id), vector=vector.tolist(), payload=_payload(r))
            for r, vector in zip(records, vectors, strict=True)
        ]
        with self._reached():
            for at in range(0, len(points), _BATCH):
                self._client.upsert(self._prefix + block, points[at : at + _BATCH], wait=True)

    def search_vectors(
        self, block: str, owner: str, vector: np.ndarray, limit: int
    ) -> list[tuple[Record, float]]:
        """As `VectorStore.search_vectors`."""
        self._check(block, len(vector))
        with self._reached():
            if limit < 1 or not self._client.collection_exists(self._prefix + block):
                return []
            found = self._client.query_points(
                self._prefix + block,
                query=vector.tolist(),
                query_filter=_where(owner=owner),
                limit=limit,
                with_payload=True,
            ).points
        return [
            (record_of(SimpleNamespace(**(point.payload or {}))), float(point.score))
            for point in found
        ]

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        """As `VectorStore.delete_vectors`."""
        where = _where(owner=owner, session_id=session_id, after=after)
        with self._reached():
            if self._client.collection_exists(self._prefix + block):
                self._client.delete(self._prefix + block, points_selector=where, wait=True)

    def clear_vectors(self, block: str) -> None:
        """As `VectorStore.clear_vectors`."""
        with self._reached():
            if self._client.collection_exists(self._prefix + block):
                self._client.delete_collection(self._prefix + block)
        self._opened.pop(block, None)

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _check(self, block: str, width: int) -> None:
        opened = self._opened.get(block, width)
        if width != opened:
            raise DimensionMismatch(
                mismatch(block, (opened, "the stored model"), (width, "unnamed"))
            )

    def _index(self, name: str) -> None:
        from qdrant_client import models

        if self._local:  # it has no payload indexes
            return
        tenant = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
        self._client.create_payload_index(name, "owner", tenant)
        self._client.create_payload_index(name, "session_id", models.PayloadSchemaType.KEYWORD)
        self._client.create_payload_index(name, "last", models.PayloadSchemaType.INTEGER)

    def _compare(self, name: str, block: str, dimension: int, model: str) -> None:
        """Compare with what the collection is for; a point without owner remembers the model."""
        from qdrant_client import models

        vectors = self._client.get_collection(name).config.params.vectors
        size = vectors.size if isinstance(vectors, models.VectorParams) else 0
        kept = self._client.retrieve(name, [_point(_META)], with_payload=True)
        made_by = (kept[0].payload or {}).get("model") if kept else None
        if size != dimension or made_by not in (None, model):
            stored = (size, made_by or "another model")
            raise DimensionMismatch(mismatch(block, stored, (dimension, model)))
        if made_by is None:
            mark = models.PointStruct(
                id=_point(_META), vector=[1.0] + [0.0] * (dimension - 1), payload={"model": model}
            )
            self._client.upsert(name, [mark], wait=True)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

        try:
            yield
        except (ResponseHandlingException, UnexpectedResponse) as error:
            raise StoreUnavailable(
                f"The Qdrant server at {self._url} could not be used: {error}. Check that it runs, "
                "the address in VectorMemory(store=...), and QDRANT_API_KEY."
            ) from error


def _point(record_id: str) -> str:
    return str(uuid5(_POINTS, record_id))


def _where(
    *, owner: str | None = None, session_id: str | None = None, after: int = 0
) -> models.Filter:
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
