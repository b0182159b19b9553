"""Vectors of an owner as one matrix, kept between searches for stores that have to load them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_CACHE_BYTES = 64 * 2**20


class MatrixCache:
    """The matrices searched last, for as long as their versions stand.

    It takes no lock: each step on the dict is atomic, and a lost entry is only loaded again.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[int, list[str], np.ndarray]] = OrderedDict()

    def get(self, key: tuple[str, str], version: int | None) -> tuple[list[str], np.ndarray] | None:
        """Ids and matrix that were kept for a block and owner, if their version still stands."""
        kept = self._kept.pop(key, None)
        if kept is None or kept[0] != version:
            return None
        self._kept[key] = kept
        return kept[1], kept[2]

    def put(self, key: tuple[str, str], rows: Sequence[Any]) -> tuple[list[str], np.ndarray]:
        """Keep what was loaded; rows have `version, id, vector` (float32, little-endian)."""
        import numpy as np

        if not rows:
            return [], np.empty((0, 0), dtype=np.float32)
        ids = [row.id for row in rows]
        matrix = np.frombuffer(b"".join(row.vector for row in rows), dtype="<f4")
        matrix = matrix.reshape(len(ids), -1)
        self._kept[key] = (rows[0].version, ids, matrix)
        while len(self._kept) > 1 and self._size() > _CACHE_BYTES:
            self._kept.popitem(last=False)
        return ids, matrix

    def _size(self) -> int:
        return sum(matrix.nbytes for _, _, matrix in list(self._kept.values()))
