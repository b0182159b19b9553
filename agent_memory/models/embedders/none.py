"""The embedder that is used if none is installed or configured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.retrieval.vectors import Encoding


class NoEmbedder:
    """Returns empty vectors: records are found by their words alone."""

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
        """Return empty encodings."""
        from agent_memory.retrieval.vectors import encoding_of

        return [encoding_of(row) for row in self.embed(texts)]

    def encode_query(self, text: str) -> Encoding:
        """Return an empty encoding."""
        return self.encode([text])[0]
