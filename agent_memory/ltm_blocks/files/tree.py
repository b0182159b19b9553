"""Directories, which are there as long as a file is in them, and how they are listed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from agent_memory.ltm_blocks.files.paths import ROOT
from agent_memory.ltm_blocks.files.replies import Replies

_DEPTH = 2
_UNITS = "BKMG"


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
