"""In which segments the records of an owner are found, and what a write makes of them. Pure.

Records that are written together make a segment. Small neighbours are joined, so that there are
few; to take records out writes anew what is left of theirs. A segment has a name that no other ever
has, and never changes: whoever has read one need not read it again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agent_memory.core.messages import compact_json
from agent_memory.errors import Undecryptable
from agent_memory.stores.coding import UNREADABLE

if TYPE_CHECKING:
    from agent_memory.core.records import Record
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.segments import Segment

_LEVELS = (0.0, 2**-8, 2**-5, 2**-2, 1.0)
_NEIGHBOURS = 8  # so many small ones become one, however small they are


class Part(NamedTuple):
    """A segment, as a catalog lists it.

    Attributes:
        name: Of the segment: at random.
        first: The records' numbers begin here.
        last: They end here. Some in between may be gone.
        records: How many it has.
        size: How many bytes it takes.
    """

    name: int
    first: int
    last: int
    records: int
    size: int


@dataclass(frozen=True, slots=True)
class Catalog:
    """An owner's segments, in order of their records' numbers.

    Attributes:
        next: The number of the next record that is written; none is used twice.
        parts: The segments.
        loose: Whether there may be records that an earlier release wrote, each with features of its
            own and without a number.
        lost: Names of segments that it does not list, and that are to go. Nothing that is written.
    """

    next: int = 1
    parts: tuple[Part, ...] = ()
    loose: bool = False
    lost: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str | None) -> Catalog:
        """The inverse of `text`; None is what an earlier release had.

        Raises:
            ValueError: It is not what was written.
        """
        if text is None:
            return cls(loose=True)
        try:
            number, loose, parts = json.loads(text)
            return cls(int(number), tuple(Part(*map(int, part)) for part in parts), bool(loose))
        except UNREADABLE as error:
            raise ValueError("A catalog of segments is damaged.") from error

    @property
    def text(self) -> str:
        """All of it."""
        return compact_json([self.next, int(self.loose), self.parts])

    @property
    def names(self) -> list[int]:
        """Of the segments."""
        return [part.name for part in self.parts]

    def holding(self, numbers: Iterable[int]) -> dict[Part, set[int]]:
        """The segments that some records are in, with these records' numbers."""
        found: dict[Part, set[int]] = {}
        wanted = sorted(numbers)
        at = 0
        for part in self.parts:
            while at < len(wanted) and wanted[at] <= part.last:
                if wanted[at] >= part.first:
                    found.setdefault(part, set()).add(wanted[at])
                at += 1
        return found


class SegmentSource(Protocol):
    """What an owner has in a store."""

    def catalog(self) -> tuple[int, str | None] | None:
        """Its version, which is another with each change, and itself; None for an owner who has
        nothing."""
        ...

    def segments(self, names: Sequence[int]) -> Mapping[int, bytes]:
        """Segments by their names; those that are not there any more are left out."""
        ...

    def names(self) -> Sequence[int]:
        """Of all segments that there are, whatever the catalog lists."""
        ...

    def numbers(self) -> Mapping[str, int]:
        """Those of all records, by id."""
        ...


Read = Callable[[Sequence[int]], Mapping[int, bytes]]
"""Reads segments by their names; those that are not there are left out."""


@dataclass(slots=True)
class CatalogChange:
    """What is to be written, all of it or nothing.

    Attributes:
        catalog: As it is then.
        written: Segments that are new, by name.
        dropped: The names of those that are to go.
    """

    catalog: Catalog
    written: dict[int, bytes] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)


def changed(
    catalog: Catalog,
    gone: Mapping[int, str],
    added: Sequence[Segment],
    read: Read,
    *,
    count: int = 0,
    most_bytes: int | None = None,
) -> CatalogChange:
    """What comes of a write to an owner's records.

    Args:
        catalog: As it is.
        gone: The ids of records that are no more, by number.
        added: Records that come, which take the next numbers in their order.
        read: Reads what there is.
        count: How many numbers are taken, where more are than records come.
        most_bytes: How large a value the database takes, if not any.
    """
    from agent_memory.retrieval.segments import MOST_BYTES, MOST_ROWS

    most = min(MOST_BYTES, most_bytes or MOST_BYTES)

    def share(part: Part) -> float:
        """How much of the largest segment that there may be."""
        return max(part.records / MOST_ROWS, part.size / most)

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
    following = max(following, catalog.next + count)
    return writing.change(replace(catalog, next=following, parts=tuple(parts), lost=()))


