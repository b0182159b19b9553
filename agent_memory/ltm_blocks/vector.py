"""`VectorMemory`: messages that passed, found again by their words and by meaning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from itertools import islice
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from agent_memory.core.fusion import folded
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Hit, LeftOut, Recall, Record, Scope
from agent_memory.core.threads import given_up
from agent_memory.errors import (
    DimensionMismatch,
    ModelUnavailable,
    StoreUnavailable,
)
from agent_memory.ltm_blocks.base import Block, Resources, message_id
from agent_memory.ltm_blocks.waiting import Group, Waiting
from agent_memory.models.embedders.base import Embedder
from agent_memory.retrieval.views import LEAST, RRF, VIEWS, WEIGHTS, Fusion, depth_for
from agent_memory.stores import check_url, serves
from agent_memory.stores.base import VectorStore, swaps_vectors
from agent_memory.stores.coding import mismatch
from agent_memory.stores.qdrant.url import check_qdrant_url, is_qdrant

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Query, Turn
    from agent_memory.retrieval.turns import Ranking

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

_BEFORE = 16  # entries before a batch that may belong to the surroundings of its first
_DEEPER = 4  # times as many are looked at where many say the same
_DEEPEST = 2_000


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

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    words: float = Field(default=WEIGHTS[0], ge=0)
    words_around: float = Field(default=WEIGHTS[1], ge=0)
    meaning: float = Field(default=WEIGHTS[2], ge=0)
    meaning_around: float = Field(default=WEIGHTS[3], ge=0)
    priors: float = Field(default=1.0, ge=0)


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

    A message is found by four views: its words, and what it means, each alone and within what was
    said right before it. They are blended as `fusion` says; see `agent_memory.retrieval`. Without
    an embedder (none configured, the extra "local" not installed) words alone decide.

    Attributes:
        store: None keeps the vectors in the session store's own database. "sqlite:///vectors.db" is
            a file of their own, or give another database's URL. "http://host:6333" is a Qdrant
            server (extra `qdrant`), ":memory:" its local mode.
        embedding: Another embedding model than the configured one.
        dimension: The length its vectors must have; None takes what it gives.
        roles: Whose messages are kept.
        fusion: "blend" adds up the views, each divided by its best; "rrf" is reciprocal rank
            fusion, for comparison: it finds less.
        rrf_k: The constant of rank fusion: the larger, the less the first ranks count for more.
        weights: What each view counts.
        min_score: What the views together must give a message for it to be recalled, of the 1 that
            they can; priors do not count.
        min_similarity: Cosine that the best of many messages must have with the question, unless it
            has half of its words: else nothing is recalled. None takes what is known of the
            embedder: 0.25 for the local one, nothing for others. 0 asks nothing.
    """

    kind: Literal["vector"] = "vector"
    embedding: str | None = None
    dimension: int | None = Field(default=None, gt=0)
    roles: tuple[str, ...] = ("user", "assistant")
    fusion: Fusion = "blend"
    rrf_k: float = Field(default=RRF, gt=0)
    weights: Weights = Weights()
    min_score: float = LEAST
    min_similarity: float | None = None

    _embedder: Embedder | None = PrivateAttr(default=None)
    _vectors: VectorStore = PrivateAttr()
    _waiting: Waiting = PrivateAttr()

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
        with self._opened(resources) as vectors:
            if swaps_vectors(vectors):
                vectors.begin_vectors(self.name, embedder.dimension, embedder.name)
            else:
                vectors.clear_vectors(self.name)

    def problems(self, resources: Resources) -> Sequence[str]:
        """That its embedder is another than the one that the stored vectors are of."""
        from agent_memory.retrieval.features import Query

        try:
            embedder = self._chosen(resources)
            given = (embedder.dimension, embedder.name)
            with self._opened(resources) as vectors:
                if self._qdrant is None:
                    stored = vectors.vector_blocks().get(self.name, given)
                    return [] if stored == given else [mismatch(self.name, stored, given)]
                # not every Qdrant server tells the model, but each refuses another dimension
                query = Query.of("Anybody?", embedder.embed(["Anybody?"])[0])
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
        import agent_memory.retrieval.relevance
        import agent_memory.retrieval.turns  # noqa: F401

        self.resources.embedders(self.embedding).load()

    def warm(self, scope: Scope) -> None:
        if self._qdrant is not None:  # its index is on a server
            return
        import numpy as np

        from agent_memory.retrieval.features import Query

        stored = self._vectors.vector_blocks().get(self.name)
        if stored is not None:
            nothing = Query.of("", np.zeros(stored[0], np.float32))
            self._vectors.search_vectors(self.name, scope.owner, nothing, 1)

    def close(self) -> None:
        if self._qdrant is not None:
            self._vectors.close()

    def prepare(self, entries: Sequence[Entry]) -> None:
        from agent_memory.retrieval.turns import spoken

        self._ready().embed([str(turn) for _, turn in spoken(entries, self.roles)])  # known then

    @_in_force
    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        from agent_memory.retrieval.turns import said_before, spoken

        said = spoken(entries, self.roles)
        if not said:
            return
        before = said_before(self._before(said[0][0]), self.roles)
        ((records, features),) = self._made(scope, [(before, said)])
        self._vectors.put_vectors(self.name, records, features, lease=scope.lease)

    @_in_force
    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        from agent_memory.retrieval.turns import sources_of

        question = message.text().strip() if message else ""
        if not question:
            return []
        query = self._query(scope, question)
        depth = depth_for(limit)
        while True:
            hits = self._hits(scope, query, depth)
            recalls, bearing = list[Recall](), len(hits)
            if any(scope.wants(sources_of(hit.record)) for hit in hits):
                found = self._ranked(scope, question, hits)
                recalls = folded(found.recalls(self.name, scope), limit)
                bearing += len(found) - len(found.hits)
            # all that was found bears on it, asks the same or is shown: there may be more
            enough = len(recalls) >= limit or bearing < depth or depth >= _DEEPEST
            if enough or given_up():
                return recalls
            depth *= _DEEPER

    def left_out(self, scope: Scope, message: Message, limit: int) -> list[LeftOut]:
        question = message.text().strip()
        if not question:
            return []
        from agent_memory.retrieval.turns import telling

        hits = self._hits(scope, self._query(scope, question), depth_for(limit))
        told = telling(question, hits)
        known = {hit.record.id for hit in told}
        silent = [hit for hit in hits if hit.record.id not in known]
        again = [
            LeftOut(recall, "it only asks the same, or says that it is not known")
            for recall in islice(self._in_order(question, silent, 0.0).recalls(self.name), limit)
        ]
        every = list(self._in_order(question, told, 0.0).recalls(self.name))
        if not self._bear(question, told):
            why = f"nothing bears on the question: min_similarity asks {self._unrelated:g} of many"
            return [*(LeftOut(recall, why) for recall in every[:limit]), *again]
        low = [recall for recall in every if _shares(recall) < self.min_score]
        return [
            LeftOut(one, f"its views give it {_shares(one):.2f}, min_score asks {self.min_score:g}")
            for one in low[:limit]
        ] + again

    def _query(self, scope: Scope, question: str) -> Query:
        """What to search for: beside the stored records, those of what is not absorbed yet."""
        from agent_memory.retrieval.features import Query

        tails = self.resources.pending.of(self.name, scope)
        query = Query.of(question, self._ready().embed([question])[0])
        waiting = self._waiting.index(tails, scope.owner, question, partial(self._made, scope))
        return query if waiting is None else query.with_beside(*waiting)

    def _ranked(self, scope: Scope, question: str, hits: Sequence[Hit]) -> Ranking:
        from agent_memory.retrieval.turns import Ranking, telling

        told = telling(question, hits)
        if scope.anyhow:
            return self._in_order(question, told, 0.0)
        if not self._bear(question, told):
            return Ranking(told)
        return self._in_order(question, told, self.min_score)

    def _hits(self, scope: Scope, query: Query, depth: int) -> list[Hit]:
        return self._vectors.search_vectors(self.name, scope.owner, query, depth)

    def _bear(self, question: str, hits: Sequence[Hit]) -> bool:
        import numpy as np

        from agent_memory.retrieval.relevance import bears

        if self.min_similarity == 0:
            return bool(hits)
        scores = np.array([hit.scores for hit in hits], np.float32)
        return bears(question, [hit.record.text for hit in hits], scores, self._unrelated)

    def _in_order(self, question: str, hits: Sequence[Hit], least: float) -> Ranking:
        from agent_memory.retrieval.turns import ranked

        return ranked(
            question,
            hits,
            fusion=self.fusion,
            rrf_k=self.rrf_k,
            weights=[getattr(self.weights, view) for view in VIEWS],
            prior_weight=self.weights.priors,
            least=least,
        )

    def _made(self, scope: Scope, groups: Sequence[Group]) -> list[tuple[list[Record], Features]]:
        """The records of groups of turns, with their features."""
        from agent_memory.retrieval.features import Features
        from agent_memory.retrieval.turns import record_of_turn

        embed = self._ready().embed
        turns = [[*before, *[turn for _, turn in said]] for before, said in groups]
        embed([str(turn) for some in turns for turn in some])  # at once; then they are known
        return [
            (
                [record_of_turn(*one, self._id(scope, *one), scope.owner) for one in said],
                Features.of_turns(some, len(before), embed),
            )
            for (before, said), some in zip(groups, turns, strict=True)
        ]

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

    @contextmanager
    def _opened(self, resources: Resources) -> Iterator[VectorStore]:
        vectors = resources.vectors(self._qdrant)
        try:
            yield vectors
        finally:
            if self._qdrant is not None:
                vectors.close()

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

    def _id(self, scope: Scope, entry: Entry, turn: Turn) -> str:
        return message_id(self.name, scope.owner, entry.session_id, entry.seq, turn.part.number)

    def _before(self, entry: Entry) -> list[Entry]:
        """What was said right before an entry, with what else the log has there."""
        since = max(0, entry.seq - 1 - _BEFORE)
        if since == entry.seq - 1:
            return []
        read = self.resources.store.read(entry.session_id, after=since, limit=entry.seq - 1 - since)
        return [one for one in read if one.seq < entry.seq]


def _shares(recall: Recall) -> float:
    """What the views give it together, without the priors."""
    return recall.score - recall.views["priors"]
