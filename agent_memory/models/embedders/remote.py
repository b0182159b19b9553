"""Embeddings from a provider's API, through litellm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.errors import ModelOutputInvalid
from agent_memory.models.loading import load_litellm
from agent_memory.models.provider import Provider

if TYPE_CHECKING:
    import numpy as np

_BATCH = 128


class LiteLLMEmbedder(Provider):
    """Vectors from any embedding model that litellm supports."""

    _dimension: int | None = None

    @property
    def name(self) -> str:
        return self.model

    @property
    def dimension(self) -> int:
        """Length of a vector, from litellm's table or the vector of one word."""
        # no lock: a thread must not wait for another thread's timeout; all get the same length
        if self._dimension is None:
            self._dimension = self._known_dimension() or len(self._request(["dimension"])[0])
        return self._dimension

    def load(self) -> None:
        """Do nothing: the model is remote."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        from agent_memory.models.embedders.vectors import embed_texts

        return embed_texts(texts, self.dimension, self._embed)

    def _embed(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = []
        for start in range(0, len(texts), _BATCH):
            rows += self._request(texts[start : start + _BATCH])
        if not all(map(any, rows)):
            raise ModelOutputInvalid(f"{self.model} returned a vector of zeros.")
        return rows

    def _request(self, texts: list[str]) -> list[list[float]]:
        fields = {"input": texts, "encoding_format": "float"}
        response = self.answered("embedding", texts, fields, 0)
        if len(response.data) != len(texts):
            raise ModelOutputInvalid(
                f"{self.model} returned {len(response.data)} vectors for {len(texts)} texts."
            )
        # a provider that sends no index keeps the order of the texts
        rows: list[Any] = sorted(response.data, key=lambda row: row.get("index") or 0)
        vectors = [row.get("embedding") for row in rows]
        if not all(isinstance(vector, list) for vector in vectors):
            raise ModelOutputInvalid(f"{self.model} returned values that are not vectors.")
        return vectors

    def _known_dimension(self) -> int | None:
        """Return the model's dimension from litellm's table; None if the table lacks it."""
        entry = load_litellm().model_cost
        for name in (self.model, self.model.partition("/")[2]):
            if size := entry.get(name, {}).get("output_vector_size"):
                return int(size)
        return None
