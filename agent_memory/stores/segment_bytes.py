"""Segments as bytes, the same in every database. To read one is no work per record."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from agent_memory.retrieval.compact import Vectors
from agent_memory.retrieval.names import Names
from agent_memory.retrieval.postings import Postings
from agent_memory.retrieval.segments import Segment

# version, how names and the two kinds of vectors are kept, records, numbers in a vector; then the
# lengths of the parts
_HEADER = struct.Struct("<4s4B2I13I")
_MARK, _VERSION = b"AMSG", 1
_TEXTS, _PACKED = 0, 1
_ZEROS, _FLOATS, _EIGHTHS = 0, 1, 2
_POSTINGS = ("<u4", "<u4", "<u2", "<f2")
_ALIGNED = 16


def bytes_of(segment: Segment) -> bytes:
    """A segment as bytes."""
    names = segment.names
    packed = names.packed
    parts = [
        json.dumps(names.texts).encode() if packed is None else packed.tobytes(),
        *_rows(segment.meaning),
        *_rows(segment.meaning_around),
        *_columns(segment.words),
        *_columns(segment.words_around),
    ]
    header = _HEADER.pack(
        _MARK,
        _VERSION,
        _TEXTS if packed is None else _PACKED,
        _kind(segment.meaning),
        _kind(segment.meaning_around),
        segment.records,
        segment.dimension,
        *map(len, parts),
    )
    return b"".join(part + bytes(-len(part) % _ALIGNED) for part in (header, *parts))


def segment_of(data: bytes) -> Segment:
    """The inverse of `bytes_of`.

    Raises:
        ValueError: They are not what was written, or a newer release wrote them.
    """
    if len(data) < _HEADER.size:
        raise ValueError("A segment is cut short.")
    mark, version, named, own, around, count, dimension, *sizes = _HEADER.unpack_from(data)
    if (mark, version) != (_MARK, _VERSION):
        raise ValueError("This is no segment that this release can read.")
    ends = [*accumulate(size + -size % _ALIGNED for size in (_HEADER.size, *sizes))]
    if len(data) != ends[-1]:
        raise ValueError("A segment is cut short.")
    view = memoryview(data)
    parts = [view[at : at + size] for at, size in zip(ends, sizes, strict=False)]
    segment = Segment(
        _names(parts[0], named, count),
        _vectors(parts[1:3], own, count, dimension),
        _vectors(parts[3:5], around, count, dimension),
        _postings(parts[5:9], count),
        _postings(parts[9:13], count),
    )
    if len(segment.names) != count:
        raise ValueError("A segment has not as many records as it says.")
    return segment


def _kind(vectors: Vectors) -> int:
    if not vectors.rows.shape[1]:
        return _ZEROS
    return _FLOATS if vectors.scales is None else _EIGHTHS


def _rows(vectors: Vectors) -> tuple[bytes, bytes]:
    if vectors.scales is None:
        return vectors.rows.astype("<f4", copy=False).tobytes(), b""
    return vectors.rows.tobytes(), vectors.scales.astype("<f4", copy=False).tobytes()


def _columns(postings: Postings) -> list[bytes]:
    columns = zip(postings, _POSTINGS, strict=True)
    return [column.astype(kind, copy=False).tobytes() for column, kind in columns]


def _names(part: memoryview, kind: int, count: int) -> Names:
    if kind == _PACKED:
        return Names(np.frombuffer(part, np.uint8).reshape(count, -1))
    return Names(None, tuple(json.loads(bytes(part))))


def _vectors(parts: Sequence[memoryview], kind: int, count: int, dimension: int) -> Vectors:
    if kind == _ZEROS:
        return Vectors(np.empty((count, 0), np.float32), None, dimension)
    rows = np.frombuffer(parts[0], np.int8 if kind == _EIGHTHS else "<f4")
    scales = np.frombuffer(parts[1], "<f4") if kind == _EIGHTHS else None
    if not np.isfinite(rows if scales is None else scales).all():
        raise ValueError("A vector has what is no number.")
    if scales is not None and len(scales) != count:
        raise ValueError("A vector lacks its scale.")
    return Vectors(rows.reshape(count, dimension), scales, dimension)


def _postings(parts: Sequence[memoryview], count: int) -> Postings:
    columns = zip(parts, _POSTINGS, strict=True)
    postings = Postings(*(np.frombuffer(part, kind) for part, kind in columns))
    terms, starts, places, weights = postings
    if len(starts) != len(terms) + 1 or starts[0] or (starts[1:] < starts[:-1]).any():
        raise ValueError("The words of a segment are not in order.")
    if not starts[-1] == len(places) == len(weights) or (places >= count).any():
        raise ValueError("A word of a segment is in no record.")
    return postings
