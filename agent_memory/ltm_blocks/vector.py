"""`VectorMemory`: messages that passed, found again by their words and by meaning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, Self, TypeVar

from pydantic import Field, PrivateAttr, field_validator

from agent_memory.core.fusion import folded
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, LeftOut, Recall, Record, Scope
from agent_memory.core.threads import given_up
from agent_memory.errors import DimensionMismatch, ModelError, StoreUnavailable
from agent_memory.ltm_blocks.base import Block, Resources, message_id
from agent_memory.ltm_blocks.encoding import Encode, EncodeAhead
from agent_memory.ltm_blocks.waiting import WHOLE, Waiting
from agent_memory.models.embedders.base import Encoder
from agent_memory.models.embedders.best_effort import BestEffort
from agent_memory.models.embedders.given import EmbeddingField
from agent_memory.stores import check_url, serves
from agent_memory.stores.base import VectorStore, swaps_vectors
from agent_memory.stores.coding import mismatch
from agent_memory.stores.qdrant.url import check_qdrant_url, is_qdrant

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Turn
    from agent_memory.retrieval.query import Query

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

_DEEP = 10  # records that only ask or say the same, beyond those that are wanted
_AHEAD = 32  # texts that are encoded at a time, ahead of questions
_DEEPER = 4  # times as many are looked at where many say the same
_DEEPEST = 2_000


def _in_force(
    call: Callable[Concatenate[VectorMemory, P], T],
) -> Callable[Concatenate[VectorMemory, P], T]:
    """The call; where the vectors were made anew since they were opened, that is said."""

    @wraps(call)
    def told(block: VectorMemory, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(block, *args, **kwargs)
        except DimensionMismatch as error:
            ours = block._embedder
            stored = block.vectors.vector_blocks().get(block.name)
            if ours is None or stored in (None, (ours.dimension, ours.name)):
                raise
            if repr(ours.name) in str(error):  # said already, by a store that knows more of it
                raise
            raise DimensionMismatch(
                f"The vectors of the block {block.name!r} are of {stored[1]!r} by now, and this "
                f"process was opened for {ours.name!r}. Restart it with the new settings."
            ) from error

    return told


class VectorMemory(Block):
    """Every user and assistant message with text, a long one in passages; per user.

    A message is found by its meaning, its word pieces and its words, each alone and within what
    stands around it in its session; see `agent_memory.retrieval.score`. Without an embedder (none
    configured, the extra "local" not installed) words alone decide.

    Attributes:
        store: None keeps the vectors in the session store's own database. "sqlite:///vectors.db" is
            a file of their own, or give another database's URL. "http://host:6333" is a Qdrant
            server (extra `qdrant`), ":memory:" its local mode.
        embedding: Another embedding model than the configured one; as in `AgentMemoryConfig`.
        dimension: The length its vectors must have; None takes what it gives.
        roles: Whose messages are kept.
    """

    kind: Literal["vector"] = "vector"
    embedding: EmbeddingField = None
    dimension: int | None = Field(default=None, gt=0)
    roles: tuple[str, ...] = ("user", "assistant")

    _embedder: Encoder | None = PrivateAttr(default=None)
    _vectors: VectorStore = PrivateAttr()
    _waiting: Waiting = PrivateAttr()
    _ahead: EncodeAhead = PrivateAttr()
    _meanings: BestEffort = PrivateAttr()

    @field_validator("store")
    @classmethod
    def _scheme(cls, value: str | None) -> str | None:
        if value is not None:
            (check_url if serves(value) else check_qdrant_url)(value)
        return value

    @property
    def routed_to(self) -> str | None:
        return self.store if self._qdrant is None else None

    @property
    def _qdrant(self) -> str | None:
        return self.store if self.store is not None and is_qdrant(self.store) else None

    @property
    def selective(self) -> bool:
        return True

    @property
    def recalls_pending(self) -> bool:
        return True

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
        bound._vectors, bound._waiting = resources.vectors(self._qdrant), Waiting(bound.roles)
        bound._ahead, bound._meanings = EncodeAhead(), BestEffort(bound._ready)
        try:
            bound._ready()
        except (ModelError, StoreUnavailable) as error:
            # an outage must not keep a service from starting; `_ready` is tried again when needed
            logger.warning("the vectors of block %r cannot be used yet: %s", self.name, error)
        except BaseException:
            bound.close()
            raise
        return bound

    def clear(self, resources: Resources) -> None:
        """As `Block.clear`: drops all vectors, of whatever model, or begins others beside them."""
        embedder = self._chosen(resources)  # settings that could not be bound change nothing
        with self._opened(resources) as vectors:
            if swaps_vectors(vectors):
                vectors.begin_vectors(self.name, embedder.dimension, embedder.name)
            else:
                vectors.clear_vectors(self.name)

    def problems(self, resources: Resources) -> Sequence[str]:
        """That its embedder is another than the one that the stored vectors are of."""
        from agent_memory.retrieval.query import Query

        try:
            embedder = self._chosen(resources)
            given = (embedder.dimension, embedder.name)
            with self._opened(resources) as vectors:
                if self._qdrant is None:
                    stored = vectors.vector_blocks().get(self.name, given)
                    return [] if stored == given else [mismatch(self.name, stored, given)]
                # not every Qdrant server tells the model, but each refuses another dimension
                query = Query.asked("Anybody?", embedder)
                vectors.search_vectors(self.name, "nobody", query, 1)
        except DimensionMismatch as error:
            return [str(error)]
        return []

    def rebuilding(self) -> bool:
        if not swaps_vectors(self._vectors):
            return False
        self._ready()
        return self._vectors.fill_vectors(self.name)

    def rebuilt(self) -> None:
        if swaps_vectors(self._vectors):
            self._vectors.swap_vectors(self.name)

    def load(self) -> None:
        import agent_memory.retrieval.turns  # noqa: F401

        self.resources.embedders(self.embedding).load()

    def warm(self, scope: Scope) -> None:
        if self._qdrant is not None:  # its index is on a server
            return
        from agent_memory.retrieval.query import Query

        if self.name in self._vectors.vector_blocks():
            self._vectors.search_vectors(self.name, scope.owner, Query(), 1)

    def close(self) -> None:
        self._ahead.stop()
        if self._qdrant is not None:
            self._vectors.close()

    def prepare(self, entries: Sequence[Entry]) -> None:
        from agent_memory.retrieval.turns import spoken

        self._ready().encode([str(turn) for _, turn in spoken(entries, self.roles)])  # known then

    def said(self, scope: Scope) -> None:
        if self._embedder is not None and self._embedder.on_this_machine:
            self._ahead.add(scope.owner, partial(self._encode_ahead, scope))

    def _encode_ahead(self, scope: Scope) -> bool:
        """Encode some of what waits, the newest first; whether there may be more."""
        from agent_memory.retrieval.turns import spoken

        tails = self.resources.pending.of(self.name, scope, WHOLE)
        waiting = [entry for tail in tails.read for entry in tail.entries[tail.since :]]
        embedder = self._ready()
        texts = [str(turn) for _, turn in spoken(waiting[::-1], self.roles)]
        missing = [text for text in texts if not embedder.cached([text])]
        if missing:
            embedder.encode(missing[:_AHEAD])
        return len(missing) > _AHEAD

    @_in_force
    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        from agent_memory.retrieval.turns import spoken

        said = spoken(entries, self.roles)
        if not said:
            return
        records, features = self._made(scope, self._ready().encode, said)
        self._vectors.put_vectors(self.name, records, features, lease=scope.lease)

    @_in_force
    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        from agent_memory.retrieval.turns import recalls, telling

        question = message.text().strip() if message else ""
        if not question:
            return []
        query = self._query(scope, question)
        least = scope.floor * self.resources.min_relevance
        depth = limit + _DEEP
        while True:
            hits = self._vectors.search_vectors(self.name, scope.owner, query, depth)
            wanted = [hit for hit in hits if hit.relevance >= least]
            found = folded(recalls(telling(question, wanted), self.name, scope), limit)
            # most are relevant, and some of them are shown, ask the same or say the same
            hides = len(found) < len(wanted) and 2 * len(wanted) >= len(hits) >= depth
            if len(found) >= limit or not hides or depth >= _DEEPEST or given_up():
                return found
            depth *= _DEEPER

    def left_out(self, scope: Scope, message: Message, limit: int) -> list[LeftOut]:
        question = message.text().strip()
        if not question:
            return []
        from agent_memory.retrieval.turns import recalls, telling

        hits = self._vectors.search_vectors(
            self.name, scope.owner, self._query(scope, question), limit + _DEEP
        )
        told = {hit.record.id for hit in telling(question, hits)}
        least = self.resources.min_relevance
        low = [hit for hit in hits if hit.record.id in told and hit.relevance < least]
        same = [hit for hit in hits if hit.record.id not in told]
        why = f"its relevance is {{:.2f}}, and min_relevance asks {least:g}"
        return [
            *(LeftOut(one, why.format(one.relevance)) for one in recalls(low[:limit], self.name)),
            *(
                LeftOut(one, "it only asks the same, or says that it is not known")
                for one in recalls(same[:limit], self.name)
            ),
        ]

    def _query(self, scope: Scope, question: str) -> Query:
        """The query of a question, over stored records and those of what is not absorbed yet."""
        if self._embedder is None and not self._meanings.rests:
            try:
                self._ready()
            except ModelError as error:  # the question goes by its words, and the context says so
                self._meanings.rest(error)
        query = self._meanings.query(question)
        tails = self.resources.pending.of(self.name, scope)
        soon = self._meanings.soon()
        waiting = self._waiting.index(
            tails, scope.owner, question, partial(self._made, scope, soon), soon.is_whole
        )
        if not soon.is_whole():
            self.said(scope)
        return query if waiting is None else query.with_pending(*waiting)

    def _made(
        self, scope: Scope, encode: Encode, said: Sequence[tuple[Entry, Turn]]
    ) -> tuple[list[Record], Features]:
        """The records of turns, with their features."""
        from agent_memory.retrieval.features import Features
        from agent_memory.retrieval.turns import record_of_turn

        records = [record_of_turn(*one, self._id(scope, *one), scope.owner) for one in said]
        return records, Features.of_turns([turn for _, turn in said], encode)

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

    def _ready(self) -> Encoder:
        """The embedder, once the vector store agreed with it."""
        if self._embedder is None:
            embedder = self._chosen(self.resources)
            self._vectors.open_vectors(self.name, embedder.dimension, embedder.name)
            self._embedder = embedder
        return self._embedder

    @contextmanager
    def _opened(self, resources: Resources) -> Iterator[VectorStore]:
        vectors = resources.vectors(self._qdrant)
        try:
            yield vectors
        finally:
            if self._qdrant is not None:
                vectors.close()

    def _chosen(self, resources: Resources) -> Encoder:
        embedder = resources.embedders(self.embedding)
        dimension = embedder.dimension
        if self.dimension not in (None, dimension):
            raise DimensionMismatch(
                f"The block {self.name!r} asks for vectors of {self.dimension} numbers, but "
                f"{embedder.name} gives {dimension}. Change `dimension` or `embedding`."
            )
        return embedder

    def _id(self, scope: Scope, entry: Entry, turn: Turn) -> str:
        return message_id(self.name, scope.owner, entry.session_id, entry.seq, turn.part.number)
