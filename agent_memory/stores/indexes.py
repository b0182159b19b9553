"""The indexes of the owners searched last, for stores that have to load them.

An owner's records stand in segments, which a catalog lists; see `stores.catalogs`. Whoever has read
a catalog before reads only the segments that are new in it, whoever wrote them.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agent_memory.core.damage import Damage
from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Hit, Record
from agent_memory.errors import DimensionMismatch, StoreUnavailable
from agent_memory.stores.catalogs import Catalog, Part, opened
from agent_memory.stores.coding import UNREADABLE, mismatch
from agent_memory.stores.damage import leave_out

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Query
    from agent_memory.retrieval.index import Candidates, SegmentIndex
    from agent_memory.retrieval.segments import Segment

MOST_BYTES = 256 * 2**20
"""What the kept indexes may take together; one is kept, however large."""

logger = logging.getLogger(__name__)

_MOST_RECORDS = 5_000  # of each index
_TRIES = 20
_UNUSED = 2**40  # more records than these no owner ever has
_Key = tuple[str, str]

Changed = Mapping[str, tuple[int | None, int]]
"""For owners whose records a write has changed, the versions before and after it."""


class SegmentSource(Protocol):
    """What an owner has in a store."""

    def catalog(self) -> tuple[int, str | None] | None:
        """Its version, which is another with each change, and itself; None for an owner who has
        nothing."""
        ...

    def segments(self, names: Sequence[int]) -> Mapping[int, bytes]:
        """Segments by their names; those that are not there any more are left out."""
        ...


class LooseRecords(Exception):
    """There are records that an earlier release wrote: they are to be packed into segments."""


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
        self._extending = fork_safe_lock()
        self._kept: OrderedDict[_Key, _CachedIndex] = OrderedDict()
        self._warned: set[_Key] = set()

    def follow(self, key: _Key, source: SegmentSource) -> SegmentIndex:
        """The index of all that an owner has now.

        Args:
            key: The block and the owner.
            source: What the owner has.

        Raises:
            LooseRecords: Some of it is not in segments yet.
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
            catalog = catalog_of(key[0], found)
            if catalog.loose:
                raise LooseRecords
            missing = [name for name in catalog.names if name not in segments]
            bodies = dict(source.segments(missing)) if missing else {}
            # one that is not there was written anew since, unless nothing was
            if len(bodies) == len(missing) or before == version:
                read = {name: opened(bodies.pop(name, None)) for name in missing}
                there = [*_readable(key[0], catalog, {**segments, **read})]
                return self._followed(key, version, dict(there), kept)
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
        kept: _CachedIndex | None,
    ) -> SegmentIndex:
        from agent_memory.retrieval.index import SegmentIndex

        every = tuple(segments.values())
        index = SegmentIndex(every[0].dimension if every else 0, every)
        if kept is not None and kept.segments.keys() <= segments.keys():
            index.records = kept.index.records  # nothing of what was there has changed
        self._keep(key, version, index, segments)
        return index

    def get(self, key: _Key, version: int | None) -> SegmentIndex | None:
        """The index of a block and owner, if it was kept and its version still stands."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept.version != version:
                return None
            self._kept.move_to_end(key)
            return kept.index

    def load(
        self, key: _Key, version: int | None, ids: Sequence[str], blobs: Sequence[bytes]
    ) -> SegmentIndex:
        """An index of what was loaded; kept, where the version that it is of is known."""
        from agent_memory.retrieval.index import SegmentIndex
        from agent_memory.stores.blobs import features_of, undamaged_places

        try:
            features = features_of(blobs) if ids else None
        except UNREADABLE:
            places = undamaged_places(blobs)
            for place in {*range(len(ids))} - {*places}:
                leave_out(Damage("vector", block=key[0], record_id=ids[place]).error())
            ids = [ids[place] for place in places]
            features = features_of([blobs[place] for place in places]) if places else None
        if features is None:
            return SegmentIndex(0)
        index = SegmentIndex(features.dimension).extended(ids, features)
        if version is not None:
            self._keep(key, version, index)
        return index

    def extend(self, block: str, changed: Changed, ids: Sequence[str], features: Features) -> None:
        """Take in what was just stored, where it is of one owner.

        Args:
            block: Whose.
            changed: By a write that added to the version before, and to nothing else since.
            ids: Of the records that it stored.
            features: Theirs.
        """
        if len(changed) != 1:
            return
        ((owner, (before, after)),) = changed.items()
        key = (block, owner)
        with self._extending:
            kept = self._kept.get(key)
            if before is None or kept is None or kept.version != before:
                return
            if kept.index.held(ids) or len(set(ids)) < len(ids):
                return  # the next search loads it anew
            longer = kept.index.extended(ids, features)
            with self._lock:
                if self._kept.get(key) is kept:
                    self._kept[key] = _CachedIndex(after, longer, longer.nbytes, {})
                    self._make_room()

    def _keep(
        self,
        key: _Key,
        version: int,
        index: SegmentIndex,
        segments: Mapping[int, Segment] | None = None,
    ) -> None:
        size = index.nbytes
        with self._lock:
            self._kept[key] = _CachedIndex(version, index, size, segments or {})
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


def catalog_of(block: str, found: tuple[int, str | None] | None) -> Catalog:
    """A catalog as a source gave it; an empty one in place of what cannot be read, which gives
    records numbers that none had before."""
    try:
        return Catalog() if found is None else Catalog.of(found[1])
    except ValueError:
        leave_out(Damage("vector", block=block, record_id="a catalog").error())
        return Catalog(next=_UNUSED + secrets.randbits(60))


def _readable(
    block: str, catalog: Catalog, segments: Mapping[int, Segment | None]
) -> Iterator[tuple[int, Segment]]:
    """A catalog's segments that can be read: of one dimension, that of the first."""
    dimension: int | None = None
    for part in catalog.parts:
        segment = segments[part.name]
        if segment is None or dimension not in (None, segment.dimension):
            leave_out(damaged_part(block, part).error())
        else:
            dimension = segment.dimension
            yield part.name, segment


