"""The embedder interfaces."""

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
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector. The first access may load the model or send a request."""
        ...

    def load(self) -> None:
        """Load files that are on this machine. Sends no request. Idempotent."""
        ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return a (len(texts), dimension) float32 array of unit vectors, zeros for blank texts.

        Raises:
            ModelError: The model cannot be reached or refuses.
        """
        ...


class Encoder(Embedder, Protocol):
    """An embedder that encodes; `open_embedder` returns one."""

    @property
    def on_this_machine(self) -> bool:
        """Whether encoding is free, so that texts may be encoded before anyone needs them."""
        ...

    @property
    def baseline(self) -> float:
        """The average cosine of short unrelated texts, from 0 to 0.95."""
        ...

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Return the encoding of each text."""
        ...

    def encode_query(self, text: str) -> Encoding:
        """Return the encoding of a question."""
        ...

    def cached(self, texts: Sequence[str]) -> bool:
        """Return whether all of these texts are encoded already. Sends no request."""
        ...
