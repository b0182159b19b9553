"""Vectors of facts: kept with their claims, made anew where another embedder is configured now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from agent_memory.ltm_blocks.extractive.history.claims import Claim
from agent_memory.ltm_blocks.extractive.history.fact import Fact

if TYPE_CHECKING:
    from agent_memory.models.embedders.best_effort import BestEffort
    from agent_memory.retrieval.query import Query


class Meanings:
    """What facts mean, as unit vectors; without any while the embedder is down.

    Facts are then compared by their words alone: an outage must not keep them from being absorbed
    or recalled.

    Args:
        embedder: The embedder.
    """

    def __init__(self, embedder: BestEffort) -> None:
        self._embedder = embedder

    def of_facts(self, facts: Sequence[Fact], claims: Sequence[Claim]) -> np.ndarray:
        """(n, dimension) what facts mean; no columns without an embedder."""
        by_text = {(claim.fact, claim.text): claim for claim in claims}
        return self._of([by_text[fact.id, fact.text] for fact in facts])

    def are_whole(self, vectors: np.ndarray) -> bool:
        """Whether vectors are those of the embedder, and not none because it was down."""
        if not len(vectors) or vectors.shape[1]:
            return True
        return self._embedder.has_vectors() is False

    def query(self, question: str) -> Query:
        """What a question looks for."""
        return self._embedder.query(question)

    def marked(self, claims: Sequence[Claim]) -> tuple[list[Claim], np.ndarray]:
        """Claims with their vectors in them, and the vectors."""
        vectors = self._embedder.embed([claim.text for claim in claims])
        if not vectors.shape[1]:
            return list(claims), vectors
        name = self._embedder.name
        rows = vectors.astype(np.float16)
        return [
            replace(claim, embedder=name, vector=row.tobytes())
            for claim, row in zip(claims, rows, strict=True)
        ], vectors

    def _of(self, claims: Sequence[Claim]) -> np.ndarray:
        if not claims:
            return np.zeros((0, 0), np.float32)
        name = self._embedder.name
        missing = [claim for claim in claims if not claim.vector or claim.embedder != name]
        made = self._embedder.embed([claim.text for claim in missing])
        if missing and not made.shape[1]:
            return np.zeros((len(claims), 0), np.float32)
        fresh = dict(zip([claim.id for claim in missing], made, strict=True))
        return np.stack([
            fresh[claim.id] if claim.id in fresh
            else np.frombuffer(claim.vector, np.float16).astype(np.float32)
            for claim in claims
        ])  # fmt: skip
