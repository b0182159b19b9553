"""Reads the lines of transcripts, and builds a line's chat messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from agent_memory.integrations.loose import Json, dated, moment

LONGEST = 64 * 1024 * 1024
"""Maximum size of a line, in bytes. Longer lines are skipped."""

BOM = b"\xef\xbb\xbf"
_CHUNK = 1024 * 1024


class Line(NamedTuple):
    """One line of a file."""

    start: int  # the offset of the line, in bytes
    end: int  # the offset of the next line
    raw: bytes  # the bytes of the line; empty if it is longer than `LONGEST`
    is_ended: bool = True  # whether the line is complete, with its line end

    def record(self) -> dict[str, Any] | None:
        """Return the JSON object of the line; None if the line is not a JSON object."""
        try:
            value = json.loads(self.raw)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


def lines_of(file: BinaryIO, start: int = 0) -> Iterator[Line]:
    """Yield the lines of a file from its current position, which is the offset `start` in bytes."""
    while raw := file.readline(LONGEST + 1):
        length, is_ended, is_long = len(raw), raw.endswith(b"\n"), len(raw) > LONGEST
        while is_long and not is_ended and (more := file.readline(_CHUNK)):
            length, is_ended = length + len(more), more.endswith(b"\n")
        content = b"" if is_long else raw if start else raw.removeprefix(BOM)
        yield Line(start, start + length, content, is_ended)
        start += length


def lines_from(path: Path, offset: int) -> Iterator[Line]:
    """Yield the complete lines from an offset on. An incomplete last line is left out.

    If no line ends at the offset, the file was replaced, and is read from its beginning.
    """
    with path.open("rb") as file:
        if offset > 0:
            file.seek(offset - 1)
            if file.read(1) != b"\n":
                offset = 0
        file.seek(max(0, offset))
        yield from (line for line in lines_of(file, file.tell()) if line.is_ended)


_TEXTS = ("text", "input_text", "output_text")
_SILENT = ("thinking", "redacted_thinking", "tool_use", "tool_result", "tool_reference")


def text_of(content: Any) -> str:
    """Return the text of a message's content. A part that is not text is replaced by its type."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [
        part.get("text") if part.get("type") in _TEXTS else f"[{part.get('type')}]"
        for part in content
        if isinstance(part, dict) and part.get("type") not in _SILENT
    ]
    return "\n".join(part for part in parts if isinstance(part, str) and part)


def messages(views: Iterable[Mapping[str, Any]], own: str, at: object) -> list[Json]:
    """Return the non-empty messages of a line, with ids and the line's time.

    Args:
        views: The messages of the line as chat dicts.
        own: The id of the line.
    """
    turns = [turn for view in views if (turn := _with_content(view)) is not None]
    return [
        dated({**turn, "id": f"{own}.{number}" if number else own}, moment(at))
        for number, turn in enumerate(turns)
    ]


def _with_content(view: Mapping[str, Any]) -> Json | None:
    content = view["content"]
    if view["role"] != "tool":
        content = (content or "").strip() or None
        if content is None and "tool_calls" not in view:
            return None
    return {**view, "content": content}
