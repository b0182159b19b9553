"""What is to be made of records that somebody's file says: whose ids they have, whether the blocks
that will read them can."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_memory.core.records import Record
from agent_memory.engine.transfer.snapshots.kinds import unreadable
from agent_memory.engine.transfer.snapshots.lines import refused
from agent_memory.engine.transfer.snapshots.reading import Vector
from agent_memory.errors import ConfigError, ModelError
from agent_memory.ltm_blocks.base import Block, Resources, record_id
from agent_memory.ltm_blocks.spatial.block import SpatialMemory

if TYPE_CHECKING:
    from agent_memory.retrieval.traits import Traits

_MOST = 1.01  # a unit vector in half precision may be that long
_HEAVIEST = 2.0  # no word is worth more; see `ranking.terms`


def is_bound(block: str, record: Record) -> bool:
    """Whether a record's id is made of its owner and its place in a session's log: then it can't
    be another session's."""
    place = (block, record.owner, record.session_id, record.first)
    return record.id in (record_id(*place), record_id(*place, record.last, "batch"))


def is_shelved(block: str, record: Record) -> bool:
    """Whether its id is made of its owner and of a key that it names; see `ltm_blocks.shelf`."""
    keys = (value for value in record.metadata.values() if isinstance(value, str))
    return any(record.id == record_id(block, record.owner, record_id(key)) for key in keys)


def unreadable_by(block: Block | None, record: Record) -> str | None:
    """Why a block could not read a record; None where it could, or nobody here knows."""
    if block is None:
        return None
    wrong = unreadable(block.kind, record)
    if wrong is None and isinstance(block, SpatialMemory):
        dimensions = len(record.metadata["position"])
        if dimensions != block.dimensions:
            return f"block {block.name!r} has {block.dimensions} dimensions, and this {dimensions}"
    return wrong


def fitting(record: Record, resources: Resources) -> Record:
    """A record, without its vector where that is none of the embedder that it names: it is made
    anew then."""
    kept = record.metadata
    if not kept.get("vector") or not isinstance(kept["vector"], str) or "embedder" not in kept:
        return record
    try:
        embedder = resources.embedders(None)
        if kept["embedder"] != embedder.name or _is_finite(kept["vector"], embedder.dimension):
            return record
    except (ModelError, ConfigError):
        pass
    return replace(record, metadata={**kept, "vector": "", "embedder": ""})


def _is_finite(text: str, dimension: int) -> bool:
    import numpy as np

    vector = np.frombuffer(base64.b64decode(text), np.float16)
    return len(vector) == dimension and bool(np.isfinite(vector).all())


def traits_in(lines: Sequence[tuple[int, Vector]], dimension: int) -> Traits:
    """The traits of vectors.

    Args:
        lines: The vectors, each with the number of its line.
        dimension: Of what they are to be.

    Raises:
        InvalidSnapshot: Of one they are not traits of a record.
    """
    from agent_memory.stores.blobs import traits_of

    for number, one in lines:
        if not _are_traits(one, dimension):
            raise refused(number, f"its `traits` are not those of {dimension} dimensions")
    return traits_of([one.traits for _, one in lines])


def _are_traits(one: Vector, dimension: int) -> bool:
    import numpy as np

    from agent_memory.stores.blobs import blobs_of, traits_of

    try:
        traits = traits_of([one.traits])
    except (ValueError, struct.error):
        return False
    # written anew they are the same, or else longer or shorter than they say
    if traits.dimension != dimension or blobs_of([one.record], traits) != [one.traits]:
        return False
    for vector in (traits.meaning[0], traits.meaning_around[0]):
        if not (np.isfinite(vector).all() and float(np.linalg.norm(vector)) <= _MOST):
            return False
    for terms in (traits.words[0], traits.words_around[0]):
        if len(np.unique(terms.ids)) < len(terms.ids):
            return False
        if not ((terms.weights >= 0) & (terms.weights <= _HEAVIEST)).all():
            return False
    return True
