"""A SQLite file as bytes, beside SQLite."""

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

    Whoever closes any descriptor of a file drops the locks that its process has on it, SQLite's
    too. So it stays open until no connection of the process needs them.

    Args:
        path: The file, which is there.

    Attributes:
        identity: Which file it is, as `SQLiteFile` has it.

    Raises:
        OSError: It can't be written.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        there = os.fstat(self._file)
        self.identity = (there.st_dev, there.st_ino)
        self._open = True

    def first(self) -> bytes:
        """Its first bytes."""
        return self._read(LENGTH, 0)

    def untidy(self) -> Iterator[int]:
        """The pages in whose gaps something stands; some may be of no tree.

        Others may write meanwhile: what was in the file when it began is told.
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
        """Empty the gaps of pages. Nobody may write to the file meanwhile.

        Args:
            roots: The first page of each tree.
            suspects: The pages; what is of no tree stays as it is.

        Raises:
            NoTree: The file is damaged.
            OSError: It can't be written, or an extension of SQLite has a share in its pages.
        """
        size = self._page_size()

        def read(number: int) -> bytes:
            page = self._read(size, (number - 1) * size) if number > 0 else b""
            if len(page) < size:
                raise NoTree
            return page

        for number in of_trees(read, roots, suspects):
            found = untidy(read(number))
            if found:
                self._write(bytes(found.stop - found.start), (number - 1) * size + found.start)

    def close(self) -> None:
        """Close it. Idempotent."""
        if self._open:
            self._open = False
            with suppress(OSError):
                os.close(self._file)

    __del__ = close

    def _page_size(self) -> int:
        first = self.first()
        if len(first) < LENGTH or first[_RESERVED]:  # such as checksums, which would be wrong then
            raise OSError("Its pages are not as SQLite alone makes them.")
        return page_size(first)

    # a forked child shares the place at which a file is read: where there are forks it is not used
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
        raise OSError("the disk took a part of a page only")
