"""Features of records as bytes, the same in every database that keeps them as one value."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from agent_memory.core.records import Record
from agent_memory.errors import DimensionMismatch
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.terms import NO_TERMS, Terms
from agent_memory.stores.coding import UNREADABLE, mismatch

_MARK = b"\x01\x00\xc0\xff"  # not a number: no vector begins so
_HEADER = struct.Struct("<4s3I")
_FLOAT_BYTES = 4


def blobs_of(records: Sequence[Record], features: Features) -> list[bytes]:
    """Each record's features: the vectors (that of the surroundings in half precision), then the
    numbers of its words and of those around it, then their weights."""
    if len(features) != len(records):
        raise ValueError("Give features for each record.")
    meaning = np.ascontiguousarray(features.meaning, "<f4")
    around = np.ascontiguousarray(features.meaning_around, "<f2")
    blobs = []
    for place, (own, other) in enumerate(zip(features.words, features.words_around, strict=True)):
        parts = (
            _HEADER.pack(_MARK, features.dimension, len(own.ids), len(other.ids)),
            meaning[place].tobytes(),
            around[place].tobytes(),
            own.ids.astype("<u4").tobytes(),
            other.ids.astype("<u4").tobytes(),
            own.weights.astype("<f2").tobytes(),
            other.weights.astype("<f2").tobytes(),
        )
        blobs.append(b"".join(parts))
    return blobs


def features_of(blobs: Sequence[bytes]) -> Features:
    """The inverse of `blobs_of`. What an earlier release wrote is found by its meaning alone.

    Raises:
        ValueError: One is not what was written; `undamaged_places` tells which are.
    """
    rows = [_row(blob) for blob in blobs]
    meaning, around, words, words_around = zip(*rows, strict=True)
    found = Features(
        np.stack(meaning).astype(np.float32, copy=False),
        np.stack(around).astype(np.float32),
        words,
        words_around,
    )
    if not (np.isfinite(found.meaning).all() and np.isfinite(found.meaning_around).all()):
        raise ValueError("A vector has what is no number.")
    return found


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


def _row(blob: bytes) -> tuple[np.ndarray, np.ndarray, Terms, Terms]:
    if not blob:
        raise ValueError("A vector is empty.")
    if not blob.startswith(_MARK):
        meaning = np.frombuffer(blob, "<f4")
        return meaning, np.zeros(len(meaning), np.float16), NO_TERMS, NO_TERMS
    if len(blob) < _HEADER.size:
        raise ValueError("A vector is cut short.")
    _, dimension, own, other = _HEADER.unpack_from(blob)
    meaning = np.frombuffer(blob, "<f4", dimension, _HEADER.size)
    at = _HEADER.size + _FLOAT_BYTES * dimension
    around = np.frombuffer(blob, "<f2", dimension, at)
    at += 2 * dimension
    ids = np.frombuffer(blob, "<u4", own + other, at)
    weights = np.frombuffer(blob, "<f2", own + other, at + _FLOAT_BYTES * (own + other))
    weights = weights.astype(np.float32)
    return meaning, around, Terms(ids[:own], weights[:own]), Terms(ids[own:], weights[own:])
