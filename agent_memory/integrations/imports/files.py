"""Reads a source, which is a file, a zip or a folder: lists and lines of JSON, and database tables.

A long JSON list is read element by element. Damage affects only one element, because reading
continues after the element's closing bracket. If this bracket is missing, the elements after it are
not read.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import sqlite3
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from fnmatch import fnmatch
from itertools import count
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from agent_memory.errors import InvalidInput
from agent_memory.integrations.imports.conversations import Element, Unread
from agent_memory.integrations.transcripts import LONGEST, lines_of

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

    def report(self, count: int) -> None:
        """Report a number of bytes that were read without `files`."""
        if self._read is not None:
            self._read(count)

    def files(self, *patterns: str) -> Iterator[OpenFile | Unread]:
        """Yield the files whose names match a pattern. A file is open until the next is yielded.

        If the source is a single file, its name need not match. If no file matches or the zip is
        damaged, raise `InvalidInput`.
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
    """A file that reports the bytes read, and ends where it is damaged."""

    def __init__(self, file: BinaryIO, read: Read | None, share: float) -> None:
        self._file = file
        self._report = read
        self._share = share  # the number to report for each byte; below 1 for a compressed file
        self._read_so_far = self._counted_so_far = 0
        self.is_damaged = False  # whether reading ended early because of damage

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
        if self._report is not None and self._read_so_far > self._counted_so_far:
            self._report(int((self._read_so_far - self._counted_so_far) * self._share))
            self._counted_so_far = self._read_so_far
        return raw


def _is_wanted(name: str, patterns: tuple[str, ...]) -> bool:
    return not name.startswith("._") and any(fnmatch(name, pattern) for pattern in patterns)


def _begins_with(path: Path, mark: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(mark)) == mark


_CHUNK = 1024 * 1024
_LITERAL = 16  # after an error in the last 16 characters, more of the file is read
_BETWEEN = re.compile(r"[\s,]*")
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_NOT_UTF_8 = re.compile("[\udc80-\udcff]")
_TOO_LONG = f"longer than {LONGEST:,} bytes"
_decode = json.JSONDecoder().raw_decode


def elements(file: OpenFile) -> Iterator[Element | Unread]:
    """Yield the elements of the list in a file. If the file is one object, yield the object.

    Letta, and LlamaIndex's first releases, also write an object as a JSON string.
    """
    scan = _Scan(file.file)
    opening = scan.next_character()
    if opening == '"':
        part = scan.value(file.name)
        yield part if isinstance(part, Unread) else loaded(file.name, part.value)
        return
    if opening == "{":
        yield scan.value(file.name)
        return
    if opening != "[":
        yield Unread(file.name, "not a JSON file: neither a list nor an object, in UTF-8")
        return
    scan.at += 1
    for number in count(1):
        if scan.next_character() == "]":
            return
        where, place = f"{file.name}, element {number}", f"character {scan.place:,}"
        before, read = scan.place, scan.value(f"{where} ({place})")
        if isinstance(read, Unread) and scan.place == before and not scan.skip():
            why = f"the file ends within the element; nothing after {place} could be read"
            yield Unread(where, why)
            return
        yield read


def elements_in(source: SourceFiles, *patterns: str) -> Iterator[Element | Unread]:
    for file in source.files(*patterns):
        yield from [file] if isinstance(file, Unread) else elements(file)


def lines(file: OpenFile, longest: int = LONGEST) -> Iterator[Element | Unread]:
    """Yield the parsed lines of a file, without blank lines."""
    for number, line in enumerate(lines_of(file.file, 0, longest), 1):
        where = f"{file.name}, line {number}"
        if line.raw.strip():
            yield loaded(where, line.raw)
        elif line.end - line.start > longest:
            yield Unread(where, f"longer than {longest:,} bytes")


def loaded(where: str, raw: bytes | str) -> Element | Unread:
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8-sig", "surrogatepass")
        return Element(where, json.loads(text))
    except (ValueError, RecursionError) as error:
        return Unread(where, _reason(error))


def _reason(error: Exception, begun: int = 0) -> str:
    match error:
        case UnicodeDecodeError():
            return "not UTF-8 text"
        case RecursionError():
            return "nested too deeply"
        case json.JSONDecodeError():
            return f"not valid JSON: {error.msg} at character {error.pos - begun + 1}"
        case _:  # the error is about an integer of thousands of digits
            return "it contains a number that is too long"


class _Scan:
    """The text of a file. Only a part of the text is in memory. `at` is a position in this part."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        self._text = ""
        self._before = 0  # number of characters that were removed from the text
        self.at = 0

    @property
    def place(self) -> int:
        return self._before + self.at

    def next_character(self) -> str:
        """Move past blanks and commas. Return the next character; empty at the end."""
        while True:
            match = _BETWEEN.match(self._text, self.at)
            self.at = len(self._text) if match is None else match.end()
            if self.at < len(self._text) or not self._more():
                return self._text[self.at : self.at + 1]

    def value(self, where: str) -> Element | Unread:
        """Return the value at the current position. Move past the value if it is valid JSON."""
        while True:
            try:
                value, end = _decode(self._text, self.at)
            except (ValueError, RecursionError) as error:
                is_long = len(self._text) - self.at > LONGEST
                if not is_long and self._may_be_cut(error) and self._more():
                    continue
                return Unread(where, _TOO_LONG if is_long else _reason(error, self.at))
            if end < len(self._text) or not self._more():
                break
        raw, self.at = self._text[self.at : end], end
        if len(raw) > LONGEST:
            return Unread(where, _TOO_LONG)
        if _NOT_UTF_8.search(raw):
            return loaded(where, raw.encode("utf-8", "surrogateescape"))
        return Element(where, value)

    def skip(self) -> bool:
        """Move past a damaged value's last bracket. Return False if there is none."""
        while True:
            depth = 0
            for match in _STRING_OR_BRACKET.finditer(self._text, self.at):
                if match[0][0] == '"':
                    continue
                if depth == 0 and match.start() > self.at:
                    self.at = match.start()  # the damage is text before the next value
                    return True
                depth += 1 if match[0] in "{[" else -1
                if depth <= 0:
                    self.at = match.end()
                    return True
            if len(self._text) - self.at > LONGEST or not self._more():
                return False

    def _may_be_cut(self, error: Exception) -> bool:
        """Return whether the value may continue after the part in memory."""
        return isinstance(error, json.JSONDecodeError) and (
            error.msg.startswith("Unterminated") or error.pos > len(self._text) - _LITERAL
        )

    def _more(self) -> bool:
        chunk = self._file.read(max(_CHUNK, len(self._text) - self.at))
        if chunk:
            self._text = self._text[self.at :]
            self._before, self.at = self._before + self.at, 0
        self._text += self._decoder.decode(chunk, not chunk)
        return bool(chunk)


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
                source.report(share)
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
