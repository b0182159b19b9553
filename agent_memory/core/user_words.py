"""The user's messages verbatim beside a summary: selection, text and parsing. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent_memory.core.transcript import Count, clip

HEADING = "The user's words, verbatim, by message number:"
_ITEM = re.compile(r"- \[(\d+)\] ")
_STANDING = re.compile(
    r"\b(never|always|must(n't)?|do not|don't|from now on|no matter|under no circumstances"
    r"|make sure|only (use|ever)|unless|without (asking|my)|ask (me )?(first|before)|by default"
    r"|nie(mals)?|immer|ab jetzt|jamais|toujours|nunca|siempre)\b",
    re.IGNORECASE,
)
_LONGEST = 4
"""A message takes at most 1/4 of the room."""


def split(text: str) -> tuple[str, dict[int, str]]:
    """Split a summary into its text and the user's messages by seq."""
    lines = text.split("\n")
    if HEADING not in lines:
        return text, {}
    place = len(lines) - 1 - lines[::-1].index(HEADING)  # no line of an item begins with it
    words: dict[int, str] = {}
    seq = 0
    for line in lines[place + 1 :]:
        if match := _ITEM.match(line):
            seq = int(match[1])
            words[seq] = line[match.end() :]
        elif seq:
            words[seq] += f"\n{line.removeprefix('  ')}"
    return "\n".join(lines[:place]).rstrip(), words


def joined(summary: str, section: str) -> str:
    """Append the section of the user's messages to a summary."""
    return f"{summary}\n\n{section}" if summary and section else summary or section


def section_of(words: Mapping[int, str], count: Count, room: int) -> str:
    """Return the section with the messages that fit: standing instructions, then the newest.

    Args:
        words: The user's messages by seq.
        count: Counts tokens.
        room: Tokens of the section; 0 for none.
    """
    left = room - count(HEADING) - 1
    chosen: dict[int, str] = {}
    order = sorted(words, key=lambda seq: (_STANDING.search(words[seq]) is None, -seq))
    for seq in order:
        text = words[seq].strip()
        if left <= 0:
            break
        short = clip(text, count, room // _LONGEST)
        indented = short.replace("\n", "\n  ") + ("..." if short != text else "")
        item = f"- [{seq}] {indented}"
        cost = count(item) + 1
        if short and cost <= left:
            chosen[seq], left = item, left - cost
    return "\n".join([HEADING, *(chosen[seq] for seq in sorted(chosen))]) if chosen else ""
