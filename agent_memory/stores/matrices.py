"""Vectors of an owner as one matrix, kept between searches for stores that have to load them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.errors import DimensionMismatch
from agent_memory.records import Record
from agent_memory.stores.coding import mismatch

if TYPE_CHECKING:
    import numpy as np

_CACHE_BYTES = 64 * 2**20
_FLOAT_BYTES = 4


def blobs_of(records: Sequence[Record], vectors: np.ndarray) -> list[bytes]:
    """Each record's vector as a database keeps it: float32, little-endian."""
    import numpy as np

    matrix = np.ascontiguousarray(vectors, dtype="<f4")
    if matrix.ndim != 2 or len(matrix) != len(records):
        raise ValueError("Give one vector for each record.")
    return [row.tobytes() for row in matrix]


def checked(block: str, opened: tuple[int, str] | None, blobs: Sequence[bytes]) -> tuple[int, str]:
    """The dimension and model that a block's vectors were opened with.

    Raises:
        DimensionMismatch: They were not opened, or these have another length.
    """
    width = len(blobs[0]) // _FLOAT_BYTES
    if opened is None or opened[0] != width:
        known = opened or (0, "no embedder")
        raise DimensionMismatch(mismatch(block, known, (width, "unnamed")))
    return opened


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
