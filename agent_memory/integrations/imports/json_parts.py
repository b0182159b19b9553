"""Reads a long JSON list element by element, and a file line by line, with size limits.

Damage affects only one element, because reading continues after the element's closing bracket. If
this bracket is missing, the elements after it are not read.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from itertools import count
from typing import BinaryIO

from agent_memory.integrations.imports.conversations import Element, Unread
from agent_memory.integrations.imports.files import OpenFile, SourceFiles
from agent_memory.integrations.transcripts import LONGEST, lines_of

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
