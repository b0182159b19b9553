"""The indexes of the owners searched last, for stores that have to load them."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_memory.core.damage import Damage
from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Hit, Record
from agent_memory.errors import DimensionMismatch
from agent_memory.stores.coding import UNREADABLE, mismatch
from agent_memory.stores.damage import leave_out

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Query
    from agent_memory.retrieval.index import Candidates, TraitIndex

MOST_BYTES = 256 * 2**20
"""What the kept indexes may take together; one is kept, however large."""

logger = logging.getLogger(__name__)

_MOST_RECORDS = 5_000  # of each index
_Key = tuple[str, str]

Changed = Mapping[str, tuple[int | None, int]]
"""For owners whose records a write has changed, the versions before and after it."""


@dataclass(frozen=True, slots=True)
class _CachedIndex:
    version: int
    index: TraitIndex
    size: int


class Indexes:
    """An index for each block and owner, for as long as the version it was made of stands."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._extending = fork_safe_lock()
        self._kept: OrderedDict[_Key, _CachedIndex] = OrderedDict()
        self._warned: set[_Key] = set()

    def get(self, key: _Key, version: int | None) -> TraitIndex | None:
        """The index of a block and owner, if it was kept and its version still stands."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept.version != version:
                return None
            self._kept.move_to_end(key)
            return kept.index

    def load(
        self, key: _Key, version: int | None, ids: Sequence[str], blobs: Sequence[bytes]
    ) -> TraitIndex:
        """An index of what was loaded; kept, where the version that it is of is known."""
        from agent_memory.retrieval.index import TraitIndex
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
            return TraitIndex(0)
        index = TraitIndex(features.dimension).extended(ids, features)
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
            if kept.index.holds(ids) or len(set(ids)) < len(ids):
                return  # the next search loads it anew
            longer = kept.index.extended(ids, features)
            with self._lock:
                if self._kept.get(key) is kept:
                    self._kept[key] = _CachedIndex(after, longer, longer.nbytes)
                    self._make_room()

    def _keep(self, key: _Key, version: int, index: TraitIndex) -> None:
        size = index.nbytes
        with self._lock:
            self._kept[key] = _CachedIndex(version, index, size)
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


def searched(block: str, index: TraitIndex, query: Query, depth: int) -> Candidates:
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
    index: TraitIndex,
    query: Query,
    depth: int,
    read: Callable[[list[str]], Mapping[str, Record]],
) -> list[Hit]:
    """As `VectorStore.search_vectors`, over an index; `read` as in `records_of`."""
    found = searched(block, index, query, depth)
    if query.beside is None:
        return hits(found, records_of(index, found.ids, read))
    others = {found.ids[at] for at in index.lacks(found.ids)}
    stored = records_of(index, [name for name in found.ids if name not in others], read)
    return hits(found, {**query.beside.records, **stored})


def records_of(
    index: TraitIndex, ids: Sequence[str], read: Callable[[list[str]], Mapping[str, Record]]
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
