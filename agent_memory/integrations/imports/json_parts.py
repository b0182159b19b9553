"""Elements of a long JSON list, one at a time, and lines of a file, with size limits.

A streaming parser stops at the first invalid byte. This module only looks for the ends of elements
and parses each one separately, so that damage affects a single element. After an unclosed quote,
reading continues where another element of the first one's form begins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from agent_memory.integrations.imports.conversations import Unread
from agent_memory.integrations.imports.files import SourceFiles
from agent_memory.integrations.transcripts.chat import BOM, LONGEST, lines_of

_CHUNK = 1024 * 1024
_BLANK = b" \t\r\n"
# up to the next bracket outside strings, or up to a string without an end yet
_OUTSIDE = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+(["\[\]{}]?)', re.DOTALL)
_INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+("?)', re.DOTALL)


class Element(NamedTuple):
    """An element or a line."""

    where: str
    value: Any


def elements(name: str, file: BinaryIO) -> Iterator[Element | Unread]:
    """Yield the elements of a file's list; a file with one object yields that."""
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
    beginning: re.Pattern[bytes] | None = None
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
        read = (
            _cut(where, scan, begun)
            if piece is None
            else _whole(f"{where} (byte {begun:,})", piece)
        )
        yield read
        if isinstance(read, Element):
            beginning = beginning or _beginning_of(read.value)
        elif beginning is not None and scan.back_to(beginning, begun + 1):
            continue
        if piece is None:
            return


def _beginning_of(value: Any) -> re.Pattern[bytes] | None:
    """Return a pattern of the beginning of similar elements; None for fewer than two keys."""
    keys = [json.dumps(key).encode() for key in value][:2] if isinstance(value, dict) else []
    if len(keys) < 2:
        return None
    first, second = map(re.escape, keys)
    simple = rb'(?:"(?:[^"\\]++|\\.)*+"|[^"\[\]{},]++)'
    return re.compile(rb"\{\s*" + first + rb"\s*:\s*" + simple + rb"\s*,\s*" + second + rb"\s*:")


def elements_in(source: SourceFiles, *patterns: str) -> Iterator[Element | Unread]:
    """Yield the elements of all files of a source with matching names."""
    for file in source.files(*patterns):
        yield from [file] if isinstance(file, Unread) else elements(file.name, file.file)


def lines(name: str, file: BinaryIO) -> Iterator[Element | Unread]:
    """Yield the parsed lines of a file; blank ones are skipped."""
    for number, line in enumerate(lines_of(file), 1):
        if line.raw.strip() or line.end - line.start > LONGEST:
            yield _whole(f"{name}, line {number}", line.raw)


def loaded(where: str, raw: bytes | str) -> Element | Unread:
    """Parse a JSON text."""
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8-sig", "surrogatepass")
        return Element(where, json.loads(text))
    except UnicodeDecodeError:
        return Unread(where, "not UTF-8 text")
    except RecursionError:
        return Unread(where, "nested too deeply")
    except json.JSONDecodeError as error:
        return Unread(where, f"not valid JSON: {error.msg} at character {error.pos + 1}")
    except ValueError:  # an integer of thousands of digits
        return Unread(where, "it contains a number that is too long")


def _whole(where: str, piece: bytes) -> Element | Unread:
    if not piece:
        return Unread(where, f"longer than {LONGEST:,} bytes")
    return loaded(where, piece)


def _cut(where: str, scan: _Scan, begun: int | None = None) -> Unread:
    place = scan.place if begun is None else begun
    return Unread(where, f"the file ends in the middle; nothing could be read from byte {place:,}")


class _Scan:
    """Finds the ends of elements without parsing them.

    Attributes:
        ended: Whether the end of the list was reached.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0  # the position in the buffer
        self._before = 0  # bytes removed from the buffer
        self._inside = False  # inside a string
        self.ended = False

    @property
    def place(self) -> int:
        """The position in the file, in bytes."""
        return self._before + self._at

    def opening(self) -> bytes:
        """Return the first non-blank byte; b"" if there is none."""
        self._more(0)
        if self._buffer.startswith(BOM):
            self._at = len(BOM)
        while True:
            rest = self._buffer[self._at :].lstrip(_BLANK)
            self._at = len(self._buffer) - len(rest)
            if rest or not self._more(self._at):
                return rest[:1]

    def skip(self, count: int) -> None:
        """Skip bytes."""
        self._at += count

    def back_to(self, beginning: re.Pattern[bytes], place: int) -> bool:
        """Go back to the first beginning of an element after a place, and return whether there is
        one.

        An unclosed quote hides the elements that follow it.
        """
        found = beginning.search(self._buffer, max(0, place - self._before), self._at)
        if found is not None:
            self._at, self._inside = found.start(), False
        return found is not None

    def gap(self) -> tuple[bytes, bool]:
        """Return the bytes before the next element, up to a limit, and whether there is one."""
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
        """Return the element that begins here; empty if it is too long, None if it has no end."""
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
        """Move past the next bracket outside strings and return it; b"" if bytes are missing."""
        while True:
            found = (_INSIDE if self._inside else _OUTSIDE).match(self._buffer, self._at)
            assert found is not None, "both patterns match the empty string"
            self._at, mark = found.end(), found[1]
            if mark != b'"':
                return mark
            self._inside = not self._inside

    def _more(self, keep: int) -> bool:
        """Read more bytes, and return whether there were any."""
        chunk = self._file.read(max(_CHUNK, len(self._buffer) - keep))
        self._before += keep
        self._at -= keep
        self._buffer = self._buffer[keep:] + chunk
        return bool(chunk)
