"""Paths of files under /memories: checked, brought to the one form that names a file, and listed.

What a path may hold is listed, rather than what it may not: letters, digits and marks of any
script, spaces and plain punctuation. That leaves out whatever is, encodes or looks like a slash, a
backslash or a dot, and whatever cannot be seen.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from unicodedata import category, normalize

from agent_memory.core.limits import quoted
from agent_memory.errors import ToolRefused
from agent_memory.ltm_blocks.files.commands import ROOT
from agent_memory.ltm_blocks.files.replies import Replies

MAX_CHARS = 1_000
MAX_SEGMENT_BYTES = 255
MAX_DEPTH = 16

_MOST_SHOWN = 200
_DEPTH = 2
_UNITS = "BKMG"
_ROOT = re.compile(r"(/[A-Za-z0-9_-]{1,64}){1,8}")
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
    if not isinstance(text, str):
        raise ToolRefused(f"The path is {quoted(text)}. Give a text that begins with {ROOT}.")
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


def as_stored(path: str, root: str) -> str:
    """The one form of a path that is said below a root of one's own.

    Raises:
        ToolRefused: As for `checked_path`.
    """
    if root == ROOT:
        return checked_path(path)
    if not isinstance(path, str) or not (path == root or path.startswith(f"{root}/")):
        raise ToolRefused(f"Path must start with {root}, got: {quoted(path)}")
    try:
        return checked_path(ROOT + path[len(root) :])
    except ToolRefused as error:
        raise ToolRefused(str(error).replace(ROOT, root)) from None


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


def below(paths: Iterable[str], path: str) -> list[str]:
    """The paths that are the path itself, or below it."""
    return [one for one in paths if one == path or one.startswith(f"{path}/")]


def above(path: str) -> Iterator[str]:
    """The directories that a path is in, the root left out."""
    while (path := path.rpartition("/")[0]) not in (ROOT, ""):
        yield path


def is_there(paths: Iterable[str], path: str) -> bool:
    """Whether a path is a file or a directory. The root always is one."""
    return path == ROOT or bool(below(paths, path))


def listed(say: Replies, path: str, sizes: Mapping[str, int]) -> str:
    """A directory, with what is in it and in the directories in it.

    Args:
        say: How to say it.
        path: The directory.
        sizes: Of all files, by path, in bytes. A directory has the size of all that is below it.
    """
    shown: Counter[tuple[str, ...]] = Counter()
    directories = set()
    for file in below(sizes, path):
        names = tuple(file.removeprefix(f"{path}/").split("/"))
        for depth in range(1, min(len(names), _DEPTH) + 1):
            if names[depth - 1].startswith(".") or names[depth - 1] in say.left_out:
                break
            shown[names[:depth]] += sizes[file]
            if depth < len(names):
                directories.add(names[:depth])
    rows = [f"{human_size(say, sum(sizes[file] for file in below(sizes, path)))}\t{path}"]
    for names in sorted(shown):
        mark = say.directory_mark if names in directories else ""
        rows.append(f"{human_size(say, shown[names])}\t{path}/{'/'.join(names)}{mark}")
    return "\n".join((say.listing.format(path=path), *rows))


def human_size(say: Replies, size: int) -> str:
    """A number of bytes as people read it, such as 512B, 1.5K or 2M."""
    unit = min((size.bit_length() - 1) // 10, len(_UNITS) - 1) if size else 0
    number = size / 1024**unit
    whole = unit == 0 or (say.round_sizes and number.is_integer())
    return f"{number:.{0 if whole else 1}f}{_UNITS[unit]}"


def checked_root(given: str) -> str:
    """The directory that all paths of a user are to begin with.

    Raises:
        ValueError: It can be none.
    """
    root = given.rstrip("/")
    if not _ROOT.fullmatch(root):
        raise ValueError(
            f"{given!r} can be no root. Give a path such as /notes: up to 8 names of ASCII "
            "letters, digits, _ and -, each after a slash."
        )
    return root
