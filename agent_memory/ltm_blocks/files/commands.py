"""The commands of the Claude memory tool, their replies, and the validation of their paths. Pure.

The replies are those of Anthropic's Python SDK.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal
from unicodedata import category, normalize

from pydantic import AliasChoices, Field

from agent_memory.core.limits import is_encodable, quoted
from agent_memory.core.tools import Arguments
from agent_memory.errors import ToolRefused

MAX_LINES = 999_999
_AROUND = 2
_DEPTH = 2
_UNITS = "BKMG"

DESCRIPTION = (
    "Your files, kept under /memories beyond this conversation, for lists, plans and longer "
    "texts. Look there when a task continues earlier work. `view` shows a directory or a file, "
    "`create` makes a new file, `str_replace` and `insert` change a file, `delete` and `rename` "
    "work on files and directories."
)


class FileCommand(Arguments):
    """One command. Arguments that the command does not use are ignored."""

    command: Literal["view", "create", "str_replace", "insert", "delete", "rename"] = Field(
        description="What to do."
    )
    path: str | None = Field(
        default=None,
        description="For all commands except rename. view and delete also accept a directory.",
    )
    view_range: list[int] | None = Field(
        default=None, description="For view, optional: the first and the last line; -1 is the end."
    )
    file_text: str | None = Field(
        default=None,
        validation_alias=AliasChoices("file_text", "content"),
        description="For create: the file's text.",
    )
    old_str: str | None = Field(
        default=None,
        description="For str_replace: the text to replace. It must occur exactly once in the file.",
    )
    new_str: str | None = Field(default=None, description="For str_replace: the new text.")
    insert_line: int | None = Field(
        default=None, description="For insert: the line after which to insert; 0 is the beginning."
    )
    insert_text: str | None = Field(default=None, description="For insert: the text to insert.")
    old_path: str | None = Field(default=None, description="For rename: the current path.")
    new_path: str | None = Field(default=None, description="For rename: the new path.")


def listed(path: str, sizes: Mapping[str, int]) -> str:
    """Return a listing of a directory, two levels deep. `sizes` has the bytes of each file."""
    shown: Counter[tuple[str, ...]] = Counter()
    directories = set()
    for file in below(sizes, path):
        names = tuple(file.removeprefix(f"{path}/").split("/"))
        for depth in range(1, min(len(names), _DEPTH) + 1):
            if names[depth - 1].startswith("."):
                break
            shown[names[:depth]] += sizes[file]
            if depth < len(names):
                directories.add(names[:depth])
    rows = [f"{human_size(sum(sizes[file] for file in below(sizes, path)))}\t{path}"]
    for names in sorted(shown):
        mark = "/" if names in directories else ""
        rows.append(f"{human_size(shown[names])}\t{path}/{'/'.join(names)}{mark}")
    title = (
        f"Here're the files and directories up to {_DEPTH} levels deep in {path}, excluding hidden "
        "items:"
    )
    return "\n".join((title, *rows))


def human_size(size: int) -> str:
    """Return a size in readable form, such as 512B, 1.5K or 2M."""
    unit = min((size.bit_length() - 1) // 10, len(_UNITS) - 1) if size else 0
    number = size / 1024**unit
    return f"{number:.{0 if number.is_integer() else 1}f}{_UNITS[unit]}"


def check_text(text: str) -> None:
    """Refuse a text that UTF-8 cannot represent."""
    if not isinstance(text, str):
        raise ToolRefused(f"The text is {quoted(text)}. Give a text.")
    if not is_encodable(text):
        raise ToolRefused("The text contains a lone surrogate, which files cannot hold. Remove it.")


def viewed(path: str, text: str, view_range: Sequence[int] | None) -> str:
    """Return the lines of a text with their numbers.

    With `view_range`, return the first to the last line of the range; -1 is the end of the text.
    """
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise ToolRefused(f"File {path} exceeds maximum line limit of {MAX_LINES:,} lines.")
    first, last = 1, len(lines)
    if view_range is not None:
        if (
            not isinstance(view_range, list | tuple)
            or [type(number) for number in view_range] != [int, int]
            or view_range[1] < -1
        ):
            raise ToolRefused(
                f"Invalid `view_range` parameter: {quoted(view_range)}. Give two line "
                "numbers, the first and the last; -1 as the last is the end of the file."
            )
        first = max(view_range[0], 1)
        last = last if view_range[1] == -1 else view_range[1]
    title = f"Here's the content of {path} with line numbers:"
    return _with_excerpt(title, lines, first, last)


def replaced(path: str, text: str, old: str, new: str) -> tuple[str, str]:
    """Replace a text that occurs once. Return the new text, and a reply that shows its place."""
    check_text(old)
    check_text(new)
    if not old:
        raise ToolRefused("`old_str` is empty. Give the text to replace, or use insert.")
    count = text.count(old)
    if not count:
        raise ToolRefused(
            f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}."
        )
    if count > 1:
        raise ToolRefused(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
            f"{_lines_of(text, old)}. Please ensure it is unique"
        )
    place = text.index(old)
    after = text[:place] + new + text[place + len(old) :]
    changed = text.count("\n", 0, place) + 1
    lines = after.split("\n")
    first = max(changed - _AROUND, 1)
    title = (
        "The memory file has been edited. Here is the snippet showing the change (with line "
        "numbers):"
    )
    return after, _with_excerpt(title, lines, first, changed + _AROUND)


def inserted(path: str, text: str, line: int, added: str) -> tuple[str, str]:
    """Insert lines after a line; 0 is the beginning. The file then ends with a line feed.

    Return the file's new text, and the reply.
    """
    check_text(added)
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if type(line) is not int or not 0 <= line <= len(lines):
        raise ToolRefused(
            f"Invalid `insert_line` parameter: {quoted(line)}. It should be within the range "
            f"[0, {len(lines)}]."
        )
    lines.insert(line, added.rstrip("\n"))
    after = "\n".join(lines)
    after = after if after.endswith("\n") else f"{after}\n"
    return after, f"The file {path} has been edited."


def _with_excerpt(what: str, lines: Sequence[str], first: int, last: int) -> str:
    shown = enumerate(lines[first - 1 : last], first)
    return f"{what}\n" + "\n".join(f"{number:6d}\t{line}" for number, line in shown)


def _lines_of(text: str, old: str) -> str:
    """Return the numbers of the lines on which occurrences begin. Occurrences may overlap."""
    lines, place, line = [], -1, 1
    while (at := text.find(old, place + 1)) >= 0:
        line += text.count("\n", max(place, 0), at)
        lines.append(str(line))
        place = at
    return ", ".join(lines)


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


def exists(paths: Iterable[str], path: str) -> bool:
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
