"""The embedder in force where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.retrieval.encoding import Encoding


class NoEmbedder:
    """Vectors without numbers: records are found by their words alone."""

    name = "words-only"
    dimension = 0
    baseline = 0.0
    on_this_machine = False

    def __repr__(self) -> str:
        return "NoEmbedder()"

    def load(self) -> None:
        """Do nothing."""

    def cached(self, texts: Sequence[str]) -> bool:
        """True: there is nothing to encode."""
        return True

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return a (len(texts), 0) array."""
        import numpy as np

        return np.zeros((len(texts), 0), np.float32)

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Return encodings without numbers."""
        from agent_memory.retrieval.encoding import encoding_of

        return [encoding_of(row) for row in self.embed(texts)]

    def encode_query(self, text: str) -> Encoding:
        """Return an encoding without numbers."""
        return self.encode([text])[0]
