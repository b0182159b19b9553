"""What viewing and editing do to a text, and what is told of it. Pure.

Lines end with a line feed alone; a carriage return before it belongs to the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_memory.core.limits import quoted
from agent_memory.errors import ToolRefused
from agent_memory.ltm_blocks.files.replies import Replies

MAX_LINES = 999_999
_AROUND = 2
_SURROGATE = re.compile("[\ud800-\udfff]")


def check_text(text: str) -> None:
    """Refuse a text that cannot be written as UTF-8.

    Raises:
        ToolRefused: It cannot.
    """
    if not isinstance(text, str):
        raise ToolRefused(f"The text is {quoted(text)}. Give a text.")
    if _SURROGATE.search(text):
        raise ToolRefused("The text holds a lone surrogate, which no file can keep. Leave it out.")


def viewed(say: Replies, path: str, text: str, view_range: Sequence[int] | None) -> str:
    """A text with its lines numbered: all of them, or those of a range.

    Args:
        say: How to say it.
        path: Of the file.
        text: Its text.
        view_range: The first line and the last, both included; -1 for the end.

    Raises:
        ToolRefused: There are too many lines to number, or the range is none.
    """
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise ToolRefused(say.too_many_lines.format(path=path))
    first, last = 1, len(lines)
    if view_range is not None:
        if (
            not isinstance(view_range, list | tuple)
            or [type(one) for one in view_range] != [int, int]
            or view_range[1] < -1
        ):
            raise ToolRefused(
                f"Invalid `view_range` parameter: {quoted(view_range)}. Give two line "
                "numbers, the first and the last; -1 as the last is the end of the file."
            )
        first = max(view_range[0], 1)
        last = last if view_range[1] == -1 else view_range[1]
    return _with_excerpt(say.content.format(path=path), lines, first, last)


def replaced(say: Replies, path: str, text: str, old: str, new: str) -> tuple[str, str]:
    """Have a text that is there once stand for another.

    Returns:
        The new text of the file, and what to tell: the lines around the change.

    Raises:
        ToolRefused: It is not there, or more than once; or a text is none.
    """
    check_text(old)
    check_text(new)
    if not old:
        raise ToolRefused("`old_str` is empty. Give the text to replace, or use insert.")
    count = text.count(old)
    if not count:
        raise ToolRefused(say.not_found.format(old_str=old, path=path))
    if count > 1:
        raise ToolRefused(say.not_unique.format(old_str=old, lines=_lines_of(text, old)))
    place = text.index(old)
    after = text[:place] + new + text[place + len(old) :]
    changed = text.count("\n", 0, place) + 1
    lines = after.split("\n")
    first = max(changed - _AROUND, 1)
    return after, _with_excerpt(say.replaced.format(path=path), lines, first, changed + _AROUND)


def inserted(say: Replies, path: str, text: str, line: int, added: str) -> tuple[str, str]:
    """Put lines behind a line; 0 is the beginning. The file then ends with a line feed.

    Returns:
        The new text of the file, and what to tell.

    Raises:
        ToolRefused: There is no such line, or the text is none.
    """
    check_text(added)
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if type(line) is not int or not 0 <= line <= len(lines):
        raise ToolRefused(say.bad_line.format(line=quoted(line), last=len(lines)))
    lines.insert(line, added.rstrip("\n"))
    after = "\n".join(lines)
    return after if after.endswith("\n") else f"{after}\n", say.inserted.format(path=path)


def _with_excerpt(what: str, lines: Sequence[str], first: int, last: int) -> str:
    shown = enumerate(lines[first - 1 : last], first)
    return f"{what}\n" + "\n".join(f"{number:6d}\t{line}" for number, line in shown)


def _lines_of(text: str, old: str) -> str:
    """The lines on which a text begins, each time it does; those that overlap too."""
    lines, place, line = [], -1, 1
    while (found := text.find(old, place + 1)) >= 0:
        line += text.count("\n", max(place, 0), found)
        lines.append(str(line))
        place = found
    return ", ".join(lines)
