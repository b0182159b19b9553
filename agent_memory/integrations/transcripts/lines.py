"""The complete lines of a file that another process is still writing to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

LONGEST = 32 * 1024 * 1024
"""Bytes of a line that is read; a longer one is passed over."""

_CHUNK = 1024 * 1024


class Line(NamedTuple):
    """One line of a file.

    Attributes:
        start: Where it begins, in bytes.
        end: Where the next one begins.
        raw: Its bytes; empty where it is longer than `LONGEST`.
    """

    start: int
    end: int
    raw: bytes

    def record(self) -> dict[str, Any] | None:
        """The JSON object that it holds; None where it holds none."""
        try:
            found = json.loads(self.raw)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


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
        start = file.tell()
        while True:
            raw = file.readline(LONGEST)
            length = len(raw)
            if length == LONGEST and not raw.endswith(b"\n"):
                raw, length = _rest(file, length)
            if length == 0 or not raw.endswith(b"\n"):
                return
            yield Line(start, start + length, raw if length <= LONGEST else b"")
            start += length


def _rest(file: Any, length: int) -> tuple[bytes, int]:
    """The end of a line that is too long to be kept, and the length of it all."""
    while True:
        raw = file.readline(_CHUNK)
        length += len(raw)
        if not raw or raw.endswith(b"\n"):
            return raw, length
