"""Vectors where there are any: without them words are compared still."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agent_memory.core.notices import notice
from agent_memory.core.text import error_text
from agent_memory.errors import DimensionMismatch, ModelError, SpendingLimitReached

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.models.embedders.base import Encoder
    from agent_memory.retrieval.encoding import Encoding
    from agent_memory.retrieval.query import Query

logger = logging.getLogger(__name__)

DOWN = (ModelError, DimensionMismatch)
"""How an embedder fails: unreachable, or answering with other vectors than it did."""

_REST_SECONDS, _LONGEST_REST = 1.0, 30.0
_SOON_SECONDS = 0.5  # that a question waits for what is not encoded yet
_BATCH = 1_000  # characters that are encoded here before the time is looked at again


class BestEffort:
    """An embedder that may be down: texts then have no vectors, and go by their words alone.

    One that failed is left alone for a while, since recall has no time to see it fail again: for a
    second, and each time it fails again for twice as long, up to half a minute.

    Args:
        embedder: Opens it.
    """

    def __init__(self, embedder: Callable[[], Encoder]) -> None:
        self._embedder = embedder
        self._down_until, self._failed = 0.0, 0
        self._why = ""

    @property
    def name(self) -> str:
        """The embedder's."""
        return self._embedder().name

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """(len(texts), dimension) unit vectors; without columns while there are none to be had."""
        import numpy as np

        if texts and not self.rests:
            try:
                return self._embedder().embed(texts)
            except DOWN as error:
                self.rest(error)
        return np.zeros((len(texts), 0), np.float32)

    def soon(self) -> SoonEncoded:
        """Return an encoder for a question that waits."""
        return SoonEncoded(self)

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Return the encoding of each text, within the time limit of a question."""
        return self.soon()(texts)

    def opened(self) -> Encoder | None:
        """The embedder; None while it is down, or cannot be opened."""
        if not self.rests:
            try:
                return self._embedder()
            except DOWN as error:
                self.rest(error)
        return None

    def query(self, question: str) -> Query:
        """Return what a question looks for."""
        from agent_memory.models.embedders.none import NoEmbedder
        from agent_memory.retrieval.query import Query

        why = self._why
        if not self.rests:
            try:
                query = Query.asked(question, self._embedder())
                self._failed = 0
                return query
            except DOWN as error:
                self.rest(error)
                why = error_text(error)
        notice(f"texts are compared by their words alone for now. {why}")
        return Query.asked(question, NoEmbedder())

    def has_vectors(self) -> bool | None:
        """Whether it gives any; None while that can't be told."""
        if self.rests:
            return None
        try:
            return self._embedder().dimension > 0
        except DOWN as error:
            self.rest(error)
            return None

    @property
    def rests(self) -> bool:
        """Whether it failed lately."""
        return time.monotonic() < self._down_until

    def rest(self, error: Exception) -> None:
        """Leave it alone for a while: it failed. What one user may not ask others may."""
        if isinstance(error, SpendingLimitReached):
            return
        seconds = min(_LONGEST_REST, _REST_SECONDS * 2**self._failed)
        self._down_until, self._failed = time.monotonic() + seconds, min(self._failed + 1, 9)
        self._why = error_text(error)
        logger.warning("an embedder is left alone for %g s: %s", seconds, self._why)


class SoonEncoded:
    """Encodes texts within a time limit, the last first; others get a vector of zeros, and all of
    them no numbers while the embedder is down.

    Args:
        embedder: Encodes them.
    """

    def __init__(self, embedder: BestEffort) -> None:
        self._best = embedder
        self._until = time.monotonic() + _SOON_SECONDS  # over all calls
        self._whole = True

    def is_whole(self) -> bool:
        """Whether all texts were encoded so far."""
        return self._whole

    def __call__(self, texts: Sequence[str]) -> list[Encoding]:
        """Return the encoding of each text."""
        from agent_memory.models.embedders.none import NoEmbedder

        embedder = self._best.opened() if texts else None
        if embedder is None:
            self._whole = self._whole and not texts
            return NoEmbedder().encode(texts)
        found: dict[int, Encoding] = {}
        missing: list[int] = []
        for at, text in enumerate(texts):
            if embedder.cached([text]):
                found[at] = embedder.encode([text])[0]
            else:
                missing.append(at)
        while missing and time.monotonic() < self._until and not self._best.rests:
            batch = [missing.pop()]
            room = _BATCH - len(texts[batch[0]])
            while missing and (room > 0 or not embedder.on_this_machine):
                batch.append(missing.pop())
                room -= len(texts[batch[-1]])
            batch.reverse()
            try:
                made = embedder.encode([texts[at] for at in batch])
            except DOWN as error:
                self._best.rest(error)
                missing += batch
            else:
                found |= dict(zip(batch, made, strict=True))
        if not missing:
            return [found[at] for at in range(len(texts))]
        self._whole = False
        blank = _blank(embedder.dimension)
        return [found.get(at, blank) for at in range(len(texts))]


def _blank(dimension: int) -> Encoding:
    import numpy as np

    from agent_memory.retrieval.encoding import encoding_of

    return encoding_of(np.zeros(dimension, np.float32))
