"""The indexes of the owners searched last, for stores that have to load them.

An owner's records stand in segments, which a catalog lists; see `stores.catalogs`. Whoever has read
a catalog before reads only the segments that are new in it, whoever wrote them.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_memory.core.damage import Damage
from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Hit, Record
from agent_memory.errors import DimensionMismatch, StoreUnavailable
from agent_memory.stores.catalogs import Catalog, Part, SegmentSource, opened
from agent_memory.stores.coding import mismatch
from agent_memory.stores.damage import leave_out
from agent_memory.stores.seals import UNSEALED, SegmentSeals

if TYPE_CHECKING:
    from agent_memory.retrieval.index import SegmentIndex
    from agent_memory.retrieval.query import Query
    from agent_memory.retrieval.score import Ranked
    from agent_memory.retrieval.segments import Segment

MOST_BYTES = 256 * 2**20
"""What the kept indexes may take together; one is kept, however large."""

logger = logging.getLogger(__name__)

_MOST_RECORDS = 5_000  # of each index
_TRIES = 20
_Key = tuple[str, str]
ReadRecords = Callable[[Sequence[str]], Mapping[str, Record]]
"""Reads an owner's records by id; those that are gone it leaves out."""


class LooseRecords(Exception):
    """There are records that an earlier release wrote, which are to be packed into segments; or the
    catalog cannot be read, and is to be written anew."""


@dataclass(frozen=True, slots=True)
class _CachedIndex:
    version: int
    index: SegmentIndex
    size: int
    segments: Mapping[int, Segment]


class Indexes:
    """An index for each block and owner, for as long as the version it was made of stands."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._kept: OrderedDict[_Key, _CachedIndex] = OrderedDict()
        self._warned: set[_Key] = set()

    def follow(
        self, key: _Key, source: SegmentSource, records: ReadRecords, seals: SegmentSeals = UNSEALED
    ) -> SegmentIndex:
        """The index of all that an owner has now.

        Args:
            key: The block and the owner.
            source: What the owner has.
            records: Reads the owner's records.
            seals: Knows what these are found by.

        Raises:
            LooseRecords: Some of it is not in segments yet, or the catalog cannot be read.
            StoreUnavailable: It changes all the time.
        """
        from agent_memory.retrieval.index import SegmentIndex

        with self._lock:
            kept = self._kept.get(key)
        segments = dict(kept.segments) if kept is not None else {}
        before = None
        for _ in range(_TRIES):
            found = source.catalog()
            if found is None:
                with self._lock:
                    self._kept.pop(key, None)
                return SegmentIndex(0)
            version = found[0]
            if kept is not None and kept.version == version:
                with self._lock:
                    if key in self._kept:
                        self._kept.move_to_end(key)
                return kept.index
            if is_loose(found, damaged=True):
                raise LooseRecords
            catalog = Catalog.of(found[1])
            missing = [name for name in catalog.names if name not in segments]
            bodies = dict(source.segments(missing)) if missing else {}
            # one that is not there was written anew since, unless nothing was
            if len(bodies) == len(missing) or before == version:
                read = {name: opened(bodies.pop(name, None)) for name in missing}
                there, lost = _readable(key[0], catalog, {**segments, **read})
                extra = _stand_ins(key[0], lost, source, records, seals) if lost else ()
                return self._followed(key, version, there, extra, kept)
            segments |= {name: one for name, body in bodies.items() if (one := opened(body))}
            before = version
        raise StoreUnavailable(
            f"What a user has in block {key[0]!r} changes faster than it can be read. Try again."
        )

    def _followed(
        self,
        key: _Key,
        version: int,
        segments: Mapping[int, Segment],
        extra: Sequence[Segment],
        kept: _CachedIndex | None,
    ) -> SegmentIndex:
        from agent_memory.retrieval.index import ANY, SegmentIndex

        dimension = next((one.dimension for one in segments.values()), ANY if extra else 0)
        index = SegmentIndex(dimension, (*segments.values(), *extra))
        if kept is not None and kept.segments.keys() <= segments.keys():
            index.records = kept.index.records  # nothing of what was there has changed
        self._keep(key, version, index, segments)
        return index

    def _keep(
        self,
        key: _Key,
        version: int,
        index: SegmentIndex,
        segments: Mapping[int, Segment],
    ) -> None:
        size = index.nbytes
        with self._lock:
            self._kept[key] = _CachedIndex(version, index, size, segments)
            self._kept.move_to_end(key)
            self._make_room()
        if size > MOST_BYTES and key not in self._warned:
            self._warned.add(key)
            logger.warning(
                "searching the %d records that one user has in block %r takes %d MB of memory. "
                'Keep so many on a Qdrant server: VectorMemory(store="http://host:6333").',
                len(index), key[0], size >> 20,
            )  # fmt: skip

    def _make_room(self) -> None:
        size = sum(kept.size for kept in self._kept.values())
        while len(self._kept) > 1 and size > MOST_BYTES:
            _, gone = self._kept.popitem(last=False)
            size -= gone.size


def _readable(
    block: str, catalog: Catalog, segments: Mapping[int, Segment | None]
) -> tuple[dict[int, Segment], list[Part]]:
    """A catalog's segments that can be read, of one dimension, that of the first; and the rest."""
    found: dict[int, Segment] = {}
    lost: list[Part] = []
    dimension: int | None = None
    for part in catalog.parts:
        segment = segments[part.name]
        if segment is None or dimension not in (None, segment.dimension):
            leave_out(damaged_part(block, part).error())
            lost.append(part)
        else:
            dimension = segment.dimension
            found[part.name] = segment
    return found, lost


