"""The lines of a file, each within bounds; while it is being written, those that have ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

LONGEST = 64 * 1024 * 1024
"""Bytes of a line that is read; a longer one is passed over."""

BOM = b"\xef\xbb\xbf"
_CHUNK = 1024 * 1024


class Line(NamedTuple):
    """One line of a file.

    Attributes:
        start: Where it begins, in bytes.
        end: Where the next one begins.
        raw: Its bytes; empty where it is longer than `LONGEST`.
        is_ended: Whether its end is there yet.
    """

    start: int
    end: int
    raw: bytes
    is_ended: bool = True

    def record(self) -> dict[str, Any] | None:
        """The JSON object that it holds; None where it holds none."""
        try:
            found = json.loads(self.raw)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


def lines_of(file: BinaryIO, start: int = 0) -> Iterator[Line]:
    """The lines of a file.

    Args:
        file: The file, at the beginning of a line.
        start: Where that is, in bytes.
    """
    while raw := file.readline(LONGEST + 1):
        length, is_ended, is_long = len(raw), raw.endswith(b"\n"), len(raw) > LONGEST
        while is_long and not is_ended and (more := file.readline(_CHUNK)):
            length, is_ended = length + len(more), more.endswith(b"\n")
        kept = b"" if is_long else raw if start else raw.removeprefix(BOM)
        yield Line(start, start + length, kept, is_ended)
        start += length


def lines_from(path: Path, offset: int) -> Iterator[Line]:
    """The lines that are ended by now, from an offset on.

    What has no end yet is left for the next time. A file that does not have a line's end right
    before the offset is another one by now, and is read from its beginning.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        if offset > 0:
            file.seek(offset - 1)
            if file.read(1) != b"\n":
                offset = 0
        file.seek(max(0, offset))
        yield from (line for line in lines_of(file, file.tell()) if line.is_ended)
