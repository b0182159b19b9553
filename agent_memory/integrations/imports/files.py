"""Opens the files and database tables of a source, which is a file, a zip or a folder."""

from __future__ import annotations

import os
import sqlite3
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from agent_memory.errors import InvalidInput
from agent_memory.integrations.imports.conversations import Element, Unread

_MOST_PACKED = 200
"""Maximum compression ratio. Conversations compress to about a tenth, zip bombs to a thousandth."""

_HARMLESS = 64 * 1024 * 1024

Read = Callable[[int], object]
"""Called with the number of bytes read since the last call."""


class OpenFile(NamedTuple):
    name: str
    file: BinaryIO

    @property
    def stem(self) -> str:
        return self.name.rpartition("/")[2].rpartition(".")[0] or self.name


class SourceFiles:
    """The source of an import. It reports the bytes read from the disk by calls of `read`."""

    def __init__(self, path: Path, read: Read | None = None) -> None:
        if not path.exists():
            raise InvalidInput(f"{path} does not exist. Give the file or the folder to import.")
        self.path = path
        self._read = read

    def tell(self, count: int) -> None:
        """Report a number of bytes that were read without `files`."""
        if self._read is not None:
            self._read(count)

    def files(self, *patterns: str) -> Iterator[OpenFile | Unread]:
        """Yield the files whose names match a pattern. A file is open until the next is yielded.

        If the source is a single file, its name need not match.

        Raises:
            InvalidInput: No file matches, or the zip is damaged.
        """
        count = 0
        for file in self._all(patterns):
            count += 1
            yield file
        if not count:
            raise InvalidInput(f"{self.path} contains no {' or '.join(patterns)}. Check the path.")

    def _all(self, patterns: tuple[str, ...]) -> Iterator[OpenFile | Unread]:
        if self.path.is_dir():
            yield from self._in_folder(patterns)
        elif self.path.is_file() and zipfile.is_zipfile(self.path):
            yield from self._in_zip(patterns)
        elif _begins_with(self.path, b"PK\x03\x04"):
            raise InvalidInput(f"{self.path} is a zip that was cut short. Download it again.")
        else:
            yield from self._opened(self.path, self.path.name)

    def _in_folder(self, patterns: tuple[str, ...]) -> Iterator[OpenFile | Unread]:
        for folder, folders, names in os.walk(self.path):  # `walk` does not follow links
            folders.sort()
            for name in sorted(names):
                if _is_wanted(name, patterns):
                    path = Path(folder, name)
                    yield from self._opened(path, path.relative_to(self.path).as_posix())

    def _opened(self, path: Path, name: str) -> Iterator[OpenFile | Unread]:
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would block forever
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
            text = f"{self.path} is a damaged zip: {error}. Download it again."
            raise InvalidInput(text) from None
        with archive as packed:
            for member in packed.infolist():
                if member.is_dir() or not _is_wanted(Path(member.filename).name, patterns):
                    continue
                size, small = member.file_size, max(member.compress_size, 1)
                if size > _HARMLESS and size > _MOST_PACKED * small:
                    text = f"unpacked, it would have {size // small:,} times its size"
                    yield Unread(member.filename, text)
                    continue
                try:
                    file = packed.open(member)
                except (RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
                    # zipfile raises a RuntimeError for an encrypted file
                    yield Unread(member.filename, f"it cannot be unpacked: {error}")
                    continue
                with file:
                    counting = _Counting(cast("BinaryIO", file), self._read, small / max(size, 1))
                    yield OpenFile(member.filename, cast("BinaryIO", counting))
                if counting.is_damaged:
                    yield Unread(member.filename, "the zip is damaged here; the end is missing")


class _Counting:
    """A file that reports the bytes read, and ends where it is damaged.

    Args:
        share: The number to report for each byte read; below 1 for a compressed file.

    Attributes:
        is_damaged: Whether reading ended early because of damage.
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
        self._read_so_far = 0  # repeated reads count once
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


def _begins_with(path: Path, mark: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(mark)) == mark


def is_database(source: SourceFiles) -> bool:
    return _begins_with(source.path, b"SQLite format 3\x00")


def tables(path: Path) -> dict[str, list[str]]:
    """Return the column names of each table of a SQLite database, by table name."""
    try:
        with closing(_opened(path)) as database:
            stored = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            names = [name.decode() for (name,) in stored]
            return {name: _columns(database, name) for name in names}
    except sqlite3.Error as error:
        text = f"{path} cannot be read: {error}. Check that the file is complete."
        raise InvalidInput(text) from None


def rows(source: SourceFiles, table: str, order: str) -> Iterator[Element | Unread]:
    number, path = 0, source.path
    try:
        with closing(_opened(path)) as database:
            (count,) = database.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()
            share = path.stat().st_size // max(count, 1)
            cursor = database.execute(f"SELECT * FROM {_quoted(table)} ORDER BY {order}")
            names = [column[0] for column in cursor.description]
            for number, values in enumerate(cursor, 1):
                source.tell(share)
                where = f"{path.name}, {table}, row {number}"
                try:
                    yield Element(where, dict(zip(names, map(_value, values), strict=True)))
                except UnicodeDecodeError:
                    yield Unread(where, "not UTF-8 text")
    except sqlite3.Error as error:
        text = f"the following rows cannot be read: {error}"
        yield Unread(f"{path.name}, {table}, after row {number}", text)


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1].decode() for row in database.execute(f"PRAGMA table_info({_quoted(table)})")]


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    database.text_factory = bytes  # invalid text then affects only its row
    return database


def _value(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
