"""`VectorMemory`: messages that passed, found again by their words and by meaning."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.errors import DimensionMismatch, ModelUnavailable, StoreUnavailable
from agent_memory.ltm_blocks.base import Block, Resources, record_id
from agent_memory.models.embedders.base import Embedder
from agent_memory.retrieval.views import LEAST, VIEWS, WEIGHTS, Fusion, depth_for
from agent_memory.stores.base import VectorStore, swaps_vectors
from agent_memory.stores.qdrant.url import check_qdrant_url

logger = logging.getLogger(__name__)

_BEFORE = 16  # entries before a batch that may belong to the surroundings of its first


class Weights(BaseModel):
    """What each view counts in a blend, in proportion; 0 leaves it out.

    Attributes:
        words: The words of the message, with its speaker and day (BM25).
        words_around: The words of the message and of those right before it (BM25).
        meaning: The vector of the message (cosine).
        meaning_around: The vector of the message and of those right before it (cosine).
        priors: What speaks for a message beside its words: that its speaker or its day is named in
            the question, that its session has the best one; and against it: that it says little, or
            only asks. 1 as they are, 0 not at all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    words: float = Field(default=WEIGHTS[0], ge=0)
    words_around: float = Field(default=WEIGHTS[1], ge=0)
    meaning: float = Field(default=WEIGHTS[2], ge=0)
    meaning_around: float = Field(default=WEIGHTS[3], ge=0)
    priors: float = Field(default=1.0, ge=0)


class VectorMemory(Block):
    """Every user and assistant message with text; per user.

    A message is found by four views: its words, and what it means, each alone and within what was
    said right before it. They are blended as `fusion` says; see `agent_memory.retrieval`. Without
    an embedder (none configured, the extra "local" not installed) words alone decide.

    Attributes:
        store: None keeps the vectors in the session store's own database. "http://host:6333" is a
            Qdrant server (extra `qdrant`), ":memory:" its local mode.
        embedding: Another embedding model than the configured one.
        dimension: The length its vectors must have; None takes what it gives.
        roles: Whose messages are kept.
        fusion: "blend" adds up the views, each divided by its best; "rrf" is reciprocal rank
            fusion, for comparison: it finds less.
        weights: What each view counts.
        min_score: What the views together must give a message for it to be recalled, of the 1 that
            they can; priors do not count.
        min_similarity: Cosine that the best of many messages must have with the question, unless it
            has half of its words: else nothing is recalled. None takes what is known of the
            embedder: 0.25 for the local one, nothing for others. 0 asks nothing.
    """

    kind: Literal["vector"] = "vector"
    store: str | None = None
    embedding: str | None = None
    dimension: int | None = Field(default=None, gt=0)
    roles: tuple[str, ...] = ("user", "assistant")
    fusion: Fusion = "blend"
    weights: Weights = Weights()
    min_score: float = LEAST
    min_similarity: float | None = None

    _embedder: Embedder | None = PrivateAttr(default=None)
    _vectors: VectorStore = PrivateAttr()

    @field_validator("store")
    @classmethod
    def _scheme(cls, value: str | None) -> str | None:
        if value is not None:
            check_qdrant_url(value)
        return value

    @property
    def vectors(self) -> VectorStore:
        return self._vectors

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
            if swaps_vectors(vectors):
                vectors.begin_vectors(self.name, embedder.dimension, embedder.name)
            else:
                vectors.clear_vectors(self.name)
        finally:
            if self.store is not None:
                vectors.close()

    def rebuilding(self) -> bool:
        if not swaps_vectors(self._vectors):
            return False
        self._ready()
        return self._vectors.fill_vectors(self.name)

    def rebuilt(self) -> None:
        if swaps_vectors(self._vectors):
            self._vectors.swap_vectors(self.name)

    def close(self) -> None:
        if self.store is not None:
            self._vectors.close()

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        from agent_memory.retrieval.features import Features
        from agent_memory.retrieval.surroundings import FARTHEST
        from agent_memory.retrieval.turns import record_of_turn, spoken

        kept = spoken(entries, self.roles)
        if not kept:
            return
        before = spoken(self._before(kept[0][0]), self.roles)[-FARTHEST:]
        turns = [turn for _, turn in (*before, *kept)]
        features = Features.of_turns(turns, len(before), self._ready().embed)
        records = [record_of_turn(*one, self._id(scope, one[0]), scope.owner) for one in kept]
        self._vectors.put_vectors(self.name, records, features, lease=scope.lease)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        import numpy as np

        from agent_memory.retrieval.features import Query
        from agent_memory.retrieval.relevance import bears
        from agent_memory.retrieval.turns import ranked

        question = message.text().strip() if message else ""
        if not question:
            return []
        query = Query.of(question, self._ready().embed([question])[0])
        depth = depth_for(limit)
        hits = self._vectors.search_vectors(self.name, scope.owner, query, depth)
        scores = np.array([hit.scores for hit in hits], np.float32)
        if not bears(question, [hit.record.text for hit in hits], scores, self._unrelated):
            return []
        return ranked(
            self.name,
            question,
            hits,
            limit,
            fusion=self.fusion,
            weights=[getattr(self.weights, view) for view in VIEWS],
            prior_weight=self.weights.priors,
            least=self.min_score,
        )

    def validate_vectors(self, dimension: int, model: str) -> bool:
        embedder = self.resources.embedders(self.embedding)
        return (embedder.dimension, embedder.name) == (dimension, model)

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

    @property
    def _unrelated(self) -> float:
        return self._ready().unrelated if self.min_similarity is None else self.min_similarity

    def _chosen(self, resources: Resources) -> Embedder:
        embedder = resources.embedders(self.embedding)
        dimension = embedder.dimension
        if self.dimension not in (None, dimension):
            raise DimensionMismatch(
                f"The block {self.name!r} asks for vectors of {self.dimension} numbers, but "
                f"{embedder.name} gives {dimension}. Change `dimension` or `embedding`."
            )
        return embedder

    def _id(self, scope: Scope, entry: Entry) -> str:
        return record_id(self.name, scope.owner, entry.session_id, entry.seq)

    def _before(self, entry: Entry) -> list[Entry]:
        """What was said right before an entry, with what else the log has there."""
        since = max(0, entry.seq - 1 - _BEFORE)
        read = self.resources.store.read(entry.session_id, after=since, limit=entry.seq - 1 - since)
        return [one for one in read if one.seq < entry.seq]