class _Writing:
    """Segments that are read and made anew on the way to a change."""

    def __init__(self, catalog: Catalog, read: Read) -> None:
        self._catalog = catalog
        self._read = read
        self._segments: dict[int, Segment | None] = {}
        self._bodies: dict[int, bytes] = {}

    def new(self, segment: Segment, first: int, last: int) -> Part:
        """List a segment that is to be written."""
        from agent_memory.stores.segment_bytes import bytes_of

        name, body = secrets.randbits(62), bytes_of(segment)
        self._segments[name], self._bodies[name] = segment, body
        return Part(name, first, last, segment.records, len(body))

    def without(self, part: Part, ids: set[str]) -> Part | None:
        """What is left of a segment without some of its records; None where nothing is.

        One that cannot be read stays as it is, until all of its records are gone.
        """
        if len(ids) >= part.records:
            return None
        segment = self._segment(part)
        if segment is None:
            return part._replace(records=part.records - len(ids))
        left = segment.without(ids)
        return self.new(left, part.first, part.last) if left.records else None

    def joined(self, group: Sequence[Part]) -> list[Part]:
        """Neighbours as one; as they are where one of them cannot be read."""
        from agent_memory.retrieval.segments import Segment

        self._known(group)
        segments = [one for part in group if (one := self._segment(part)) is not None]
        if len(segments) < len(group) or len({one.dimension for one in segments}) > 1:
            return list(group)
        return [self.new(Segment.joined(segments), group[0].first, group[-1].last)]

    def change(self, after: Catalog) -> CatalogChange:
        """All that is to be written."""
        names = set(after.names)
        written = {name: body for name, body in self._bodies.items() if name in names}
        before = [*self._catalog.names, *self._catalog.lost]
        return CatalogChange(after, written, [name for name in before if name not in names])

    def _segment(self, part: Part) -> Segment | None:
        self._known([part])
        return self._segments[part.name]

    def _known(self, parts: Sequence[Part]) -> None:
        missing = [part.name for part in parts if part.name not in self._segments]
        if missing:
            try:
                found = self._read(missing)
            except Undecryptable:  # whoever lacks a key can write, and delete
                found = {}
            self._segments |= {name: opened(found.get(name)) for name in missing}


def grouped(
    records: Sequence[Record], features: Features, most_bytes: int | None = None
) -> dict[str, tuple[list[Record], list[Segment]]]:
    """For each owner the records to write, and segments of what they are found by.

    Of several records with one id the last counts; `most_bytes` as for `changed`.

    Raises:
        ValueError: There are not features for each record.
    """
    from agent_memory.retrieval.segments import in_segments

    if len(features) != len(records):
        raise ValueError("Give features for each record.")
    last = {record.id: place for place, record in enumerate(records)}
    owners: dict[str, list[int]] = {}
    for place in sorted(last.values()):
        owners.setdefault(records[place].owner, []).append(place)
    found: dict[str, tuple[list[Record], list[Segment]]] = {}
    for owner, places in owners.items():
        some = [records[place] for place in places]
        theirs = features if len(places) == len(records) else features.at(places)
        ids = [record.id for record in some]
        segments = in_segments(ids, theirs, compact=True, most_bytes=most_bytes)
        found[owner] = some, list(segments)
    return found


def packed(
    ids: Sequence[str], blobs: Sequence[bytes], most_bytes: int | None = None
) -> tuple[list[str], list[Segment]]:
    """What an earlier release wrote, in segments; `most_bytes` as for `changed`.

    Returns:
        The ids in the order of their numbers to be, and the segments. What is damaged comes last,
        and is in none of them.
    """
    from agent_memory.retrieval.segments import in_segments
    from agent_memory.stores.blobs import features_of, undamaged_places

    places = undamaged_places(blobs)
    sound = [ids[place] for place in places]
    damaged = [name for place, name in enumerate(ids) if place not in set(places)]
    if not sound:
        return damaged, []
    features = features_of([blobs[place] for place in places])
    segments = in_segments(sound, features, compact=True, most_bytes=most_bytes)
    return sound + damaged, list(segments)


def opened(body: bytes | None) -> Segment | None:
    """A segment that was read; None where it is not what was written, or is not there."""
    from agent_memory.stores.segment_bytes import segment_of

    try:
        return None if body is None else segment_of(body)
    except UNREADABLE:
        return None


class _Near(NamedTuple):
    """Neighbours that may become one, and how much of the largest segment they take."""

    parts: list[Part]
    share: float


def _groups(near: Sequence[_Near]) -> list[list[Part]]:
    """Which neighbours are to become one.

    The smallest ones become one when there are many of them, others when that is of the next size;
    smaller ones among them come along. What is not large enough yet stays as it is, so that little
    is read and written anew with each change.
    """
    for below, level in pairwise(_LEVELS):
        grown: list[_Near] = []
        small = [one.share < level for one in near]
        for is_small, run in groupby(zip(small, near, strict=True), itemgetter(0)):
            some = [one for _, one in run]
            if not is_small:
                grown += some
                continue
            for group in _together(some):
                parts = [part for one in group for part in one.parts]
                whole = _Near(parts, sum(one.share for one in group))
                is_full = group[-1] is not some[-1]
                enough = whole.share >= level if below else len(group) >= _NEIGHBOURS
                grown += [whole] if is_full or enough else group
        near = grown
    return [one.parts for one in near if len(one.parts) > 1]


def _together(some: Sequence[_Near]) -> list[list[_Near]]:
    """Neighbours, as many of them together as one segment can hold."""
    together, share = list[list[_Near]](), 0.0
    for one in some:
        if together and share + one.share <= 1:
            together[-1].append(one)
            share += one.share
        else:
            together.append([one])
            share = one.share
    return together
