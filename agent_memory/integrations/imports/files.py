"""The files of a source: one file, a zip as it was downloaded, or a folder with all in it."""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from agent_memory.errors import InvalidInput
from agent_memory.integrations.imports.chats import Unread

_MOST_PACKED = 200
"""Texts of conversations are packed to a tenth or so; a zip bomb to a thousandth."""

_HARMLESS = 64 * 1024 * 1024

Read = Callable[[int], object]
"""Told how many bytes were read."""


class OpenFile(NamedTuple):
    """A file of a source, open.

    Attributes:
        name: What it is called in the source.
        file: At its beginning.
    """

    name: str
    file: BinaryIO

    @property
    def stem(self) -> str:
        """Its name without folders and ending."""
        return self.name.rpartition("/")[2].rpartition(".")[0] or self.name


class SourceFiles:
    """What is imported from.

    Args:
        path: A file or a folder.
        read: Told of what is read, in bytes of the files as they lie there.

    Attributes:
        path: As given.

    Raises:
        InvalidInput: There is nothing of that name.
    """

    def __init__(self, path: Path, read: Read | None = None) -> None:
        if not path.exists():
            raise InvalidInput(f"There is no {path}. Name the file or the folder to import.")
        self.path = path
        self._read = read

    def tell(self, count: int) -> None:
        """Say that so many bytes were read by other means."""
        if self._read is not None:
            self._read(count)

    def files(self, *patterns: str) -> Iterator[OpenFile | Unread]:
        """The files of it that have such names, each open until the next is asked for.

        A single file that is no zip is taken whatever it is called.

        Args:
            patterns: Such as "*.jsonl"; they say nothing of folders.

        Raises:
            InvalidInput: None has such a name.
        """
        found = 0
        for one in self._all(patterns):
            found += 1
            yield one
        if not found:
            raise InvalidInput(
                f"{self.path} holds no {' or '.join(patterns)}. Is it the right one?"
            )

    def _all(self, patterns: tuple[str, ...]) -> Iterator[OpenFile | Unread]:
        if self.path.is_dir():
            yield from self._in_folder(patterns)
        elif zipfile.is_zipfile(self.path):
            yield from self._in_zip(patterns)
        else:
            yield from self._opened(self.path, self.path.name)

    def _in_folder(self, patterns: tuple[str, ...]) -> Iterator[OpenFile | Unread]:
        for folder, folders, names in os.walk(self.path):  # goes into no linked folder
            folders.sort()
            for name in sorted(names):
                if _is_wanted(name, patterns):
                    path = Path(folder, name)
                    yield from self._opened(path, path.relative_to(self.path).as_posix())

    def _opened(self, path: Path, name: str) -> Iterator[OpenFile | Unread]:
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # a pipe would wait for ever
                yield Unread(name, "not a regular file")
                return
            file = path.open("rb")
        except OSError as error:
            yield Unread(name, error.strerror or str(error))
            return
        with file:
            yield OpenFile(name, cast("BinaryIO", _Counting(file, self._read, 1)))

    def _in_zip(self, patterns: tuple[str, ...]) -> Iterator[OpenFile | Unread]:
        try:
            archive = zipfile.ZipFile(self.path)
        except zipfile.BadZipFile as error:
            told = f"{self.path} is a damaged zip: {error}. Download it again."
            raise InvalidInput(told) from None
        with archive as packed:
            for member in packed.infolist():
                if member.is_dir() or not _is_wanted(Path(member.filename).name, patterns):
                    continue
                size, small = member.file_size, max(member.compress_size, 1)
                if size > _HARMLESS and size > _MOST_PACKED * small:
                    told = f"it says that it unpacks to {size // small:,} times its size"
                    yield Unread(member.filename, told)
                    continue
                try:
                    file = packed.open(member)
                except (RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
                    # RuntimeError: it is encrypted
                    yield Unread(member.filename, f"it cannot be unpacked: {error}")
                    continue
                with file:
                    counting = _Counting(cast("BinaryIO", file), self._read, small / max(size, 1))
                    yield OpenFile(member.filename, cast("BinaryIO", counting))
                if counting.is_damaged:
                    yield Unread(member.filename, "the zip is damaged there; the rest is missing")


class _Counting:
    """A file that tells of what is read of it, and ends where it is damaged.

    Args:
        file: The file.
        read: Told.
        share: What a byte of it counts.

    Attributes:
        is_damaged: Whether it ended there.
    """

    def __init__(self, file: BinaryIO, read: Read | None, share: float) -> None:
        self._file = file
        self._told = read
        self._share = share
        self._read_so_far = self._counted_so_far = 0
        self.is_damaged = False

    def read(self, size: int = -1) -> bytes:
        return self._counted(lambda: self._file.read(size))

    def readline(self, size: int = -1) -> bytes:
        return self._counted(lambda: self._file.readline(size))

    def seek(self, to: int) -> int:
        self._read_so_far = 0  # what is read again counts once
        return self._file.seek(to)

    def _counted(self, read: Callable[[], bytes]) -> bytes:
        try:
            raw = read()
        except (zipfile.BadZipFile, zlib.error, EOFError):
            self.is_damaged = True
            return b""
        self._read_so_far += len(raw)
        if self._told is not None and self._read_so_far > self._counted_so_far:
            self._told(int((self._read_so_far - self._counted_so_far) * self._share))
            self._counted_so_far = self._read_so_far
        return raw


def _is_wanted(name: str, patterns: tuple[str, ...]) -> bool:
    return not name.startswith("._") and any(fnmatch(name, pattern) for pattern in patterns)
