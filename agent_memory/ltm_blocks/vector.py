"""`VectorMemory`: searches past messages by words and meaning."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Literal, Self

from pydantic import PrivateAttr, field_validator

from agent_memory.core.messages import Message
from agent_memory.core.notices import notice
from agent_memory.core.records import Entry, LeftOut, Recall, Record, Scope
from agent_memory.core.settings_model import Positive
from agent_memory.core.text import WORD
from agent_memory.core.threads import is_unwanted
from agent_memory.errors import Damaged, DimensionMismatch, ModelError, StoreUnavailable
from agent_memory.ltm_blocks.base import Block, QueryThread, Resources, by_owner, message_id
from agent_memory.ltm_blocks.pending_index import WHOLE, Encode, Waiting, are_many
from agent_memory.models.embedders import EmbeddingField
from agent_memory.models.embedders.base import Encoder
from agent_memory.models.embedders.best_effort import BestEffort
from agent_memory.stores import check_url, serves
from agent_memory.stores.base import VectorStore
from agent_memory.stores.kernel.coding import mismatch
from agent_memory.stores.qdrant.connection import check_qdrant_url, is_qdrant

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Turn
    from agent_memory.retrieval.query import Query
    from agent_memory.retrieval.statements import TextHit

logger = logging.getLogger(__name__)

_DEEP = 10  # number of extra hits, because hits that only repeat the question are dropped
_SURE = 0.5  # minimum relevance of a message that reports the event named in a question
_FOLLOWED = 5  # number of best messages whose next messages are read, which may correct them
_LIKE = 20  # number of records in which corrections of a statement are searched
_AHEAD = 32  # number of texts that are encoded at a time in the background
_DEEPER = 4  # factor by which a deeper search returns more records
_DEEPEST = 2_000


class VectorMemory(Block):
    """Recalls past messages of a user. It stores messages that have text and one of the `roles`.

    Long messages are stored in passages. A search compares the meaning, word pieces and words of
    each message, both alone and together with its neighbours in the session; see
    `agent_memory.retrieval.score`. A search compares only words if no embedder is configured and
    the extra "local" is not installed.

    Attributes:
        store: The database of the vectors; None for the database of the session store.
            "sqlite:///vectors.db" is a separate file; other databases have URLs too.
            "http://host:6333" is a Qdrant server (extra `qdrant`), ":memory:" Qdrant's local mode.
        embedding: An embedding model instead of the configured one; see `AgentMemoryConfig`.
        dimension: Required length of the model's vectors; None accepts any.
        roles: Roles of the messages to store.
    """

    recalls_pending = True
    selective = True

    kind: Literal["vector"] = "vector"
    embedding: EmbeddingField = None
    dimension: Positive | None = None
    roles: tuple[str, ...] = ("user", "assistant")

    _embedder: Encoder | None = PrivateAttr(default=None)
    _vectors: VectorStore = PrivateAttr()
    _waiting: Waiting = PrivateAttr()
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
    def query_thread(self) -> QueryThread:
        is_local = self.store is None and self.embedding is None and self.resources.is_local
        return "shared" if is_local else "own"

    @property
    def vectors(self) -> VectorStore:
        return self._vectors

    def bind(self, resources: Resources) -> Self:
        """Bind the block; see `Block.bind`.

        Raises:
            MissingExtra: The embedder or the vector store is not installed.
            DimensionMismatch: The embedder's dimension differs from the required dimension, or from
                the dimension of the stored vectors.
        """
        bound = super().bind(resources)
        bound._vectors, bound._waiting = resources.vectors(self._qdrant), Waiting(bound.roles)
        bound._meanings = BestEffort(bound._ready)
        try:
            bound._ready()
        except (ModelError, StoreUnavailable, Damaged) as error:
            # an outage must not stop a service from starting; `_ready` tries again when needed
            logger.warning("the vectors of block %r cannot be used yet: %s", self.name, error)
        except BaseException:
            bound.close()
            raise
        return bound

    def clear(self, resources: Resources) -> None:
        self._chosen(resources)  # invalid settings fail here and change nothing
        with self._opened(resources) as vectors:
            vectors.clear_vectors(self.name)

    def problems(self, resources: Resources) -> Sequence[str]:
        """Return an error if another embedder made the stored vectors."""
        from agent_memory.retrieval.query import Query

        try:
            embedder = self._chosen(resources)
            current = (embedder.dimension, embedder.name)
            with self._opened(resources) as vectors:
                if self._qdrant is None:
                    stored = vectors.vector_blocks().get(self.name, current)
                    return [] if stored == current else [mismatch(self.name, stored, current)]
                # a Qdrant server may not know the model, but refuses another dimension
                query = Query.of_question("Anybody?", embedder)
                vectors.search_vectors(self.name, "nobody", query, 1)
        except DimensionMismatch as error:
            return [str(error)]
        return []

    def load(self) -> None:
        import agent_memory.retrieval.turns  # noqa: F401

        self.resources.embedders(self.embedding).load()

    def warm(self, scope: Scope) -> None:
        if self._qdrant is not None:  # the index is on a server
            return
        from agent_memory.retrieval.query import Query

        if self.name in self._vectors.vector_blocks():
            self._vectors.search_vectors(self.name, scope.owner, Query(), 1)

    def close(self) -> None:
        if self._qdrant is not None:
            self._vectors.close()

    def prepare(self, entries: Sequence[Entry]) -> None:
        from agent_memory.retrieval.turns import spoken

        # the embedder caches the encodings
        self._ready().encode([str(turn) for _, turn in spoken(entries, self.roles)])

    def messages_appended(self, scope: Scope) -> None:
        if self._embedder is not None and self._embedder.on_this_machine:
            encode = partial(self._encode_ahead, scope)
            self.resources.ahead.add((self.name, scope.owner), encode)

    def _encode_ahead(self, scope: Scope) -> bool:
        """Encode some pending entries, newest first. Return whether there may be more."""
        from agent_memory.retrieval.turns import spoken

        tails = self.resources.pending.of(self.name, scope, WHOLE)
        if tails.count > WHOLE:  # there are too many to encode ahead
            return False
        waiting = [entry for tail in tails.read for entry in tail.entries[tail.since :]]
        embedder = self._ready()
        texts = [str(turn) for _, turn in spoken(waiting[::-1], self.roles)]
        missing = [text for text in texts if not embedder.cached([text])]
        if missing:
            embedder.encode(missing[:_AHEAD])
        return len(missing) > _AHEAD

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        from agent_memory.retrieval.turns import spoken

        turns = spoken(entries, self.roles)
        if not turns:
            return
        records, features = self._encoded(scope, self._ready().encode, turns)
        self._vectors.put_vectors(self.name, records, features, lease=scope.lease)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        from agent_memory.core.fusion import folded
        from agent_memory.retrieval.answers import answers
        from agent_memory.retrieval.nearby import completed
        from agent_memory.retrieval.turns import recalls

        if message is None or not message.text().strip():
            return []
        question, query = self._question_and_query(scope, message)
        least = scope.floor * self.resources.min_relevance
        depth, pieces = limit + _DEEP, query.tokens if scope.in_context else None
        # a reply or a correction may rank far behind the message before it
        query = replace(query, with_next=depth if query.asks_assistant else _FOLLOWED)
        while True:
            hits = self._search(scope, query, depth)
            wanted = [hit for hit in hits if hit.relevance >= least]
            near = partial(self._near_both, scope, query)
            results = answers(
                question,
                hits,
                least,
                near,
                corrects=query.period is None,
                in_context=scope.in_context,
            )
            results = completed(question, results, hits, in_context=scope.in_context)
            recalled = folded(recalls(results, self.name, scope, pieces), limit)
            # search deeper if at least half of the hits are relevant, but some relevant hits repeat
            # another hit or are in the context already
            hides = len(recalled) < len(wanted) and 2 * len(wanted) >= len(hits) >= depth
            if len(recalled) >= limit or not hides or depth >= _DEEPEST or is_unwanted():
                return recalled
            depth *= _DEEPER

    def left_out(self, scope: Scope, message: Message, limit: int) -> list[LeftOut]:
        if not message.text().strip():
            return []
        from agent_memory.retrieval.answers import informative_hits
        from agent_memory.retrieval.turns import recalls

        question, query = self._question_and_query(scope, message)
        hits = self._search(scope, query, limit + _DEEP)
        informative = {hit.record.id for hit in informative_hits(question, hits)}
        least = self.resources.min_relevance
        low = [hit for hit in hits if hit.record.id in informative and hit.relevance < least]
        same = [hit for hit in hits if hit.record.id not in informative]
        why = f"its relevance is {{:.2f}}, but min_relevance is {least:g}"
        empty = "it only repeats the question, or says that the answer is not known"
        return [
            *(LeftOut(it, why.format(it.relevance)) for it in recalls(low[:limit], self.name)),
            *(LeftOut(it, empty) for it in recalls(same[:limit], self.name)),
        ]

    def _question_and_query(self, scope: Scope, message: Message) -> tuple[str, Query]:
        """Return a question and its query, after a correction of misspelled words.

        Words that similar messages have are kept.
        """
        from agent_memory.models.embedders.spelling import corrected, corrections

        question, today = message.text().strip(), self.resources.today(scope, message)
        query = self._query(scope, question, today)
        words = corrections(question)
        if not words:
            return question, query
        hits = self._search(scope, query, _DEEP)
        similar = {word for hit in hits for word in WORD.findall(hit.record.text.casefold())}
        spelled = corrected(question, words, similar)
        if spelled != question:
            query = self._query(scope, spelled, today)
        return spelled, query

    def _search(self, scope: Scope, query: Query, limit: int) -> list[TextHit]:
        from agent_memory.retrieval.statements import messages_in

        return messages_in(self._vectors.search_vectors(self.name, scope.owner, query, limit))

    def _query(self, scope: Scope, question: str, today: date) -> Query:
        """Return a question's query, which also searches the pending entries."""
        if self._embedder is None and not self._meanings.rests:
            try:
                self._ready()
            except ModelError as error:  # the search uses words only, and the context reports it
                self._meanings.rest(error)
        query = self._meanings.query(question, today, is_message=scope.in_context)
        tails = self.resources.pending.of(self.name, scope)
        if are_many(tails):
            notice(
                f"{tails.count} messages are not absorbed yet. Only the newest, and those that "
                "share words with the question, were searched. `flush` absorbs all."
            )
        soon = self._meanings.soon()
        make, reuse = (partial(self._encoded, scope, encode) for encode in (soon, soon.cached))
        waiting = self._waiting.index(tails, scope.owner, question, make, soon.is_complete, reuse)
        if not soon.is_complete():
            self.messages_appended(scope)
        if waiting is not None:
            query = query.with_pending(*waiting)
        return query if query.period is not None else self._dated(scope, question, query)

    def _dated(self, scope: Scope, question: str, query: Query) -> Query:
        """Limit the query to the days before or since an event that the question names."""
        from agent_memory.retrieval.dates import event_of

        event = event_of(question)
        if event is None:
            return query
        happened = query.over_the_same(self._meanings.query(event.text))
        hits = self._search(scope, happened, 1)
        if not hits or hits[0].relevance < _SURE:
            return query
        return query.within(event.period(hits[0].record.created_at.date()))

    def _near_both(self, scope: Scope, query: Query, hit: TextHit) -> list[tuple[TextHit, float]]:
        """Return the hits nearest to a question and a statement together; see `answers.Newer`."""
        vector = hit.encoding().vector if hit.encoding is not None else ()
        if not len(query.meaning) or not len(vector):  # a damaged record has no vector
            return []
        both = query.meaning + vector
        length = float((both @ both) ** 0.5)
        hits = self._search(scope, query.like(both), _LIKE)
        return [(near, near.cosine * length) for near in hits]

    def _encoded(
        self, scope: Scope, encode: Encode, turns: Sequence[tuple[Entry, Turn]]
    ) -> tuple[list[Record], Features]:
        from agent_memory.retrieval.features import Features
        from agent_memory.retrieval.turns import record_of_turn

        records = [record_of_turn(*pair, self._id(scope, *pair), scope.owner) for pair in turns]
        return records, Features.of_turns([turn for _, turn in turns], encode)

    def validate_vectors(self, dimension: int, model: str) -> bool:
        embedder = self.resources.embedders(self.embedding)
        return (embedder.dimension, embedder.name) == (dimension, model)

    @by_owner
    def delete(self, scope: Scope) -> None:
        if scope.session_id is None:
            self._vectors.delete_vectors(self.name, owner=scope.owner)
        else:
            self._vectors.delete_vectors(
                self.name, session_id=scope.session_id, after=scope.after, lease=scope.lease
            )

    def _ready(self) -> Encoder:
        """Return the embedder. The first call opens the vectors with its model and dimension."""
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
                f"The block {self.name!r} needs vectors of {self.dimension} numbers, but "
                f"{embedder.name} gives {dimension}. Change `dimension` or `embedding`."
            )
        return embedder

    def _id(self, scope: Scope, entry: Entry, turn: Turn) -> str:
        return message_id(self.name, scope.owner, entry.session_id, entry.seq, turn.part.number)
