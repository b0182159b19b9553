"""The embedder interfaces, and `NoEmbedder`, which is used if none is installed or configured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.retrieval.vectors import Encoding


class Embedder(Protocol):
    """Turns texts into unit vectors. Thread-safe.

    `CachedEmbedder` adds `encode`, `encode_query`, `cached` and `baseline`. An embedder with an
    `encode` of its own gives word pieces too.
    """

    @property
    def name(self) -> str:
        """The name of model and dimension. Vectors under different names are not comparable."""

    @property
    def dimension(self) -> int:
        """Length of a vector. The first access may load the model or send a request."""

    def load(self) -> None:
        """Load files that are on this machine. Sends no request. Idempotent."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return a (len(texts), dimension) float32 array of unit vectors, zeros for blank texts.

        Raises:
            ModelError: The model cannot be reached or refuses.
        """


class Encoder(Embedder, Protocol):
    """An embedder that encodes; `open_embedder` returns one."""

    @property
    def on_this_machine(self) -> bool:
        """Whether encoding is free, so that texts may be encoded before anyone needs them."""

    @property
    def baseline(self) -> float:
        """The average cosine of short unrelated texts, from 0 to 0.95."""

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Return the encoding of each text."""

    def encode_query(self, text: str) -> Encoding:
        """Return the encoding of a question."""

    def cached(self, texts: Sequence[str]) -> bool:
        """Return whether all of these texts are encoded already. Sends no request."""


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
        """Return True: there is nothing to encode."""
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
