"""Caches a search index for each owner, and iterates over an owner's records.

The features of an owner's records are in segments, which a catalog lists; see `kernel.catalogs`. To
update an outdated index, a process reads only the segments that are new in the catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_memory.core.cache import Cache
from agent_memory.core.damage import Damage
from agent_memory.core.records import Hit, Record
from agent_memory.errors import DimensionMismatch, StoreUnavailable
from agent_memory.stores.damage import leave_out
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.catalogs import Catalog, Owned, Part, catalog_of, opened
from agent_memory.stores.kernel.coding import mismatch
from agent_memory.stores.kernel.rules import chunks

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.index import Segment, SegmentIndex
    from agent_memory.retrieval.query import Query
    from agent_memory.retrieval.score import Ranked

MOST_BYTES = 256 * 2**20
"""The maximum size in bytes of all cached indexes together. A single index may be larger."""

logger = logging.getLogger(__name__)

_MOST_RECORDS = 5_000  # maximum number of records that each index caches
_TRIES = 20
_PAGE = 200
_Key = tuple[str, str]
ReadRecords = Callable[[Sequence[str]], Mapping[str, Record]]
"""Returns an owner's records by id, without the records that no longer exist."""


class CatalogUnreadable(Exception):
    """A catalog is damaged. The store then rebuilds the catalog from segments and records."""


@dataclass(frozen=True, slots=True)
class _CachedIndex:
    catalog: k.Document
    index: SegmentIndex
    size: int
    segments: Mapping[int, Segment]


class Indexes:
    """Caches one index for each block and owner, for one version of the catalog."""

    def __init__(self) -> None:
        self._cache: Cache[_Key, _CachedIndex] = Cache(MOST_BYTES, lambda index: index.size, 1)
        self._warned: set[_Key] = set()

    def follow(self, key: _Key, source: Owned, records: ReadRecords) -> SegmentIndex:
        """Return the index of an owner's current records. The key is the block and the owner.

        Raises:
            CatalogUnreadable: The catalog is damaged.
            StoreUnavailable: The catalog changes constantly.
        """
        from agent_memory.retrieval.index import SegmentIndex

        cached = self._cache.get(key)
        segments = dict(cached.segments) if cached is not None else {}
        before = None
        for _ in range(_TRIES):
            stored = source.catalog()
            if stored is None:
                self._cache.drop(key)
                return SegmentIndex(0)
            version = (stored.version, stored.first)
            if cached is not None and (cached.catalog.version, cached.catalog.first) == version:
                self._cache.find(key)
                return cached.index
            try:
                catalog = Catalog.of(stored.body)
            except ValueError:
                raise CatalogUnreadable from None
            missing = [name for name in catalog.names if name not in segments]
            bodies = dict(source.segments(missing)) if missing else {}
            # a segment is missing: if the catalog has not changed meanwhile, the segment is lost
            if len(bodies) == len(missing) or before == stored:
                read = {name: opened(bodies.pop(name, None)) for name in missing}
                readable, lost = _readable(key[0], catalog, {**segments, **read})
                extra = _stand_in(lost, source, records) if lost else ()
                return self._followed(key, stored, readable, extra, cached)
            segments |= {name: part for name, body in bodies.items() if (part := opened(body))}
            before = stored
        raise StoreUnavailable(
            f"The records of a user in block {key[0]!r} change too fast to be read. Try again."
        )

    def _followed(
        self,
        key: _Key,
        stored: k.Document,
        segments: Mapping[int, Segment],
        extra: Sequence[Segment],
        cached: _CachedIndex | None,
    ) -> SegmentIndex:
        from agent_memory.retrieval.index import ANY, SegmentIndex

        dimension = next((segment.dimension for segment in segments.values()), ANY if extra else 0)
        index = SegmentIndex(dimension, (*segments.values(), *extra))
        is_same = cached is not None and cached.catalog.first == stored.first
        if cached is not None and is_same and cached.segments.keys() <= segments.keys():
            index.records = cached.index.records  # the cached segments are unchanged
        size = index.nbytes
        self._cache.put(key, _CachedIndex(stored, index, size, segments))
        if size > MOST_BYTES and key not in self._warned:
            self._warned.add(key)
            logger.warning(
                "searching the %d records of one user in block %r takes %d MB of memory. "
                'Store them on a Qdrant server: VectorMemory(store="http://host:6333").',
                len(index), key[0], size >> 20,
            )  # fmt: skip
        return index


