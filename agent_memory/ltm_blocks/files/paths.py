"""Paths of files under /memories: checked, and brought to the one form that names a file. Pure.

What a path may hold is listed, rather than what it may not: letters, digits and marks of any
script, spaces and plain punctuation. That leaves out whatever is, encodes or looks like a slash, a
backslash or a dot, and whatever cannot be seen.
"""

from __future__ import annotations

import re
from unicodedata import category, normalize

from agent_memory.errors import ToolRefused

ROOT = "/memories"
MAX_CHARS = 1_000
MAX_SEGMENT_BYTES = 255
MAX_DEPTH = 16

_MOST_SHOWN = 200
_LOOK_ALIKES = re.compile(
    "[\u0337\u0338\u20e5\u20eb\u2cc6\u3033\u4e36\u4e3f\ua4f8\ua4fa\U0001d16d"  # of / \ . and ..
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0"  # of nothing
    "\U000e0100-\U000e01ef]"
)
_STAND_FOR_MORE = re.compile(r"[./\\%\u2044]")


def checked_path(text: str) -> str:
    """The one form of a path: both spellings of an accented letter (NFC, NFD) name the same file,
    as do "/memories/notes" and "/memories/notes/".

    Raises:
        ToolRefused: It is not /memories or below, or could be taken for another path.
    """
    shown = _shown(text)
    if len(text) > MAX_CHARS or len(path := normalize("NFC", text)) > MAX_CHARS:
        raise ToolRefused(f"Path {shown} is too long: at most {MAX_CHARS} characters.")
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolRefused(f"Path must start with /memories, got: {shown}")
    segments = path.split("/")[2:]
    if segments and not segments[-1]:
        segments.pop()
    for segment in segments:
        _check(segment, shown)
    if len(segments) > MAX_DEPTH:
        raise ToolRefused(f"Path {shown} is too deep: at most {MAX_DEPTH} levels.")
    return "/".join((ROOT, *segments))


def _check(segment: str, shown: str) -> None:
    for char in segment:
        if not _allowed(char):
            raise ToolRefused(
                f"Path {shown} holds {char!a}, which no path may. Use letters, digits, "
                "spaces and plain punctuation."
            )
    if segment in ("", "."):
        raise ToolRefused(f"Path {shown} holds an empty part or a single dot. Leave it out.")
    if not segment.strip(". "):
        raise ToolRefused(f"Path {shown} would escape /memories directory")
    if segment != segment.strip(" ") or category(segment[0])[0] == "M":
        raise ToolRefused(f"Path {shown} holds a part that begins or ends with what is not seen.")
    if len(segment.encode()) > MAX_SEGMENT_BYTES:
        raise ToolRefused(f"Path {shown} holds a part of over {MAX_SEGMENT_BYTES} bytes.")


def _allowed(char: str) -> bool:
    if char.isascii():
        return char.isprintable() and char not in "\\%"
    return (
        category(char)[0] in "LMN"
        and not _LOOK_ALIKES.match(char)
        and not _STAND_FOR_MORE.search(normalize("NFKC", char))
    )


def _shown(text: str) -> str:
    """A path as a reply can show it: what is not seen is spelt out."""
    short = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in short)
