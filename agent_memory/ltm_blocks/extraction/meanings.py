"""Vectors of facts: kept with their claims, made anew where another embedder is configured now."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from agent_memory.errors import DimensionMismatch, ModelError
from agent_memory.facts.claims import Claim
from agent_memory.facts.fact import Fact

if TYPE_CHECKING:
    from agent_memory.embedders.base import Embedder
    from agent_memory.ranking.traits import Sought

logger = logging.getLogger(__name__)

_DOWN = (ModelError, DimensionMismatch)  # unreachable, or answering with other vectors than it did

_REST_SECONDS = 30.0


class Meanings:
    """What texts mean, as unit vectors; without any while the embedder is down.

    Facts are then compared by their words alone: an outage must not keep them from being absorbed
    or recalled. An embedder that failed is left alone for a while, since recall has no time to see
    it fail again.

    Args:
        embedder: Opens the embedder.
    """

    def __init__(self, embedder: Callable[[], Embedder]) -> None:
        self._embedder = embedder
        self._down_until = 0.0

    def of_facts(self, facts: Sequence[Fact], claims: Sequence[Claim]) -> np.ndarray:
        """(n, dimension) what facts mean; no columns without an embedder."""
        by_text = {(claim.fact, claim.text): claim for claim in claims}
        return self._of([by_text[fact.id, fact.text] for fact in facts])

    def are_whole(self, vectors: np.ndarray) -> bool:
        """Whether vectors are those of the embedder, and not none because it was down."""
        if not len(vectors) or vectors.shape[1]:
            return True
        try:
            return not self._rests and self._embedder().dimension == 0
        except _DOWN as error:
            self._rest(error)
            return False

    def sought(self, question: str) -> Sought:
        """What a question looks for."""
        from agent_memory.ranking.traits import Sought

        return Sought.of(question, (*self._embedded([question]), np.zeros(0, np.float32))[0])

    def marked(self, claims: Sequence[Claim]) -> tuple[list[Claim], np.ndarray]:
        """Claims with their vectors in them, and the vectors."""
        vectors = self._embedded([claim.text for claim in claims])
        if not vectors.shape[1]:
            return list(claims), vectors
        name = self._embedder().name
        rows = vectors.astype(np.float16)
        return [
            replace(claim, embedder=name, vector=row.tobytes())
            for claim, row in zip(claims, rows, strict=True)
        ], vectors

    def _of(self, claims: Sequence[Claim]) -> np.ndarray:
        if not claims:
            return np.zeros((0, 0), np.float32)
        missing = [claim for claim in claims if not self._kept(claim)]
        made = self._embedded([claim.text for claim in missing])
        if missing and not made.shape[1]:
            return np.zeros((len(claims), 0), np.float32)
        fresh = dict(zip([claim.id for claim in missing], made, strict=True))
        return np.stack([
            fresh[claim.id] if claim.id in fresh
            else np.frombuffer(claim.vector, np.float16).astype(np.float32)
            for claim in claims
        ])  # fmt: skip

    def _kept(self, claim: Claim) -> bool:
        return bool(claim.vector) and claim.embedder == self._embedder().name

    def _embedded(self, texts: Sequence[str]) -> np.ndarray:
        if not texts:
            return np.zeros((0, 0), np.float32)
        nothing = np.zeros((len(texts), 0), np.float32)
        if self._rests:
            return nothing
        try:
            return self._embedder().embed(texts)
        except _DOWN as error:
            self._rest(error)
            return nothing

    @property
    def _rests(self) -> bool:
        return time.monotonic() < self._down_until

    def _rest(self, error: Exception) -> None:
        self._down_until = time.monotonic() + _REST_SECONDS
        logger.warning("facts are compared by their words alone for now: %s", error)
