"""Records with their features, some at a time, from stores that keep these in segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from agent_memory.core.damage import Damage
from agent_memory.core.records import Record
from agent_memory.stores.catalogs import SegmentSource, opened
from agent_memory.stores.damage import leave_out
from agent_memory.stores.mending import catalog_of

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features

_TRIES = 20


class Walk:
    """Walks through the records of one owner. The segment that was read last is kept.

    Args:
        block: The block's name.
        owner: The owner of the records.
        source: The owner's catalog and segments.
        read: Reads the owner's records by id, each with its number; those that are gone are left
            out.
    """

    def __init__(
        self,
        block: str,
        owner: str,
        source: SegmentSource,
        read: Callable[[Sequence[str]], Sequence[tuple[int, Record]]],
    ) -> None:
        self._block = block
        self._owner = owner
        self._source = source
        self._read = read
        self._known: tuple[int, dict[str, int], Features] | None = None

    def page(self, ids: Sequence[str]) -> Iterator[tuple[list[Record], Features]]:
        """These records with their features."""
        left: Mapping[int, Record] = {}
        for _ in range(_TRIES):  # what changes meanwhile is looked for anew
            before = self._source.catalog()
            left = dict(self._read(ids))
            catalog = catalog_of(self._block, self._owner, self._source, before)
            parts = catalog.holding(left) if left else {}
            for part, numbers in parts.items():
                known = self._opened(part.name)
                there = [n for n in sorted(numbers) if known and left[n].id in known[1]]
                if known and there:
                    records = [left[number] for number in there]
                    yield records, known[2].at([known[1][one.id] for one in records])
                    left = {n: one for n, one in left.items() if n not in there}
            ids = [one.id for one in left.values()]
            if not left or self._source.catalog() == before:
                break
        for one in left.values():
            leave_out(Damage("vector", one.session_id, one.first, self._block, one.id).error())

    def _opened(self, name: int) -> tuple[int, Mapping[str, int], Features] | None:
        """A segment: its name, the places of its records, and what they are found by."""
        if self._known is None or self._known[0] != name:
            segment = opened(self._source.segments([name]).get(name))
            if segment is None:
                return None
            places = {one: place for place, one in enumerate(segment.names.all())}
            self._known = name, places, segment.features()
        return self._known