def _stand_ins(
    block: str,
    lost: Sequence[Part],
    source: SegmentSource,
    records: ReadRecords,
    seals: SegmentSeals,
) -> list[Segment]:
    """What stands in for segments that cannot be read."""
    from agent_memory.stores.mending import stand_in

    numbers = source.numbers()
    held = Catalog(parts=tuple(lost)).holding(numbers.values())
    wanted = {at for some in held.values() for at in some}
    found = records([name for name, at in numbers.items() if at in wanted])
    return [stand_in(block, found, seals)] if found else []


def is_loose(found: tuple[int, str | None] | None, *, damaged: bool = False) -> bool:
    """Whether an owner may have records that are in no segment, by the catalog; `damaged`: what is
    said of one that cannot be read."""
    try:
        return found is not None and Catalog.of(found[1]).loose
    except ValueError:
        return damaged


def damaged_part(block: str, part: Part) -> Damage:
    """That a segment cannot be read."""
    return Damage("vector", block=block, record_id=f"segment {part.name:x}")


def search(
    block: str,
    index: SegmentIndex,
    query: Query,
    limit: int,
    read: ReadRecords,
) -> list[Hit]:
    """As `VectorStore.search_vectors`, over an index.

    Raises:
        DimensionMismatch: The question's vector has another length than those stored.
    """
    from agent_memory.retrieval.index import ANY

    given = len(query.meaning)
    if len(index) and given not in (0, index.dimension) and index.dimension != ANY:
        stored = (index.dimension, "the stored model")
        raise DimensionMismatch(mismatch(block, stored, (given, "unnamed")))
    found = index.search(query, limit)
    pending = {} if query.pending is None else query.pending.records
    stored_records = records_of(index, [name for name in found.names if name not in pending], read)
    return hits(found, {**stored_records, **pending})


def records_of(index: SegmentIndex, ids: Sequence[str], read: ReadRecords) -> dict[str, Record]:
    """The records that an index found, read where they are not known from a search before.

    Args:
        index: What found them. Its owner's records change with its version, and so does it.
        ids: Of the records.
        read: Reads the owner's records.
    """
    known = {name: record for name in ids if (record := index.records.get(name)) is not None}
    missing = [name for name in ids if name not in known]
    if missing:
        found = read(missing)
        known.update(found)
        if len(index.records) + len(found) > _MOST_RECORDS:
            index.records.clear()
        index.records.update(found)
    return known


def hits(found: Ranked, records: Mapping[str, Record]) -> list[Hit]:
    """What was found with its records, best first; those that are gone since are left out."""
    rows = zip(
        found.names,
        found.scores.tolist(),
        found.relevance.tolist(),
        found.parts.tolist(),
        found.cosines.tolist(),
        found.bm25.tolist(),
        strict=True,
    )
    return [
        Hit(records[name], score, relevance, tuple(parts), cosine, bm25)
        for name, score, relevance, parts, cosine, bm25 in rows
        if name in records
    ]