def is_loose(source: SegmentSource) -> bool:
    """Whether an owner may have records that are in no segment."""
    return catalog_of("", source.catalog()).loose


def damaged_part(block: str, part: Part) -> Damage:
    """That a segment cannot be read."""
    return Damage("vector", block=block, record_id=f"segment {part.name:x}")


def searched(block: str, index: SegmentIndex, query: Query, depth: int) -> Candidates:
    """What an index finds.

    Raises:
        DimensionMismatch: The question's vector has another length than those stored.
    """
    given = len(query.meaning)
    if len(index) and given not in (0, index.dimension):
        stored = (index.dimension, "the stored model")
        raise DimensionMismatch(mismatch(block, stored, (given, "unnamed")))
    return index.search(query, depth)


def search(
    block: str,
    index: SegmentIndex,
    query: Query,
    depth: int,
    read: Callable[[list[str]], Mapping[str, Record]],
) -> list[Hit]:
    """As `VectorStore.search_vectors`, over an index; `read` as in `records_of`."""
    found = searched(block, index, query, depth)
    if query.beside is None:
        return hits(found, records_of(index, found.ids, read))
    held = index.held(found.ids)
    stored = records_of(index, [name for name in found.ids if name in held], read)
    return hits(found, {**query.beside.records, **stored})


def records_of(
    index: SegmentIndex, ids: Sequence[str], read: Callable[[list[str]], Mapping[str, Record]]
) -> dict[str, Record]:
    """The records that an index found, read where they are not known from a search before.

    Args:
        index: What found them. Its owner's records change with its version, and so does it.
        ids: Of the records.
        read: Reads records by id; those that are gone, or another's since, it leaves out.
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


def hits(found: Candidates, records: Mapping[str, Record]) -> list[Hit]:
    """What was found with its records; those that are gone since the search are left out."""
    scores = found.scores.tolist()
    return [
        Hit(records[name], tuple(row))
        for name, row in zip(found.ids, scores, strict=True)
        if name in records
    ]
