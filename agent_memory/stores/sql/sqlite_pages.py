"""Pages of a SQLite file, in its published format (sqlite.org/fileformat2.html).

SQLite zeroes deleted rows in place. When it splits or merges pages, however, it leaves copies of
the moved rows in the gap of the old page. The gap lies between the page's last pointer to a row
and its first row. No row is ever read from there.

The first page belongs to the tree of the tables' definitions, and is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import error, unpack_from

LARGEST = 65_536
"""The most bytes of a page."""

_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}
"""The length of the header of each kind of tree page."""

_INTERIOR = (2, 5)
_ZEROS = bytes(LARGEST)


class NoTree(ValueError):
    """A page is not part of a tree as it should be; the file is damaged."""


def page_size(first: bytes) -> int:
    """Return the page size from the file's first bytes."""
    size: int = unpack_from(">H", first, 16)[0]
    return LARGEST if size == 1 else size


def gap(page: bytes) -> slice | None:
    """Return the gap of a tree page; None for a page that cannot belong to a tree."""
    length = _HEADERS.get(page[0])
    if length is None:
        return None
    cells, content = unpack_from(">HH", page, 3)
    begin, end = length + 2 * cells, content or LARGEST
    return slice(begin, end) if begin <= end <= len(page) else None


def untidy(page: bytes) -> slice | None:
    """Return the gap of a page if it contains data, or None."""
    page_gap = gap(page)
    if page_gap is None or page[page_gap] == _ZEROS[: page_gap.stop - page_gap.start]:
        return None
    return page_gap


def children(page: bytes) -> list[int]:
    """Return the numbers of the pages right below a tree page; none for a leaf.

    Raises:
        NoTree: The page cannot belong to a tree.
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
    """Return the wanted pages that belong to a tree. Other pages may only look like it.

    It reads one leaf for each page above, because all leaves of a tree have the same depth.

    Raises:
        NoTree: A tree leads to a page that belongs to none, or twice to the same page.
    """
    remaining, tree_pages, visited = set(wanted), set[int](), set[int]()
    todo = list(roots)
    while todo:
        number = todo.pop()
        if number in visited:
            raise NoTree
        visited.add(number)
        below = children(read(number))
        tree_pages.update(remaining.intersection((number, *below)))
        if below and children(read(below[0])):
            todo += below
    return tree_pages
