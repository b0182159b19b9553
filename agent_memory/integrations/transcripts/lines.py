"""Lines of a file with a size limit; only complete lines of a file that is being written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

LONGEST = 64 * 1024 * 1024
"""Maximum size of a line, in bytes; longer ones are skipped."""

BOM = b"\xef\xbb\xbf"
_CHUNK = 1024 * 1024


class Line(NamedTuple):
    """One line of a file.

    Attributes:
        start: Its offset in bytes.
        end: The offset of the next line.
        raw: Its bytes; empty if longer than `LONGEST`.
        is_ended: Whether it is complete.
    """

    start: int
    end: int
    raw: bytes
    is_ended: bool = True

    def record(self) -> dict[str, Any] | None:
        """Return its JSON object; None if it has none."""
        try:
            found = json.loads(self.raw)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


def lines_of(file: BinaryIO, start: int = 0) -> Iterator[Line]:
    """Yield the lines of a file.

    Args:
        file: The file, at the beginning of a line.
        start: The offset of that line, in bytes.
    """
    while raw := file.readline(LONGEST + 1):
        length, is_ended, is_long = len(raw), raw.endswith(b"\n"), len(raw) > LONGEST
        while is_long and not is_ended and (more := file.readline(_CHUNK)):
            length, is_ended = length + len(more), more.endswith(b"\n")
        kept = b"" if is_long else raw if start else raw.removeprefix(BOM)
        yield Line(start, start + length, kept, is_ended)
        start += length


def lines_from(path: Path, offset: int) -> Iterator[Line]:
    """Yield the complete lines from an offset on.

    An incomplete line is left for the next call. If no line ends at the offset, the file was
    replaced, and is read from its beginning.

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
