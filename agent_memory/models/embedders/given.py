"""Somebody's own function as an embedder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.errors import DimensionMismatch

if TYPE_CHECKING:
    import numpy as np


class GivenEmbedder:
    """A function that gives texts vectors, of any length each; they are made unit vectors.

    Args:
        name: Names it; vectors of two names are not comparable.
        embed: Gives a row of numbers for each text.
        dimension: How many numbers; None to ask it.
    """

    unrelated = 0.0

    def __init__(
        self,
        name: str,
        embed: Callable[[list[str]], Sequence[Sequence[float]]],
        dimension: int | None = None,
    ) -> None:
        self.name = name
        self._embed = embed
        self._dimension = dimension

    def __repr__(self) -> str:
        return f"GivenEmbedder({self.name!r})"

    @property
    def dimension(self) -> int:
        """As given, or as the function gives it."""
        if self._dimension is None:
            self._dimension = len(self._embed(["dimension"])[0])
        return self._dimension

    def load(self) -> None:
        """Nothing."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See `Embedder.embed`.

        Raises:
            DimensionMismatch: The function gives other vectors than it said.
        """
        import numpy as np

        rows: Any = np.asarray(self._embed(list(texts)), np.float32)
        if not len(texts):
            return np.zeros((0, self.dimension), np.float32)
        if rows.shape != (len(texts), self.dimension):
            raise DimensionMismatch(
                f"The embedder {self.name!r} gave an array of {rows.shape}, where "
                f"{(len(texts), self.dimension)} was to be had. Give its dimension as it is."
            )
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        unit: np.ndarray = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
        return unit