def _readable(
    block: str, catalog: Catalog, segments: Mapping[int, Segment | None]
) -> tuple[dict[int, Segment], list[Part]]:
    """Return the segments with the dimension of the first, by name, and the parts of all others."""
    readable: dict[int, Segment] = {}
    lost: list[Part] = []
    dimension: int | None = None
    for part in catalog.parts:
        segment = segments[part.name]
        if segment is None or dimension not in (None, segment.dimension):
            name = f"segment {part.name:x}"
            leave_out(Damage("vector", block=block, record_id=name).error())
            lost.append(part)
        else:
            dimension = segment.dimension
            readable[part.name] = segment
    return readable, lost


def _stand_in(lost: Sequence[Part], source: Owned, records: ReadRecords) -> list[Segment]:
    """Return one segment with the words of all records whose own segments are lost, in a list.

    The list is empty if there is no such record.
    """
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.index import Segment

    numbers = source.numbers()
    lost_numbers = Catalog(parts=tuple(lost)).holding(numbers.values())
    wanted = {number for numbers_of_part in lost_numbers.values() for number in numbers_of_part}
    replaced = records([name for name, at in numbers.items() if at in wanted])
    texts = [(record.text, record.created_at) for record in replaced.values()]
    return [Segment.of([*replaced], Features.of_texts(texts))] if replaced else []


def search(
    block: str, index: SegmentIndex, query: Query, limit: int, read: ReadRecords
) -> list[Hit]:
    from agent_memory.retrieval.index import ANY

    dimension = len(query.meaning)
    if len(index) and dimension not in (0, index.dimension) and index.dimension != ANY:
        stored = (index.dimension, "the stored model")
        raise DimensionMismatch(mismatch(block, stored, (dimension, "unnamed")))
    ranked = index.search(query, limit)
    pending = {} if query.pending is None else query.pending.records
    stored_records = records_of(index, [name for name in ranked.names if name not in pending], read)
    return hits(ranked, {**stored_records, **pending})


def records_of(index: SegmentIndex, ids: Sequence[str], read: ReadRecords) -> dict[str, Record]:
    """Return records by id. Read and cache the records that the index has not cached."""
    records = {name: record for name in ids if (record := index.records.get(name)) is not None}
    missing = [name for name in ids if name not in records]
    if missing:
        read_records = read(missing)
        records.update(read_records)
        if len(index.records) + len(read_records) > _MOST_RECORDS:
            index.records.clear()
        index.records.update(read_records)
    return records


def hits(ranked: Ranked, records: Mapping[str, Record]) -> list[Hit]:
    """Return the hits with their records, best first. Records deleted meanwhile are left out."""
    columns = (ranked.scores, ranked.relevance, ranked.parts, ranked.cosines, ranked.bm25)
    rows = zip(
        ranked.names, *(column.tolist() for column in columns), ranked.encodings, strict=True
    )
    return [
        Hit(records[name], score, relevance, tuple(parts), cosine, bm25, encoding)
        for name, score, relevance, parts, cosine, bm25, encoding in rows
        if name in records
    ]


def walked(source: Owned, every: Sequence[str]) -> Iterator[tuple[list[Record], Features]]:
    """Yield pages of an owner's records with these ids, with their features."""
    cached: dict[int, tuple[dict[str, int], Features]] = {}  # the segment that was read last

    def segment_of(part: Part) -> tuple[Mapping[str, int], Features] | None:
        if part.name not in cached:
            cached.clear()
            if (segment := opened(source.segments([part.name]).get(part.name))) is None:
                return None
            places = {name: place for place, name in enumerate(segment.names.all())}
            cached[part.name] = places, segment.features()
        return cached[part.name]

    for ids in chunks(every, _PAGE):
        left: Mapping[int, Record] = {}
        for _ in range(_TRIES):  # repeated if the catalog changes meanwhile
            before = source.catalog()
            left = dict(source.records(ids))
            catalog = catalog_of(source, before)
            parts = catalog.holding(left) if left else {}
            for part, numbers in parts.items():
                segment = segment_of(part)
                present = [n for n in sorted(numbers) if segment and left[n].id in segment[0]]
                if segment and present:
                    records = [left[number] for number in present]
                    yield records, segment[1].at([segment[0][record.id] for record in records])
                    left = {n: record for n, record in left.items() if n not in present}
            ids = [record.id for record in left.values()]
            if not left or source.catalog() == before:
                break
        for record in left.values():
            place = (record.session_id, record.first, source.block, record.id)
            leave_out(Damage("vector", *place).error())
