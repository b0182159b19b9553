"""Substitutes for unreadable catalogs and segments, so that the others stay usable.

A catalog follows from its segments and from the numbers of the records. The records of a segment
are found by their words alone, until they are written again.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from agent_memory.core.damage import Damage
from agent_memory.stores.catalogs import Catalog, Part, SegmentSource, opened
from agent_memory.stores.damage import leave_out

if TYPE_CHECKING:
    from agent_memory.core.records import Record
    from agent_memory.retrieval.segments import Segment
    from agent_memory.stores.seals import SegmentSeals


def catalog_of(
    block: str, owner: str, source: SegmentSource, found: tuple[int, str] | None
) -> Catalog:
    """A catalog as a source gave it; made anew where it cannot be read."""
    try:
        return Catalog() if found is None else Catalog.of(found[1])
    except ValueError:
        leave_out(Damage("vector", block=block, record_id="a catalog", owner=owner).error())
        return rebuilt(source)


def rebuilt(source: SegmentSource) -> Catalog:
    """Make the catalog of an owner's records.

    Records without a readable segment are listed by their numbers as missing.
    """
    numbers = source.numbers()
    parts: list[Part] = []
    lost: list[int] = []
    for name in source.names():
        body = source.segments([name]).get(name)
        segment = opened(body)
        there = (
            []
            if segment is None
            else [numbers[one] for one in segment.names.all() if one in numbers]
        )
        if body is None or segment is None or not there:
            lost.append(name)
        else:
            parts.append(Part(name, min(there), max(there), segment.records, len(body)))
    parts.sort(key=attrgetter("first"))
    apart = [part for at, part in enumerate(parts) if not at or part.first > parts[at - 1].last]
    lost += [part.name for part in parts if part not in apart]
    catalog = Catalog(parts=tuple(apart))
    held = {at for some in catalog.holding(numbers.values()).values() for at in some}
    ends = [part.last for part in apart]
    for _, run in groupby(
        sorted(set(numbers.values()) - held), lambda at: sum(end < at for end in ends)
    ):
        some = [*run]
        apart.append(Part(secrets.randbits(62), some[0], some[-1], len(some), 0))
    apart.sort(key=attrgetter("first"))
    last = max(numbers.values(), default=0)
    return Catalog(last + 1, tuple(apart), lost=tuple(lost))


def stand_in(block: str, records: Mapping[str, Record], seals: SegmentSeals) -> Segment:
    """Records that are found by their words alone."""
    from agent_memory.retrieval.segments import Segment

    return Segment.of([*records], seals.features(block, list(records.values())))
