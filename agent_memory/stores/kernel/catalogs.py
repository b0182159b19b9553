"""Stores search features. A catalog lists the segments of an owner in a block.

A segment holds the search features of some records of one owner. An owner's records are numbered in
the order of their writes. For each segment, the catalog has a `Part` with the range of its records'
numbers.

Records that are written together form a segment. Small neighbouring segments are merged, to keep
their number low. A deletion replaces each affected segment by a segment without the deleted
records. A segment has a unique name and never changes, so that readers can cache it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from agent_memory.core.damage import Damage
from agent_memory.core.limits import UNREADABLE
from agent_memory.core.messages import compact_json
from agent_memory.errors import Undecryptable
from agent_memory.stores.damage import leave_out, undamaged_records
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.coding import record_from
from agent_memory.stores.kernel.rules import chunks

if TYPE_CHECKING:
    from agent_memory.core.records import Record
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.index import Segment

ENCRYPTED = b"sealed."
"""The beginning of all encrypted bytes."""

_BATCH_SIZE = 8  # number of segments that one call reads; a segment may have 2 MB
_LEVELS = (0.0, 2**-8, 2**-5, 2**-2, 1.0)
_NEIGHBOURS = 8  # from this number on, the smallest segments are merged


class Part(NamedTuple):
    """The description of a segment in a catalog."""

    name: int  # the random name of the segment
    first: int  # a lower bound of its records' numbers
    last: int  # an upper bound of its records' numbers; deletions of records change neither bound
    records: int  # the number of records
    size: int  # the size in bytes


@dataclass(frozen=True, slots=True)
class Catalog:
    """An owner's segments, in order of their records' numbers."""

    next: int = 1  # the number of the next new record; numbers are not reused
    parts: tuple[Part, ...] = ()
    # Names of stored segments that `parts` does not list. The next change deletes them.
    lost: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str) -> Catalog:
        """Return the catalog for a value of `text`. Raise ValueError if the text is damaged."""
        try:
            number, parts = json.loads(text)
            return cls(int(number), tuple(Part(*map(int, part)) for part in parts))
        except UNREADABLE as error:
            raise ValueError("A catalog of segments is damaged.") from error

    @property
    def text(self) -> str:
        return compact_json([self.next, self.parts])

    @property
    def names(self) -> list[int]:
        return [part.name for part in self.parts]

    def holding(self, numbers: Iterable[int]) -> dict[Part, set[int]]:
        """Return the parts whose ranges contain some of the numbers, each with these numbers."""
        numbers_by_part: dict[Part, set[int]] = {}
        wanted = sorted(numbers)
        at = 0
        for part in self.parts:
            while at < len(wanted) and wanted[at] <= part.last:
                if wanted[at] >= part.first:
                    numbers_by_part.setdefault(part, set()).add(wanted[at])
                at += 1
        return numbers_by_part


Read = Callable[[Sequence[int]], Mapping[int, bytes]]
"""Returns segments as bytes, by name, without those that do not exist."""


@dataclass(slots=True)
class CatalogChange:
    """The new catalog, the new segments by name, and the names of the segments to delete."""

    catalog: Catalog
    written: dict[int, bytes] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)


class Owned:
    """The stored records, catalog and segments of an owner in a block."""

    def __init__(self, kernel: k.Kernel, block: str, owner: str) -> None:
        self._kernel, self.block, self.owner = kernel, block, owner
        self._records, self._segments = f"{k.VECTOR}{block}", f"{k.SEGMENT}{block}"
        self.at = k.DocId(f"{k.CATALOG}{block}", owner)

    def segment_id(self, name: int) -> k.DocId:
        return k.DocId(self._segments, f"{name:x}:{self.owner}")

    def catalog(self) -> k.Document | None:
        """Return the stored catalog, or None. Each change sets a new version.

        `first` changes if records change without their segments, as by hand.
        """
        return self._kernel.documents([self.at])[0]

    def segments(self, names: Sequence[int]) -> Mapping[int, bytes]:
        blobs: dict[int, bytes] = {}
        for some in chunks(names, _BATCH_SIZE):
            docs = self._kernel.documents([self.segment_id(name) for name in some])
            blobs |= {n: features_in(doc) for n, doc in zip(some, docs, strict=True) if doc}
        return blobs

    def names(self) -> Sequence[int]:
        """Return the names of all existing segments, including those not in the catalog."""
        documents = self._kernel.scan(k.Scan(self._segments, self.owner, bodies=False))
        return [int(document.id.partition(":")[0], 16) for document in documents]

    def numbers(self) -> Mapping[str, int]:
        documents = self._kernel.scan(k.Scan(self._records, self.owner, bodies=False))
        return {document.id: document.version for document in documents}

    def records(self, ids: Sequence[str]) -> list[tuple[int, Record]]:
        """Return the existing records with these ids, each with its number."""
        docs = self._kernel.documents([k.DocId(self._records, record_id) for record_id in ids])
        own = [doc for doc in docs if doc is not None and doc.owner == self.owner]
        return undamaged_records(own, lambda doc: (doc.version, record_from(doc)))

    def change(self, change: CatalogChange) -> list[k.Write]:
        writes: list[k.Write] = [k.Delete([self.segment_id(name) for name in change.dropped])]
        for name, data in change.written.items():
            writes.append(k.Put(k.Document(*self.segment_id(name), self.owner, data=data)))
        version, text = secrets.randbits(62), change.catalog.text
        writes.append(k.Put(k.Document(*self.at, self.owner, version=version, body=text)))
        return writes

    def forget(self) -> list[k.Write]:
        """Return the writes that delete the catalog and all segments, without reading them."""
        return [k.DeleteWhere(k.Scan(self._segments, self.owner)), k.Delete([self.at])]


def features_in(segment: k.Document) -> bytes:
    """Return the data of a segment. Raise `Undecryptable` if its key is missing."""
    if isinstance(segment.body, k.Unreadable):
        raise segment.body.error
    if segment.data.startswith(ENCRYPTED):
        raise Undecryptable(
            f"The search features of block {segment.collection.removeprefix(k.SEGMENT)!r} are "
            "encrypted. Give the keys: `encryption`, or `keys`."
        )
    return segment.data


def changed(
    catalog: Catalog, gone: Mapping[int, str], added: Sequence[Segment], read: Read
) -> CatalogChange:
    """Return the change of an owner's catalog for a write of records.

    Args:
        gone: The ids of deleted records, by number.
        added: The segments of new records, which get the next numbers in this order.
        read: Reads existing segments.
    """
    from agent_memory.retrieval.index import MOST_BYTES, MOST_ROWS

    def share(part: Part) -> float:
        """Return the size of a part, as a fraction of the largest allowed segment."""
        return max(part.records / MOST_ROWS, part.size / MOST_BYTES)

    writing = _Writing(catalog, read)
    parts = list(catalog.parts)
    for part, numbers in catalog.holding(gone).items():
        left = writing.without(part, {gone[number] for number in numbers})
        at = parts.index(part)
        parts[at : at + 1] = [] if left is None else [left]
    following = catalog.next
    for segment in added:
        last = following + segment.records - 1
        parts.append(writing.new(segment, following, last))
        following = last + 1
    for group in _groups([_Near([part], share(part)) for part in parts]):
        joined = writing.joined(group)
        at = parts.index(group[0])
        parts[at : at + len(group)] = joined
    return writing.change(replace(catalog, next=following, parts=tuple(parts), lost=()))


class _Writing:
    """The segments that are read and written for a change."""

    def __init__(self, catalog: Catalog, read: Read) -> None:
        self._catalog = catalog
        self._read = read
        self._segments: dict[int, Segment | None] = {}
        self._bodies: dict[int, bytes] = {}

    def new(self, segment: Segment, first: int, last: int) -> Part:
        from agent_memory.stores.feature_bytes import bytes_of

        name, body = secrets.randbits(62), bytes_of(segment)
        self._segments[name], self._bodies[name] = segment, body
        return Part(name, first, last, segment.records, len(body))

    def without(self, part: Part, ids: set[str]) -> Part | None:
        """Return a part without some of its records; None if no record is left.

        An unreadable segment stays until all of its records are deleted.
        """
        if len(ids) >= part.records:
            return None
        segment = self._segment(part)
        if segment is None:
            return part._replace(records=part.records - len(ids))
        left = segment.without(ids)
        return self.new(left, part.first, part.last) if left.records else None

    def joined(self, group: Sequence[Part]) -> list[Part]:
        """Merge neighbours, unless one is unreadable or their vectors differ in dimension."""
        from agent_memory.retrieval.index import Segment

        self._load(group)
        segments = [segment for part in group if (segment := self._segment(part)) is not None]
        if len(segments) < len(group) or len({segment.dimension for segment in segments}) > 1:
            return list(group)
        return [self.new(Segment.joined(segments), group[0].first, group[-1].last)]

    def change(self, after: Catalog) -> CatalogChange:
        names = set(after.names)
        written = {name: body for name, body in self._bodies.items() if name in names}
        before = [*self._catalog.names, *self._catalog.lost]
        return CatalogChange(after, written, [name for name in before if name not in names])

    def _segment(self, part: Part) -> Segment | None:
        self._load([part])
        return self._segments[part.name]

    def _load(self, parts: Sequence[Part]) -> None:
        missing = [part.name for part in parts if part.name not in self._segments]
        if missing:
            try:
                bodies = self._read(missing)
            except Undecryptable:  # a writer without the key can still write and delete
                bodies = {}
            self._segments |= {name: opened(bodies.get(name)) for name in missing}


def grouped(
    records: Sequence[Record], features: Features
) -> dict[str, tuple[list[Record], list[Segment]]]:
    """Return the records to write, and the segments of the records' features, by owner.

    If several records have the same id, only the last is written.
    """
    from agent_memory.retrieval.index import in_segments

    if len(features) != len(records):
        raise ValueError("Pass features for each record.")
    last = {record.id: place for place, record in enumerate(records)}
    owners: dict[str, list[int]] = {}
    for place in sorted(last.values()):
        owners.setdefault(records[place].owner, []).append(place)
    by_owner: dict[str, tuple[list[Record], list[Segment]]] = {}
    for owner, places in owners.items():
        own_records = [records[place] for place in places]
        own_features = features if len(places) == len(records) else features.at(places)
        ids = [record.id for record in own_records]
        segments = in_segments(ids, own_features, compact=True)
        by_owner[owner] = own_records, list(segments)
    return by_owner


def opened(body: bytes | None) -> Segment | None:
    """Decode a segment. Return None if it is damaged or does not exist."""
    from agent_memory.stores.feature_bytes import segment_of

    try:
        return None if body is None else segment_of(body)
    except UNREADABLE:
        return None


def catalog_of(source: Owned, stored: k.Document | None) -> Catalog:
    """Return the catalog for a result of `Owned.catalog`. Rebuild it if it is unreadable."""
    try:
        return Catalog() if stored is None else Catalog.of(stored.body)
    except ValueError:
        damage = Damage("vector", block=source.block, record_id="a catalog", owner=source.owner)
        leave_out(damage.error())
        return _rebuilt(source)


def _rebuilt(source: Owned) -> Catalog:
    """Rebuild a catalog from the segments and the numbers of the records.

    Records without a readable segment get parts whose segments do not exist. Until these records
    are written again, a search finds them by words only.
    """
    numbers = source.numbers()
    parts: list[Part] = []
    lost: list[int] = []
    for name in source.names():
        body = source.segments([name]).get(name)
        segment = opened(body)
        ids = () if segment is None else segment.names.all()
        present = [numbers[record_id] for record_id in ids if record_id in numbers]
        if body is None or segment is None or not present:
            lost.append(name)
        else:
            parts.append(Part(name, min(present), max(present), segment.records, len(body)))
    parts.sort(key=attrgetter("first"))
    valid = [part for at, part in enumerate(parts) if not at or part.first > parts[at - 1].last]
    lost += [part.name for part in parts if part not in valid]
    catalog = Catalog(parts=tuple(valid))
    held = {at for some in catalog.holding(numbers.values()).values() for at in some}
    ends = [part.last for part in valid]
    others = sorted(set(numbers.values()) - held)
    for _, run in groupby(others, lambda at: sum(end < at for end in ends)):
        some = [*run]
        valid.append(Part(secrets.randbits(62), some[0], some[-1], len(some), 0))
    valid.sort(key=attrgetter("first"))
    last = max(numbers.values(), default=0)
    return Catalog(last + 1, tuple(valid), lost=tuple(lost))


class _Near(NamedTuple):
    """Neighbours to merge, and their size as a fraction of the largest allowed segment."""

    parts: list[Part]
    share: float


def _groups(near: Sequence[_Near]) -> list[list[Part]]:
    """Return the groups of neighbours to merge.

    `_LEVELS` are fractions of the largest allowed segment, like a neighbour's `share`. Neighbours
    below the lowest level are merged if there are at least `_NEIGHBOURS` of them. Neighbours below
    a higher level are merged if the sum of their shares reaches this level. A change thus rewrites
    little. A group is also merged if one more neighbour would make the segment too large.
    """
    for below, level in pairwise(_LEVELS):
        grown: list[_Near] = []
        small = [item.share < level for item in near]
        for is_small, run in groupby(zip(small, near, strict=True), itemgetter(0)):
            run_items = [item for _, item in run]
            if not is_small:
                grown += run_items
                continue
            for group in _packed(run_items):
                parts = [part for item in group for part in item.parts]
                merged = _Near(parts, sum(item.share for item in group))
                is_full = group[-1] is not run_items[-1]
                enough = merged.share >= level if below else len(group) >= _NEIGHBOURS
                grown += [merged] if is_full or enough else group
        near = grown
    return [item.parts for item in near if len(item.parts) > 1]


def _packed(items: Sequence[_Near]) -> list[list[_Near]]:
    """Group neighbours, with as many in each group as one segment can hold."""
    groups, share = list[list[_Near]](), 0.0
    for item in items:
        if groups and share + item.share <= 1:
            groups[-1].append(item)
            share += item.share
        else:
            groups.append([item])
            share = item.share
    return groups
