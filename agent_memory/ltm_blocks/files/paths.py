"""Validation of paths under /memories. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from unicodedata import category, normalize

from agent_memory.core.limits import quoted
from agent_memory.errors import ToolRefused

ROOT = "/memories"
MAX_CHARS = 1_000
MAX_SEGMENT_BYTES = 255
MAX_DEPTH = 16

_MOST_SHOWN = 200
_ROOT = re.compile(r"(/[A-Za-z0-9_-]{1,64}){1,8}")
_LOOK_ALIKES = re.compile(
    "[\u0337\u0338\u20e5\u20eb\u2cc6\u3033\u4e36\u4e3f\ua4f8\ua4fa\U0001d16d"  # look like / \ . ..
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0"  # invisible
    "\U000e0100-\U000e01ef]"
)
_STAND_FOR_MORE = re.compile(r"[./\\%\u2044]")


def checked_path(text: str, root: str = ROOT) -> str:
    """Return the stored form of a path, which begins with /memories even if the root differs.

    Both Unicode spellings of an accented letter (NFC, NFD) name the same file. A slash at the end
    is ignored.

    Raises:
        ToolRefused: The path is outside the root, is too long or too deep, or could be mistaken
            for another path.
    """
    if not isinstance(text, str):
        raise ToolRefused(f"The path is {quoted(text)}. Give a text that begins with {root}.")
    shown = _shown(text)
    if len(text) > MAX_CHARS or len(path := normalize("NFC", text)) > MAX_CHARS:
        raise ToolRefused(f"Path {shown} is too long: at most {MAX_CHARS} characters.")
    if path != root and not path.startswith(f"{root}/"):
        raise ToolRefused(f"Path must start with {root}, got: {shown}")
    segments = path[len(root) :].split("/")[1:]
    if segments and not segments[-1]:
        segments.pop()
    for segment in segments:
        _check(segment, shown, root)
    if len(segments) > MAX_DEPTH:
        raise ToolRefused(f"Path {shown} is too deep: at most {MAX_DEPTH} levels.")
    return "/".join((ROOT, *segments))


def _check(segment: str, shown: str, root: str) -> None:
    for char in segment:
        if not _allowed(char):
            raise ToolRefused(
                f"Path {shown} contains {char!a}, which is not allowed. Use letters, digits, "
                "spaces and plain punctuation."
            )
    if segment in ("", "."):
        raise ToolRefused(f"Path {shown} contains an empty part or a single dot. Remove it.")
    if not segment.strip(". "):
        raise ToolRefused(f"Path {shown} would escape {root} directory")
    if segment != segment.strip(" ") or category(segment[0])[0] == "M":
        raise ToolRefused(f"Path {shown} has a part with an invisible first or last character.")
    if len(segment.encode()) > MAX_SEGMENT_BYTES:
        raise ToolRefused(f"Path {shown} has a part of over {MAX_SEGMENT_BYTES} bytes.")


def _allowed(char: str) -> bool:
    if char.isascii():
        return char.isprintable() and char not in "\\%"
    return (
        category(char)[0] in "LMN"
        and not _LOOK_ALIKES.match(char)
        and not _STAND_FOR_MORE.search(normalize("NFKC", char))
    )


def _shown(text: str) -> str:
    short = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in short)


def below(paths: Iterable[str], path: str) -> list[str]:
    """Return the paths that equal the path or are below it."""
    return [name for name in paths if name == path or name.startswith(f"{path}/")]


def above(path: str) -> Iterator[str]:
    """Yield the directories of a path, except the root."""
    while (path := path.rpartition("/")[0]) not in (ROOT, ""):
        yield path


def is_there(paths: Iterable[str], path: str) -> bool:
    """Return whether a path is a file or a directory. The root always exists."""
    return path == ROOT or bool(below(paths, path))


def checked_root(value: str) -> str:
    """Validate a custom `root` of the block, and return it without a slash at the end."""
    root = value.rstrip("/")
    if not _ROOT.fullmatch(root):
        raise ValueError(
            f"{value!r} is not a valid root. Give a path such as /notes: up to 8 names of ASCII "
            "letters, digits, _ and -, each after a slash."
        )
    return root
