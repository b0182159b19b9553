"""Whether records from somebody's file can be kept: whose ids they have, and who can read them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from agent_memory.core.long_texts import part_of
from agent_memory.core.records import Record
from agent_memory.engine.transfer.snapshots.lines import refused
from agent_memory.engine.transfer.snapshots.reading import Vector
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.base import Block, batch_id, message_id
from agent_memory.ltm_blocks.keyed_records import keyed_id

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features

_MOST = 1.01  # a unit vector in half precision may be that long
_HEAVIEST = 2.0  # no word is worth more; see `ranking.terms`


def is_bound(block: str, record: Record) -> bool:
    """Whether a record's id is made of its owner and its place in a session's log: then it can't
    be another session's."""
    place = (block, record.owner, record.session_id, record.first)
    number = part_of(record.metadata).number
    return record.id in (message_id(*place, number), batch_id(*place, record.last))


def is_keyed(block: str, record: Record) -> bool:
    """Whether a record's id is made of its owner and of a key that it names."""
    keys = (value for value in record.metadata.values() if isinstance(value, str))
    return any(record.id == keyed_id(block, record.owner, key) for key in keys)


def validated(number: int, record: Record, block: Block | None) -> Record:
    """A record as its block keeps it; as it is where nobody here knows the block.

    Args:
        number: The line's.
        record: What it says.
        block: The block that it is for, if it is configured.

    Raises:
        InvalidSnapshot: The block could not read it.
    """
    if block is None:
        return record
    try:
        return block.validate_import(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise refused(number, f"its metadata's `{where}` is not usable: {first['msg']}") from None
    except InvalidInput as error:
        raise refused(number, str(error).rstrip(".")) from None


def features_in(lines: Sequence[tuple[int, Vector]], dimension: int) -> Features:
    """The features of vectors.

    Args:
        lines: The vectors, each with the number of its line.
        dimension: Of what they are to be.

    Raises:
        InvalidSnapshot: Of one they are not features of a record.
    """
    from agent_memory.stores.blobs import features_of

    for number, one in lines:
        if not _are_traits(one, dimension):
            raise refused(number, f"its `traits` are not those of {dimension} dimensions")
    return features_of([one.traits for _, one in lines])


def _are_traits(one: Vector, dimension: int) -> bool:
    import numpy as np

    from agent_memory.stores.blobs import blobs_of, features_of

    try:
        features = features_of([one.traits])
    except (ValueError, struct.error):
        return False
    # written anew they are the same, or else longer or shorter than they say
    if features.dimension != dimension or blobs_of([one.record], features) != [one.traits]:
        return False
    vector, terms = features.meaning[0], features.words[0]
    if not (np.isfinite(vector).all() and float(np.linalg.norm(vector)) <= _MOST):
        return False
    if len(np.unique(terms.ids)) < len(terms.ids):
        return False
    return bool(((terms.weights >= 0) & (terms.weights <= _HEAVIEST)).all())
