"""Pages and bytes of a SQLite file, in its published format (sqlite.org/fileformat2.html).

SQLite zeroes deleted rows in place. When it splits or merges pages, however, it leaves copies of
the moved rows in the gap of the old page. The gap lies between the page's last pointer to a row
and its first row. No row is ever read from there.

The first page belongs to the tree of the tables' definitions, and is not changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from struct import error, unpack_from

LARGEST = 65_536
"""The maximum size of a page, in bytes."""

_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}
"""The size of a tree page's header in bytes, by the value of the page's first byte."""

LENGTH = 100
"""The size of the file's header, in bytes."""

_CHUNK = 16 * LARGEST
_RESERVED = 20
_INTERIOR = (2, 5)
_ZEROS = bytes(LARGEST)


class NoTree(ValueError):
    """The file is damaged: a page that should be part of a tree is not a tree page."""


def page_size(first: bytes) -> int:
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
    page_gap = gap(page)
    if page_gap is None or page[page_gap] == _ZEROS[: page_gap.stop - page_gap.start]:
        return None
    return page_gap


def children(page: bytes) -> list[int]:
    """Return the numbers of the pages directly below a tree page; an empty list for a leaf."""
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
    """Return the wanted pages that belong to a tree. Other pages may also look like tree pages.

    To see whether a page's children are leaves, only the first child is read: all leaves of a tree
    have the same depth.

    Raises:
        NoTree: A tree leads to a page that is not a tree page, or twice to the same page.
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


class RawFile:
    """The bytes of a database's file.

    When a process closes any descriptor of a file, it loses all its locks on the file, even
    SQLite's. The file therefore stays open until no connection of the process needs locks.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        status = os.fstat(self._file)
        self.identity = (status.st_dev, status.st_ino)
        self._open = True

    def first(self) -> bytes:
        return self._read(LENGTH, 0)

    def untidy(self) -> Iterator[int]:
        """Yield the numbers of pages with data in their gaps. Some may belong to no tree.

        Connections may write meanwhile. The result covers the file's content at the beginning.
        """
        size = self._page_size()
        number = 0
        while chunk := self._read(_CHUNK, number * size):
            for at in range(0, len(chunk), size):
                number += 1
                page = chunk[at : at + size]
                if len(page) == size and untidy(page):
                    yield number

    def tidy(self, roots: Iterable[int], suspects: Iterable[int]) -> None:
        """Clear the gaps of suspected pages that belong to a tree with one of these roots.

        Connections must not write to the file meanwhile.

        Raises:
            NoTree: The file is damaged.
            OSError: The file cannot be written, or an extension of SQLite uses part of its pages.
        """
        size = self._page_size()

        def read(number: int) -> bytes:
            page = self._read(size, (number - 1) * size) if number > 0 else b""
            if len(page) < size:
                raise NoTree
            return page

        for number in of_trees(read, roots, suspects):
            page_gap = untidy(read(number))
            if page_gap:
                self._write(
                    bytes(page_gap.stop - page_gap.start), (number - 1) * size + page_gap.start
                )

    def close(self) -> None:
        if self._open:
            self._open = False
            with suppress(OSError):
                os.close(self._file)

    __del__ = close

    def _page_size(self) -> int:
        first = self.first()
        if len(first) < LENGTH or first[_RESERVED]:  # such as checksums, which a write would break
            raise OSError("An extension of SQLite uses part of its pages.")
        return page_size(first)

    # A forked child shares the position in the file. `pread` and `pwrite` do not use it.
    if hasattr(os, "pread"):

        def _read(self, size: int, at: int) -> bytes:
            return os.pread(self._file, size, at)

        def _write(self, data: bytes, at: int) -> None:
            _check_complete(os.pwrite(self._file, data, at), data)

    else:

        def _read(self, size: int, at: int) -> bytes:
            os.lseek(self._file, at, os.SEEK_SET)
            return os.read(self._file, size)

        def _write(self, data: bytes, at: int) -> None:
            os.lseek(self._file, at, os.SEEK_SET)
            _check_complete(os.write(self._file, data), data)


def _check_complete(written: int, data: bytes) -> None:
    if written < len(data):
        raise OSError("the disk wrote only part of a page")
