"""What stands in for an embedder where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


class NoEmbedder:
    """Vectors without numbers: what has them is found by its words alone."""

    name = "words-only"
    dimension = 0
    unrelated = 0.0

    def __repr__(self) -> str:
        return "NoEmbedder()"

    def load(self) -> None:
        """Nothing."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """A (len(texts), 0) array."""
        import numpy as np

        return np.zeros((len(texts), 0), np.float32)
