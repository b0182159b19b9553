"""Embeds each text once: a cache in front of any embedder."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent_memory.core.processes import fork_safe_lock
from agent_memory.models.embedders.base import Embedder

if TYPE_CHECKING:
    import numpy as np


class CachedEmbedder:
    """Keeps the vectors of the texts used last. Safe to share between threads.

    Args:
        inner: The embedder to ask for texts not seen lately.
        size: Most vectors kept.
    """

    def __init__(self, inner: Embedder, size: int = 10_000) -> None:
        self.inner = inner
        self.size = size
        self._lock = fork_safe_lock()
        self._vectors: OrderedDict[bytes, np.ndarray] = OrderedDict()

    def __repr__(self) -> str:
        return f"CachedEmbedder({self.inner!r})"

    @property
    def name(self) -> str:
        """The inner embedder's name: its vectors are the same."""
        return self.inner.name

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.inner.dimension

    @property
    def unrelated(self) -> float:
        """The inner embedder's."""
        return self.inner.unrelated

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """A unit vector for each text; those not kept come from one call of the inner embedder."""
        import numpy as np

        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        keys = [_key(text) for text in texts]
        found = self._find(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            rows = self.inner.embed(list(missing.values()))
            # A copy, since a row is a view that would keep its whole batch in memory.
            new = {key: row.copy() for key, row in zip(missing, rows, strict=True)}
            self._keep(new)
            found |= new
        return np.stack([found[key] for key in keys])

    def _find(self, keys: list[bytes]) -> dict[bytes, np.ndarray]:
        found = {}
        with self._lock:
            for key in keys:
                if key in self._vectors:
                    self._vectors.move_to_end(key)
                    found[key] = self._vectors[key]
        return found

    def _keep(self, new: dict[bytes, np.ndarray]) -> None:
        with self._lock:
            for key, vector in new.items():
                self._vectors[key] = vector
                self._vectors.move_to_end(key)
            while len(self._vectors) > self.size:
                self._vectors.popitem(last=False)


def _key(text: str) -> bytes:
    """A text's digest, so that a long text costs no more to keep than a short one."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
