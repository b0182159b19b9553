"""Embeds each text once: a cache in front of any embedder, also where many ask at the same time."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock
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
        self._asked: dict[bytes, Future[dict[bytes, np.ndarray]]] = {}
        begin_anew_in_child(self, lambda cache: cache._asked.clear())

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

    def load(self) -> None:
        """The inner embedder's."""
        self.inner.load()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """A unit vector for each text; those not kept come from one call of the inner embedder."""
        import numpy as np

        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        keys = [_key(text) for text in texts]
        wanted = dict(zip(keys, texts, strict=True))
        done: Future[dict[bytes, np.ndarray]] = Future()
        found, others, own = self._divided(wanted, done)
        if own:
            try:
                rows = self.inner.embed([wanted[key] for key in own])
                # A copy, since a row is a view that would keep its whole batch in memory.
                new = {key: row.copy() for key, row in zip(own, rows, strict=True)}
                self._keep(new)
                found |= new
                done.set_result(new)
            except BaseException as error:
                done.set_exception(error)
                raise
            finally:
                with self._lock:
                    for key in own:
                        self._asked.pop(key, None)
        for key, future in others.items():
            found[key] = future.result()[key]
        return np.stack([found[key] for key in keys])

    def _divided(
        self, wanted: Iterable[bytes], done: Future[dict[bytes, np.ndarray]]
    ) -> tuple[dict[bytes, np.ndarray], dict[bytes, Future[dict[bytes, np.ndarray]]], list[bytes]]:
        """What is kept, what others are asking for, and what is now the caller's to ask."""
        found, others, own = {}, {}, []
        with self._lock:
            for key in wanted:
                if key in self._vectors:
                    self._vectors.move_to_end(key)
                    found[key] = self._vectors[key]
                elif key in self._asked:
                    others[key] = self._asked[key]
                else:
                    self._asked[key] = done
                    own.append(key)
        return found, others, own

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
