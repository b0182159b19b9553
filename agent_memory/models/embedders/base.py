"""What an embedder is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np


class Embedder(Protocol):
    """Turns texts into unit vectors. Safe to call from many threads."""

    @property
    def name(self) -> str:
        """Names model and dimension; vectors of two names are not comparable."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector. May load the model or ask the provider, the first time."""
        ...

    @property
    def unrelated(self) -> float:
        """Cosine of the best of many texts with one that is foreign to all; 0 if not known."""
        ...

    def load(self) -> None:
        """Load what is on this machine already; asks nobody. Idempotent."""
        ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """A (len(texts), dimension) float32 array, each row of length 1 (all 0 for an empty text).

        Raises:
            ModelError: The model cannot be reached or refuses.
        """
        ...
