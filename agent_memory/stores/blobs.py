"""Features of records as bytes, the same in every database that keeps them as one value."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, pairwise

import numpy as np

from agent_memory.core.limits import UNREADABLE
from agent_memory.core.records import Record
from agent_memory.errors import DimensionMismatch
from agent_memory.retrieval.features import PLACE, Features
from agent_memory.retrieval.postings import Terms
from agent_memory.retrieval.vectors import TOKEN, Tokens
from agent_memory.stores.coding import mismatch

_MARK = b"\x02\x00\xc0\xff"
_HEADER = struct.Struct("<4s3I")


def blobs_of(records: Sequence[Record], features: Features) -> list[bytes]:
    """Return each record's features as bytes: its place, the vector, word pieces, the numbers of
    its words, and their weights."""
    if len(features) != len(records):
        raise ValueError("Give features for each record.")
    meaning = np.ascontiguousarray(features.meaning, "<f4")
    blobs = []
    for at, words in enumerate(features.words):
        tokens = features.tokens.of_record(at)
        parts = (
            _HEADER.pack(_MARK, features.dimension, len(tokens), len(words.ids)),
            features.places[at].tobytes(),
            meaning[at].tobytes(),
            tokens.tobytes(),
            words.ids.astype("<u4").tobytes(),
            words.weights.astype("<f2").tobytes(),
        )
        blobs.append(b"".join(parts))
    return blobs


def features_of(blobs: Sequence[bytes]) -> Features:
    """The inverse of `blobs_of`.

    Raises:
        ValueError: One is not what was written; `undamaged_places` tells which are.
    """
    meaning, tokens, words, places = zip(*[_row(blob) for blob in blobs], strict=True)
    rows = np.stack(meaning).astype(np.float32, copy=False)
    if not np.isfinite(rows).all():
        raise ValueError("A vector has what is no number.")
    return Features(rows, Tokens.of(tokens), words, np.concatenate(places))


def undamaged_places(blobs: Sequence[bytes]) -> list[int]:
    """Which of some features of one block can be read: they have as many numbers as most."""
    dimensions: dict[int, int] = {}
    for place, blob in enumerate(blobs):
        with suppress(*UNREADABLE):
            dimensions[place] = features_of([blob]).dimension
    if not dimensions:
        return []
    ((usual, _),) = Counter(dimensions.values()).most_common(1)
    return [place for place, dimension in dimensions.items() if dimension == usual]


def checked(block: str, opened: tuple[int, str] | None, features: Features) -> tuple[int, str]:
    """The dimension and model that a block's vectors were opened with.

    Raises:
        DimensionMismatch: They were not opened, or these have another length.
    """
    if opened is None or opened[0] != features.dimension:
        known = opened or (0, "no embedder")
        raise DimensionMismatch(mismatch(block, known, (features.dimension, "unnamed")))
    return opened


def _row(blob: bytes) -> tuple[np.ndarray, np.ndarray, Terms, np.ndarray]:
    if len(blob) < _HEADER.size:
        raise ValueError("Features are cut short.")
    mark, dimension, pieces, count = _HEADER.unpack_from(blob)
    sizes = (PLACE.itemsize, 4 * dimension, TOKEN * pieces, 4 * count, 2 * count)
    if mark != _MARK or len(blob) != _HEADER.size + sum(sizes):
        raise ValueError("Features are not what was written.")
    ends = [*accumulate(sizes, initial=_HEADER.size)]
    place, vector, tokens, ids, weights = (blob[a:b] for a, b in pairwise(ends))
    return (
        np.frombuffer(vector, "<f4"),
        np.frombuffer(tokens, np.int8).reshape(pieces, TOKEN),
        Terms(np.frombuffer(ids, "<u4"), np.frombuffer(weights, "<f2").astype(np.float32)),
        np.frombuffer(place, PLACE),
    )
