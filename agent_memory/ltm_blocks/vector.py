"""`VectorMemory`: messages that passed, found again by meaning."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, PrivateAttr, field_validator

from agent_memory.embedders.base import Embedder
from agent_memory.errors import DimensionMismatch, ModelUnavailable, StoreUnavailable
from agent_memory.ltm_blocks.base import Block, Resources, record_id
from agent_memory.messages import Message
from agent_memory.records import Entry, Recall, Record, Scope
from agent_memory.stores.base import SwappingVectorStore, VectorStore
from agent_memory.stores.qdrant.url import check_qdrant_url
from agent_memory.transcript import speaker

logger = logging.getLogger(__name__)


class VectorMemory(Block):
    """Every user and assistant message with text, embedded; per user.

    Attributes:
        store: None keeps the vectors in the session store's own database. "http://host:6333" is a
            Qdrant server (extra `qdrant`), ":memory:" its local mode.
        embedding: Another embedding model than the configured one.
        dimension: The length its vectors must have; None takes what it gives.
        roles: Whose messages are kept.
        min_score: Cosine below which nothing is recalled.
    """

    kind: Literal["vector"] = "vector"
    store: str | None = None
    embedding: str | None = None
    dimension: int | None = Field(default=None, gt=0)
    roles: tuple[str, ...] = ("user", "assistant")
    min_score: float = 0.1

    _embedder: Embedder | None = PrivateAttr(default=None)
    _vectors: VectorStore = PrivateAttr()

    @field_validator("store")
    @classmethod
    def _scheme(cls, value: str | None) -> str | None:
        if value is not None:
            check_qdrant_url(value)
        return value

    def bind(self, resources: Resources) -> Self:
        """As `Block.bind`.

        Raises:
            MissingExtra: The embedder or the vector store is not installed.
            DimensionMismatch: The embedder's dimension is not the one asked for or stored.
        """
        bound = super().bind(resources)
        bound._vectors = resources.vectors(self.store)
        try:
            bound._ready()
        except (ModelUnavailable, StoreUnavailable) as error:
            # an outage must not keep a service from starting; `_ready` is tried again when needed
            logger.warning("the vectors of block %r cannot be used yet: %s", self.name, error)
        except BaseException:
            bound.close()
            raise
        return bound

    def clear(self, resources: Resources) -> None:
        """As `Block.clear`: drops all vectors, of whatever model, or begins others beside them."""
        embedder = self._chosen(resources)  # settings that could not be bound change nothing
        vectors = resources.vectors(self.store)
        try:
            if isinstance(vectors, SwappingVectorStore):
                vectors.begin_vectors(self.name, embedder.dimension, embedder.name)
            else:
                vectors.clear_vectors(self.name)
        finally:
            if self.store is not None:
                vectors.close()

    def rebuilding(self) -> bool:
        if not isinstance(self._vectors, SwappingVectorStore):
            return False
        self._ready()
        return self._vectors.fill_vectors(self.name)

    def rebuilt(self) -> None:
        if isinstance(self._vectors, SwappingVectorStore):
            self._vectors.swap_vectors(self.name)

    def close(self) -> None:
        if self.store is not None:
            self._vectors.close()

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        kept = [e for e in entries if e.message.role in self.roles and e.message.text().strip()]
        if not kept:
            return
        records = [self._record(scope, entry) for entry in kept]
        vectors = self._ready().embed([record.text for record in records])
        self._vectors.put_vectors(self.name, records, vectors, lease=scope.lease)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        query = message.text().strip() if message else ""
        if not query:
            return []
        vector = self._ready().embed([query])[0]
        return [
            Recall(
                block=self.name,
                id=record.id,
                text=record.text,
                score=score,
                created_at=record.created_at,
                sources=tuple((record.session_id, seq) for seq in record.sources),
                metadata=record.metadata,
            )
            for record, score in self._vectors.search_vectors(self.name, scope.owner, vector, limit)
            if score >= self.min_score
        ]

    def delete(self, scope: Scope) -> None:
        if scope.session_id is None:
            self._vectors.delete_vectors(self.name, owner=scope.owner)
        else:
            self._vectors.delete_vectors(
                self.name, session_id=scope.session_id, after=scope.after, lease=scope.lease
            )

    def _ready(self) -> Embedder:
        """The embedder, once the vector store agreed with it."""
        if self._embedder is None:
            embedder = self._chosen(self.resources)
            self._vectors.open_vectors(self.name, embedder.dimension, embedder.name)
            self._embedder = embedder
        return self._embedder

    def _chosen(self, resources: Resources) -> Embedder:
        embedder = resources.embedders(self.embedding)
        dimension = embedder.dimension
        if self.dimension not in (None, dimension):
            raise DimensionMismatch(
                f"The block {self.name!r} asks for vectors of {self.dimension} numbers, but "
                f"{embedder.name} gives {dimension}. Change `dimension` or `embedding`."
            )
        return embedder

    def _record(self, scope: Scope, entry: Entry) -> Record:
        who = speaker(entry.message)
        return Record(
            id=record_id(self.name, scope.owner, entry.session_id, entry.seq),
            owner=scope.owner,
            session_id=entry.session_id,
            first=entry.seq,
            last=entry.seq,
            text=f"{who}: {entry.message.text().strip()}",
            sources=(entry.seq,),
            created_at=entry.created_at,
            metadata={"role": entry.message.role or ""},
        )
