"""Best-effort embedding: if the embedder is down, texts are compared by words alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from agent_memory.core.cache import Cache
from agent_memory.core.lazy import lazy_property
from agent_memory.core.notices import error_text, notice
from agent_memory.errors import DimensionMismatch, ModelError, SpendingLimitReached
from agent_memory.models.embedders.base import Encoder, NoEmbedder

if TYPE_CHECKING:
    from datetime import date

    import numpy as np

    from agent_memory.retrieval.index import TextIndex
    from agent_memory.retrieval.query import Query
    from agent_memory.retrieval.vectors import Encoding

logger = logging.getLogger(__name__)

T = TypeVar("T")

DOWN = (ModelError, DimensionMismatch)
"""Errors of an embedder that is unreachable, or returns vectors of another length."""

_REST_SECONDS, _LONGEST_REST = 1.0, 30.0
_SOON_SECONDS = 0.5  # time limit for encoding new texts while a question waits
_MOST_INDEXED = 20_000  # maximum number of texts in a `TextIndexes`
_BATCH = 1_000  # characters that a local embedder encodes between two checks of the time limit


class BestEffort:
    """An embedder that may be down. Texts then have no vectors, and are compared by words alone.

    After a failure, the embedder is not called for one second, so that recalls do not wait for a
    further failure. The pause doubles with each further failure, up to half a minute.
    """

    def __init__(self, embedder: Callable[[], Encoder]) -> None:
        self._embedder = embedder
        self._down_until, self._failed = 0.0, 0
        self._why = ""

    @property
    def name(self) -> str:
        return self._embedder().name

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return a unit vector for each text; empty vectors while the embedder is down."""
        import numpy as np

        vectors = self._attempt(lambda embedder: embedder.embed(texts)) if texts else None
        return np.zeros((len(texts), 0), np.float32) if vectors is None else vectors

    def soon(self) -> SoonEncoded:
        """Return an encoder whose calls take at most about 0.5 s in total."""
        return SoonEncoded(self)

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Return an encoding of each text within about 0.5 s; see `SoonEncoded`."""
        return self.soon()(texts)

    def index(self, texts: Sequence[str]) -> TextIndex:
        """Return a search index of texts, some perhaps without vectors; see `encode`."""
        from agent_memory.retrieval.index import TextIndex

        return TextIndex(texts, self.encode(texts))

    def opened(self) -> Encoder | None:
        """Return the embedder; None while it is down or cannot be opened."""
        return self._attempt(lambda embedder: embedder)

    def query(self, question: str, today: date | None = None, *, is_message: bool = False) -> Query:
        """Return `Query.of_question`, without a vector while the embedder is down."""
        from agent_memory.retrieval.query import Query

        query = self._attempt(
            lambda embedder: Query.of_question(question, embedder, today, is_message=is_message)
        )
        if query is not None:
            self._failed = 0
            return query
        notice(f"texts are compared by their words alone for now. {self._why}")
        return Query.of_question(question, NoEmbedder(), today)

    def has_vectors(self) -> bool | None:
        """Return whether the embedder gives vectors; None while it is down."""
        dimension = self._attempt(lambda embedder: embedder.dimension)
        return None if dimension is None else dimension > 0

    def _attempt(self, call: Callable[[Encoder], T]) -> T | None:
        """Return the result of `call`; None while the embedder is down."""
        if not self.rests:
            try:
                return call(self._embedder())
            except DOWN as error:
                self.rest(error)
        return None

    @property
    def rests(self) -> bool:
        return time.monotonic() < self._down_until

    def rest(self, error: Exception) -> None:
        """Begin a pause after a failure."""
        self._why = error_text(error)
        if isinstance(error, SpendingLimitReached):  # it may concern only one user
            return
        seconds = min(_LONGEST_REST, _REST_SECONDS * 2**self._failed)
        self._down_until, self._failed = time.monotonic() + seconds, min(self._failed + 1, 9)
        logger.warning("an embedder failed and is not called for %g s: %s", seconds, self._why)


class SoonEncoded:
    """Encodes texts, the last text first. All calls share one time limit.

    Texts that are neither cached nor encoded in time get a vector of zeros. If the embedder is down
    at the first call, all vectors are empty.
    """

    def __init__(self, embedder: BestEffort) -> None:
        self._best = embedder
        self._until = time.monotonic() + _SOON_SECONDS
        self._complete = True

    def is_complete(self) -> bool:
        """Return whether all calls so far encoded all their texts."""
        return self._complete

    def cached(self, texts: Sequence[str]) -> list[Encoding]:
        """Return the cached encodings of texts, with zeros for texts that are not cached."""
        return self._encoded(texts, until=0.0)

    def __call__(self, texts: Sequence[str]) -> list[Encoding]:
        return self._encoded(texts, self._until)

    @lazy_property
    def _embedder(self) -> Encoder | None:
        return self._best.opened()

    def _encoded(self, texts: Sequence[str], until: float) -> list[Encoding]:
        embedder = self._embedder if texts else None
        if embedder is None:
            self._complete = self._complete and not texts
            return NoEmbedder().encode(texts)
        cached = [at for at, text in enumerate(texts) if embedder.cached([text])]
        encodings = dict(zip(cached, embedder.encode([texts[at] for at in cached]), strict=True))
        missing = [at for at in range(len(texts)) if at not in encodings]
        while missing and time.monotonic() < until and not self._best.rests:
            batch = [missing.pop()]
            room = _BATCH - len(texts[batch[0]])
            while missing and (room > 0 or not embedder.on_this_machine):
                batch.append(missing.pop())
                room -= len(texts[batch[-1]])
            batch.reverse()
            try:
                encoded = embedder.encode([texts[at] for at in batch])
            except DOWN as error:
                self._best.rest(error)
                missing += batch
            else:
                encodings |= dict(zip(batch, encoded, strict=True))
        if not missing:
            return [encodings[at] for at in range(len(texts))]
        self._complete = False
        import numpy as np

        from agent_memory.retrieval.vectors import encoding_of

        blank = encoding_of(np.zeros(embedder.dimension, np.float32))
        return [encodings.get(at, blank) for at in range(len(texts))]


class TextIndexes(Cache[str, "TextIndex"]):
    """Indexes by owner, each valid while the owner's texts are the same. Thread-safe.

    The caller reads the texts from the store every time, and the cache compares them with the
    indexed texts. The cache therefore notices changes by other processes.
    """

    def __init__(self, embedder: BestEffort) -> None:
        super().__init__(_MOST_INDEXED, len)
        self._embedder = embedder

    def relevance(
        self, owner: str, texts: Sequence[str], question: str, *, is_message: bool = False
    ) -> np.ndarray:
        """Return for each of an owner's texts the probability that it is relevant to a question."""
        index = self.find(owner)
        if index is None or index.texts != texts:
            index = self._embedder.index(texts)
            # an index without vectors is not cached while the embedder is down
            if index.encoded or self._embedder.has_vectors() is False:
                self.put(owner, index)
        return index.relevance(self._embedder.query(question, is_message=is_message))
