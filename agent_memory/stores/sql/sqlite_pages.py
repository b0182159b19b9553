"""Pages of a SQLite file, by the format that SQLite has published (sqlite.org/fileformat2.html).

SQLite zeroes what is deleted where it stands. But where it splits or merges pages it leaves copies
of the rows that moved in the gap of the page that they left: between its last pointer to a row and
its first row. No row is ever read from there.

The first page is of the tree of the tables' definitions, and is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import error, unpack_from

LARGEST = 65_536
"""Bytes of a page, at most."""

_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}
"""How long the header is of each kind of page that is of a tree."""

_INTERIOR = (2, 5)
_ZEROS = bytes(LARGEST)


class NoTree(ValueError):
    """A page that is to be of a tree is not; the file is damaged."""


def page_size(first: bytes) -> int:
    """Bytes of each page, as the file's first bytes tell it."""
    size: int = unpack_from(">H", first, 16)[0]
    return LARGEST if size == 1 else size


def gap(page: bytes) -> slice | None:
    """Where a page of a tree holds nothing; None where it is seen to be of no tree."""
    length = _HEADERS.get(page[0])
    if length is None:
        return None
    cells, content = unpack_from(">HH", page, 3)
    begin, end = length + 2 * cells, content or LARGEST
    return slice(begin, end) if begin <= end <= len(page) else None


def untidy(page: bytes) -> slice | None:
    """The gap of a page, if anything stands in it."""
    found = gap(page)
    if found is None or page[found] == _ZEROS[: found.stop - found.start]:
        return None
    return found


def children(page: bytes) -> list[int]:
    """The numbers of the pages right below one of a tree; none where it has rows alone.

    Raises:
        NoTree: The page cannot be of a tree.
    """
    if gap(page) is None:
        raise NoTree
    if page[0] not in _INTERIOR:
        return []
    try:
        (cells,) = unpack_from(">H", page, 3)
        pointers = unpack_from(f">{cells}H", page, 12)
        return [unpack_from(">I", page, place)[0] for place in (*pointers, 8)]
    except error as wrong:
        raise NoTree from wrong


def of_trees(read: Callable[[int], bytes], roots: Iterable[int], wanted: Iterable[int]) -> set[int]:
    """Those of the wanted pages that are of a tree. What is not may only look as if it were.

    Of the pages that hold rows alone it reads one for each page above them: all leaves of a tree
    are equally deep.

    Raises:
        NoTree: A tree leads to a page that is of none, or twice to the same.
    """
    sought, found, seen = set(wanted), set[int](), set[int]()
    todo = list(roots)
    while todo:
        number = todo.pop()
        if number in seen:
            raise NoTree
        seen.add(number)
        below = children(read(number))
        found.update(sought.intersection((number, *below)))
        if below and children(read(below[0])):
            todo += below
    return found
