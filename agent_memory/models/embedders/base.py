"""What an embedder is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.retrieval.encoding import Encoding


class Embedder(Protocol):
    """Turns texts into unit vectors. Safe to call from many threads.

    `CachedEmbedder` adds `encode`, `encode_query`, `cached` and `baseline` to any of them; one that
    has `encode` itself gives word pieces too.
    """

    @property
    def name(self) -> str:
        """Names model and dimension; vectors of two names are not comparable."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector. May load the model or ask the provider, the first time."""
        ...

    def load(self) -> None:
        """Load what is on this machine already; asks nobody. Idempotent."""
        ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return a (len(texts), dimension) float32 array of unit vectors, zeros for blank texts.

        Raises:
            ModelError: The model cannot be reached or refuses.
        """
        ...


class Encoder(Embedder, Protocol):
    """An embedder that encodes, as `open_embedder` returns it."""

    @property
    def on_this_machine(self) -> bool:
        """Whether it costs nothing to encode what nobody may ask for."""
        ...

    @property
    def baseline(self) -> float:
        """The cosine that short unrelated texts have on average, from 0 to 0.95."""
        ...

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Return the encoding of each text.

        Raises:
            ModelError: The model cannot be reached or refuses.
        """
        ...

    def encode_query(self, text: str) -> Encoding:
        """The same for a question."""
        ...

    def cached(self, texts: Sequence[str]) -> bool:
        """Whether all of these are encoded already. Asks nobody."""
        ...
