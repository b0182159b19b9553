"""Direct access to the bytes of a SQLite file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from agent_memory.stores.sql.sqlite_header import LENGTH
from agent_memory.stores.sql.sqlite_pages import LARGEST, NoTree, of_trees, page_size, untidy

_CHUNK = 16 * LARGEST
_RESERVED = 20


class RawFile:
    """The bytes of a database's file.

    A process that closes any descriptor of a file drops all its locks on the file, even those of
    SQLite. The file therefore stays open until no connection of the process needs them.

    Args:
        path: The existing file.

    Attributes:
        identity: The identity of the file, as in `SQLiteFile`.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        status = os.fstat(self._file)
        self.identity = (status.st_dev, status.st_ino)
        self._open = True

    def first(self) -> bytes:
        """Return the first bytes of the file."""
        return self._read(LENGTH, 0)

    def untidy(self) -> Iterator[int]:
        """Yield the pages with data in their gaps, some of which may belong to no tree.

        Others may write meanwhile. The result covers the content at the beginning.
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
        """Clear the gaps of pages. Others must not write to the file meanwhile.

        Args:
            roots: The first page of each tree.
            suspects: The pages to clear. Those that belong to no tree are not changed.

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
        """Close the file. Idempotent."""
        if self._open:
            self._open = False
            with suppress(OSError):
                os.close(self._file)

    __del__ = close

    def _page_size(self) -> int:
        first = self.first()
        if len(first) < LENGTH or first[_RESERVED]:  # such as checksums, which would become wrong
            raise OSError("An extension of SQLite uses part of its pages.")
        return page_size(first)

    # A forked child shares the file position. Systems with forks do not use it.
    if hasattr(os, "pread"):

        def _read(self, size: int, at: int) -> bytes:
            return os.pread(self._file, size, at)

        def _write(self, data: bytes, at: int) -> None:
            _whole(os.pwrite(self._file, data, at), data)

    else:

        def _read(self, size: int, at: int) -> bytes:
            os.lseek(self._file, at, os.SEEK_SET)
            return os.read(self._file, size)

        def _write(self, data: bytes, at: int) -> None:
            os.lseek(self._file, at, os.SEEK_SET)
            _whole(os.write(self._file, data), data)


def _whole(written: int, data: bytes) -> None:
    if written < len(data):
        raise OSError("the disk wrote only part of a page")
