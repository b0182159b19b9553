"""Having a set of records of the target hold what the source's holds, and nothing else."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from agent_memory.engine.transfer.migration.checksums import Sums
from agent_memory.engine.transfer.migration.record_sets import Kept, RecordSet

_PAGE = 200


def mirror(
    source: RecordSet, target: RecordSet, sums: Sums, removing: Callable[[], None]
) -> Iterator[Kept]:
    """Remove what only the target has, and write what it has not.

    What is there already is not written again, so that whoever was interrupted goes on. Of all
    other records eight bytes each are remembered.

    Args:
        source: Where the records stand.
        target: Where they are to be.
        sums: Takes in what the source held, by block.
        removing: Called before something is removed.

    Yields:
        Each of the source's records.
    """
    there = _Marks(target.read(), _whole)
    if len(there) and _cleared(source, target, removing):
        there = _Marks(target.read(), _whole)  # others may have gone with what was removed
    for page in _pages(source.read()):
        target.put(there.lacking(page))
        for kept in page:
            sums.add(kept.block, kept.digest)
            yield kept


def summed(records: RecordSet, sums: Sums) -> Iterator[Kept]:
    """Take in what a set of records holds, by block; yields each of its records."""
    for kept in records.read():
        sums.add(kept.block, kept.digest)
        yield kept


def _cleared(source: RecordSet, target: RecordSet, removing: Callable[[], None]) -> bool:
    """Remove what only the target has; whether there was anything."""
    here, found = _Marks(source.read(), _name), False
    for page in _pages(target.read()):
        if surplus := here.lacking(page):
            found = True
            removing()
            target.remove([kept.key for kept in surplus])
    return found


class _Marks:
    """Remembers records by a number each, which is another in each run: two records that have the
    same one, of billions, have another the next time.

    Args:
        records: The records.
        told_by: What of them counts.
    """

    def __init__(self, records: Iterable[Kept], told_by: Callable[[Kept], bytes]) -> None:
        import numpy as np

        self._salt = os.urandom(16)
        self._told_by = told_by
        marks = array("Q", map(self._mark, records))
        self._sorted = np.sort(np.frombuffer(marks, np.uint64))

    def __len__(self) -> int:
        return len(self._sorted)

    def lacking(self, page: Sequence[Kept]) -> list[Kept]:
        """Those of a page that are not among them."""
        import numpy as np

        marks = np.fromiter(map(self._mark, page), np.uint64, len(page))
        first, after = (np.searchsorted(self._sorted, marks, side) for side in ("left", "right"))
        return [kept for kept, times in zip(page, after - first, strict=True) if not times]

    def _mark(self, kept: Kept) -> int:
        told = hashlib.blake2b(self._told_by(kept), digest_size=8, key=self._salt)
        return int.from_bytes(told.digest())


def _whole(kept: Kept) -> bytes:
    return kept.digest


def _name(kept: Kept) -> bytes:
    return "\0".join(kept.key).encode("utf-8", "surrogatepass")


def _pages(records: Iterator[Kept]) -> Iterator[list[Kept]]:
    while page := list(islice(records, _PAGE)):
        yield page
