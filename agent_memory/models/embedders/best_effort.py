"""Vectors where there are any: without them words are compared still."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agent_memory.errors import DimensionMismatch, ModelError

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.models.embedders.base import Encoder
    from agent_memory.retrieval.encoding import Encoding
    from agent_memory.retrieval.query import Query

logger = logging.getLogger(__name__)

DOWN = (ModelError, DimensionMismatch)
"""How an embedder fails: unreachable, or answering with other vectors than it did."""

_REST_SECONDS = 30.0


class BestEffort:
    """An embedder that may be down: texts then have no vectors, and go by their words alone.

    One that failed is left alone for a while, since recall has no time to see it fail again.

    Args:
        embedder: Opens it.
    """

    def __init__(self, embedder: Callable[[], Encoder]) -> None:
        self._embedder = embedder
        self._down_until = 0.0

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
                self._rest(error)
        return np.zeros((len(texts), 0), np.float32)

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Return the encoding of each text; without numbers while there are none to be had."""
        from agent_memory.models.embedders.none import NoEmbedder

        if texts and not self.rests:
            try:
                return self._embedder().encode(texts)
            except DOWN as error:
                self._rest(error)
        return NoEmbedder().encode(texts)

    def query(self, question: str) -> Query:
        """Return what a question looks for."""
        from agent_memory.models.embedders.none import NoEmbedder
        from agent_memory.retrieval.query import Query

        if not self.rests:
            try:
                return Query.asked(question, self._embedder())
            except DOWN as error:
                self._rest(error)
        return Query.asked(question, NoEmbedder())

    def has_vectors(self) -> bool | None:
        """Whether it gives any; None while that can't be told."""
        if self.rests:
            return None
        try:
            return self._embedder().dimension > 0
        except DOWN as error:
            self._rest(error)
            return None

    @property
    def rests(self) -> bool:
        """Whether it failed lately."""
        return time.monotonic() < self._down_until

    def _rest(self, error: Exception) -> None:
        self._down_until = time.monotonic() + _REST_SECONDS
        logger.warning("texts are compared by their words alone for now: %s", error)
