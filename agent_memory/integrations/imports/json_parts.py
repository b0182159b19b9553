"""The elements of a long JSON list, one at a time, and the lines of a file; each within bounds.

A parser that streams gives up at the first byte that is no JSON. Here only the ends of elements are
looked for, and each is read on its own: what is wrong with one costs that one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from agent_memory.integrations.imports.chats import Unread
from agent_memory.integrations.imports.files import SourceFiles
from agent_memory.integrations.transcripts.lines import BOM, LONGEST, lines_of

_CHUNK = 1024 * 1024
_BLANK = b" \t\r\n"
# to the next bracket, whole strings passed over; or to a string whose end is not there yet
_OUTSIDE = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+(["\[\]{}]?)', re.DOTALL)
_INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+("?)', re.DOTALL)


class Element(NamedTuple):
    """An element or a line.

    Attributes:
        where: Where it stands.
        value: What it says.
    """

    where: str
    value: Any


def elements(name: str, file: BinaryIO) -> Iterator[Element | Unread]:
    """The elements of the list that a file holds; a file that holds an object has that alone.

    Args:
        name: What the file is called.
        file: The file, at its beginning.
    """
    scan = _Scan(file)
    opened = scan.opening()
    if opened != b"[":
        if opened != b"{":
            yield Unread(name, "not a JSON file: neither a list nor an object, in UTF-8")
            return
        piece = scan.element()
        yield _whole(name, piece) if piece is not None else _cut(name, scan)
        return
    scan.skip(1)
    number = 0
    while True:
        between, more = scan.gap()
        if between.strip(_BLANK + b","):
            number += 1
            yield Unread(f"{name}, element {number}", "not an object")
        if not more:
            if not scan.ended:
                yield _cut(f"{name}, after element {number}", scan)
            return
        number += 1
        where, begun = f"{name}, element {number}", scan.place
        piece = scan.element()
        if piece is None:
            yield _cut(where, scan, begun)
            return
        yield _whole(f"{where} (byte {begun:,})", piece)


def elements_in(source: SourceFiles, *patterns: str) -> Iterator[Element | Unread]:
    """The elements of all files of a source that have such names."""
    for file in source.files(*patterns):
        yield from [file] if isinstance(file, Unread) else elements(file.name, file.file)


def lines(name: str, file: BinaryIO) -> Iterator[Element | Unread]:
    """What the lines of a file say; blank ones are passed over.

    Args:
        name: What the file is called.
        file: The file, at its beginning.
    """
    for number, line in enumerate(lines_of(file), 1):
        if line.raw.strip() or line.end - line.start > LONGEST:
            yield _whole(f"{name}, line {number}", line.raw)


def loaded(where: str, raw: bytes | str) -> Element | Unread:
    """What a JSON text says."""
    try:
        return Element(where, json.loads(raw))
    except UnicodeDecodeError:
        return Unread(where, "not UTF-8 text")
    except RecursionError:
        return Unread(where, "nested too deeply")
    except json.JSONDecodeError as error:
        return Unread(where, f"not valid JSON: {error.msg} at character {error.pos + 1}")
    except ValueError:  # a whole number of thousands of digits
        return Unread(where, "it holds a number that is too long")


def _whole(where: str, piece: bytes) -> Element | Unread:
    if not piece:
        return Unread(where, f"longer than {LONGEST:,} bytes")
    return loaded(where, piece)


def _cut(where: str, scan: _Scan, begun: int | None = None) -> Unread:
    place = scan.place if begun is None else begun
    return Unread(where, f"the file ends in the middle; nothing could be read from byte {place:,}")


class _Scan:
    """Looks for the ends of elements, without reading what they say.

    Args:
        file: Where from.

    Attributes:
        ended: Whether the end of the list was come to.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0  # looked at so far, in the buffer
        self._before = 0  # bytes that are gone from the buffer
        self._inside = False  # a string
        self.ended = False

    @property
    def place(self) -> int:
        """How many bytes were looked at."""
        return self._before + self._at

    def opening(self) -> bytes:
        """The first byte that is not blank; b"" where there is none."""
        self._more(0)
        if self._buffer.startswith(BOM):
            self._at = len(BOM)
        while True:
            rest = self._buffer[self._at :].lstrip(_BLANK)
            self._at = len(self._buffer) - len(rest)
            if rest or not self._more(self._at):
                return rest[:1]

    def skip(self, count: int) -> None:
        """Pass over so many bytes."""
        self._at += count

    def gap(self) -> tuple[bytes, bool]:
        """What stands before the next element, at most some of it; and whether there is one."""
        between = b""
        while True:
            begun = self._at
            mark = self._to_mark()
            between = (between + self._buffer[begun : self._at])[:_CHUNK]
            if mark == b"":
                if not self._more(self._at):
                    return between, False
            elif mark in b"{[":
                self._at -= 1
                return between[:-1], True
            elif mark == b"]":
                self.ended = True
                return between[:-1], False

    def element(self) -> bytes | None:
        """The element that begins here; empty where it is too long, None where it has no end."""
        begun, depth, too_long = self._at, 0, False
        while True:
            mark = self._to_mark()
            if mark == b"":
                if too_long or self._at - begun > LONGEST:
                    too_long, begun = True, self._at
                if not self._more(begun):
                    return None
                begun = 0
            elif mark in b"{[":
                depth += 1
            else:
                depth -= 1
                if depth == 0:
                    is_whole = not too_long and self._at - begun <= LONGEST
                    return self._buffer[begun : self._at] if is_whole else b""

    def _to_mark(self) -> bytes:
        """Go past the next bracket that is in no string, and give it; b"" where more is needed."""
        while True:
            found = (_INSIDE if self._inside else _OUTSIDE).match(self._buffer, self._at)
            assert found is not None, "both match nothing too"
            self._at, mark = found.end(), found[1]
            if mark != b'"':
                return mark
            self._inside = not self._inside

    def _more(self, keep: int) -> bool:
        """Read on; whether there was more.

        Args:
            keep: Let go of what is before.
        """
        chunk = self._file.read(max(_CHUNK, len(self._buffer) - keep))
        self._before += keep
        self._at -= keep
        self._buffer = self._buffer[keep:] + chunk
        return bool(chunk)
