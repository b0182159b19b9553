"""Converts a segment to bytes and back, for stores and snapshots."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from agent_memory.retrieval.features import PLACE, Postings
from agent_memory.retrieval.index import Names, Segment
from agent_memory.retrieval.vectors import TOKEN, Tokens, Vectors

# the header of a segment: mark, version, format of names, format of vectors, a 0, record count,
# dimension, lengths of 10 parts
_HEADER = struct.Struct("<4s4B2I10I")
_MARK, _VERSION = b"AMSG", 2
_TEXTS, _PACKED = 0, 1
_ZEROS, _FLOATS, _EIGHTHS = 0, 1, 2
_POSTINGS = ("<u4", "<u4", "<u2", "<f2")
_ALIGNED = 16


def bytes_of(segment: Segment) -> bytes:
    names = segment.names
    packed = names.packed
    parts = [
        json.dumps(names.texts).encode() if packed is None else packed.tobytes(),
        *_rows(segment.meaning),
        segment.tokens.rows.tobytes(),
        segment.tokens.starts.astype("<u4", copy=False).tobytes(),
        segment.places.tobytes(),
        *_columns(segment.words),
    ]
    header = _HEADER.pack(
        _MARK,
        _VERSION,
        _TEXTS if packed is None else _PACKED,
        _kind(segment.meaning),
        0,
        segment.records,
        segment.dimension,
        *map(len, parts),
    )
    return b"".join(part + bytes(-len(part) % _ALIGNED) for part in (header, *parts))


def segment_of(data: bytes) -> Segment:
    """Decode a result of `bytes_of`. Raise ValueError for damaged data and for a newer format."""
    if len(data) < _HEADER.size:
        raise ValueError("A segment is cut short.")
    mark, version, named, own, _, count, dimension, *sizes = _HEADER.unpack_from(data)
    if (mark, version) != (_MARK, _VERSION):
        raise ValueError("The data is not a segment that this release can read.")
    ends = [*accumulate(size + -size % _ALIGNED for size in (_HEADER.size, *sizes))]
    if len(data) != ends[-1]:
        raise ValueError("A segment is cut short.")
    view = memoryview(data)
    parts = [view[at : at + size] for at, size in zip(ends, sizes, strict=False)]
    segment = Segment(
        _names(parts[0], named, count),
        _vectors(parts[1:3], own, count, dimension),
        _tokens(parts[3], parts[4], count),
        _postings(parts[6:10], count),
        np.frombuffer(parts[5], PLACE),
    )
    if len(segment.names) != count or len(segment.places) != count:
        raise ValueError("The header of a segment has a wrong number of records.")
    return segment


def _kind(vectors: Vectors) -> int:
    if not vectors.rows.shape[1]:
        return _ZEROS
    return _EIGHTHS if vectors.rows.dtype == np.int8 else _FLOATS


def _rows(vectors: Vectors) -> tuple[bytes, bytes]:
    rows, scales = vectors.rows, vectors.scales
    if rows.dtype == np.int8:
        return rows.tobytes(), scales.astype("<f4", copy=False).tobytes()
    return (rows * scales[:, None]).astype("<f4", copy=False).tobytes(), b""


def _columns(postings: Postings) -> list[bytes]:
    columns = zip(postings, _POSTINGS, strict=True)
    return [column.astype(kind, copy=False).tobytes() for column, kind in columns]


def _names(part: memoryview, kind: int, count: int) -> Names:
    if kind == _PACKED:
        return Names(np.frombuffer(part, np.uint8).reshape(count, -1))
    return Names(None, tuple(json.loads(bytes(part))))


def _vectors(parts: Sequence[memoryview], kind: int, count: int, dimension: int) -> Vectors:
    if kind == _ZEROS:
        return Vectors(np.empty((count, 0), np.float32), np.zeros(count, np.float32), dimension)
    is_rounded = kind == _EIGHTHS
    rows = np.frombuffer(parts[0], np.int8 if is_rounded else "<f4").reshape(count, dimension)
    own = np.frombuffer(parts[1], "<f4") if is_rounded else rows
    if not np.isfinite(own).all():
        raise ValueError("A vector has a value that is not a number.")
    scales = own if is_rounded else np.asarray(rows.any(axis=1), np.float32)
    if len(scales) != count:
        raise ValueError("A vector lacks its scale.")
    return Vectors(rows, scales, dimension)


def _tokens(rows: memoryview, starts: memoryview, count: int) -> Tokens:
    tokens = Tokens(np.frombuffer(rows, np.int8).reshape(-1, TOKEN), np.frombuffer(starts, "<u4"))
    ends = tokens.starts
    if len(ends) != count + 1 or ends[0] or (ends[1:] < ends[:-1]).any():
        raise ValueError("The word pieces of a segment are not in order.")
    if ends[-1] != len(tokens.rows):
        raise ValueError("A segment lacks word pieces.")
    return tokens


def _postings(parts: Sequence[memoryview], count: int) -> Postings:
    columns = zip(parts, _POSTINGS, strict=True)
    postings = Postings(*(np.frombuffer(part, kind) for part, kind in columns))
    terms, starts, places, weights = postings
    if len(starts) != len(terms) + 1 or starts[0] or (starts[1:] < starts[:-1]).any():
        raise ValueError("The words of a segment are not in order.")
    if not starts[-1] == len(places) == len(weights) or (places >= count).any():
        raise ValueError("A word of a segment is in no record.")
    return postings
