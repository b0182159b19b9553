"""Search over short texts such as facts and notes, and exact cosines for a user's own vectors."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence

import numpy as np

from agent_memory.errors import InvalidInput
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.index import SegmentIndex
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.vectors import Encoding

_ALONG, _ACROSS = 0.6, 0.8  # the product 0.36 c + 0.64 is positive for every cosine c
_MARGIN = 3e-4
"""Upper bound of a cosine's error in single precision."""

_SMALL, _LARGE = np.dtype("<f4"), np.dtype("<f8")


def vector_of(value: object, what: str) -> np.ndarray:
    """Return a vector as float64, scaled by a power of two so that squares do not overflow.

    Args:
        what: The name of the value, for error messages.

    Raises:
        InvalidInput: The value is not a vector of finite numbers, or is all zeros.
    """
    try:
        row = np.asarray(value)
    except (TypeError, ValueError):
        row = np.empty(0)
    if row.ndim != 1 or not row.size or row.dtype.kind not in "fiu":
        raise InvalidInput(f"{what} is not a vector. Give a list of numbers, or an array of them.")
    exact = row.astype(np.float64)
    largest = float(np.abs(exact).max())
    if not np.isfinite(largest):
        raise InvalidInput(f"{what} contains a number that is not finite.")
    if not largest:
        raise InvalidInput(f"{what} is all zeros, so it has no direction to compare.")
    scaled: np.ndarray = np.ldexp(exact, -np.frexp(largest)[1])
    return scaled


def lifted(vector: np.ndarray) -> np.ndarray:
    """Return a vector scaled to length 1, with one number appended.

    The dot product of two such vectors is positive, and rises with the cosine of the originals.
    """
    unit = vector / np.linalg.norm(vector)
    return np.append(_ALONG * unit, _ACROSS).astype(np.float32)


def most_unseen(score: float) -> float:
    """Return the highest cosine of two vectors whose `lifted` product is at most `score`."""
    return (score - _ACROSS**2) / _ALONG**2 + _MARGIN


def cosines(rows: np.ndarray, vector: np.ndarray) -> list[float]:
    """Return the cosine of each row with a vector.

    Even the last digits of a cosine do not depend on the other rows.
    """
    products = (rows * vector).sum(axis=1)
    # the root of the product is exact for a vector with itself
    lengths = np.sqrt((rows * rows).sum(axis=1) * (vector * vector).sum())
    result: list[float] = np.clip(products / lengths, -1.0, 1.0).tolist()
    return result


def packed(vector: np.ndarray) -> str:
    """Encode a vector as text without loss, in single precision if that is exact."""
    small = vector.astype(_SMALL)
    exact = small if (small == vector).all() else vector.astype(_LARGE)
    return b64encode(exact.tobytes()).decode("ascii")


def unpacked(text: str, dimension: int) -> np.ndarray:
    data = b64decode(text)
    kind = _SMALL if len(data) == dimension * _SMALL.itemsize else _LARGE
    return np.frombuffer(data, kind).astype(np.float64)


class TextIndex:
    """An index over a fixed list of texts.

    Args:
        encodings: The encodings of the texts; with empty vectors if there is no embedder.

    Attributes:
        encoded: Whether all non-blank texts have vectors.
    """

    def __init__(self, texts: Sequence[str], encodings: Sequence[Encoding]) -> None:
        self.texts = texts
        features = Features.of_statements(texts, encodings)
        rows = np.asarray(features.meaning.any(axis=1))
        self.encoded = all(row or not text.strip() for row, text in zip(rows, texts, strict=True))
        ids = [str(place) for place in range(len(texts))]
        self._index = SegmentIndex(features.dimension).extended(ids, features)

    def __len__(self) -> int:
        return len(self.texts)

    def relevance(self, query: Query) -> np.ndarray:
        """Return for each text the probability that it is relevant to a question."""
        if len(query.meaning) != self._index.dimension:  # the query or the index has no vectors
            query = query.by_words()
        ranked = self._index.search(query, len(self.texts))
        relevance = np.zeros(len(self.texts))
        relevance[[int(name) for name in ranked.names]] = ranked.relevance
        return relevance
