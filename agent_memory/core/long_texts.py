"""Long texts in passages: a vector of many pages says nothing of any of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any, NamedTuple

from agent_memory.core.text import sentence_spans

LONG = 4_000
"""Bytes; what is longer is kept in passages. About a thousand tokens: of shorter texts, such as the
long answers of assistants, less is found in passages than whole."""

PASSAGE = 1_000
"""Bytes of a passage, more or less: about 250 tokens."""

MOST_PASSAGES = 2_000
"""So many of one text; those of a longer one are longer."""

_OVERLAP = 200  # bytes of the sentence that two passages share

PART = "part"
"""Under which key the metadata of a record says which passage it is; only of long messages."""

GAP = "\u2026"
"""Stands where a text goes on that is not shown."""

Place = tuple[int, int]


class Part(NamedTuple):
    """Which passage of a message something is.

    Attributes:
        number: Counted from 0.
        of: How many the message has.
        offset: From which character of the message on.
    """

    number: int
    of: int
    offset: int

    @property
    def is_last(self) -> bool:
        """Whether the message ends with it."""
        return self.number == self.of - 1


WHOLE = Part(0, 1, 0)
"""What is not long is one passage."""


def passages(text: str) -> list[Place]:
    """Where the passages of a text begin and end; one for a text that is not long.

    They are cut between sentences or lines, are about as long as each other, and each begins with
    the last sentence of the one before, unless that is long.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size <= LONG:
        return [(0, len(text))]
    count = min(MOST_PASSAGES, ceil(size / PASSAGE))
    goal = len(text) / count
    overlap = _OVERLAP * len(text) / size
    found: list[Place] = []
    reached = -1
    last: Place = (0, 0)
    for place in _units(text, max(1, int(goal / 2))):
        start, end = place
        number = int((start + end) / 2 / goal)
        if number > reached:
            shares = bool(found) and last[1] - last[0] <= overlap
            found.append((last[0] if shares else start, end))
        else:
            found[-1] = (found[-1][0], end)
        reached, last = number, place
    return found or [(0, len(text))]


def part_of(metadata: Mapping[str, Any]) -> Part:
    """Which passage a record or a recall is, as its metadata says."""
    said = metadata.get(PART)
    if isinstance(said, list) and [type(one) for one in said] == [int] * len(WHOLE):
        return Part(*said)
    return WHOLE


def marked(text: str, part: Part) -> str:
    """A passage's text with an ellipsis where the message goes on."""
    before = f"{GAP} " if part.number > 0 else ""
    return f"{before}{text}" if part.is_last else f"{before}{text} {GAP}"


def _units(text: str, most: int) -> Iterator[Place]:
    """What is not cut: sentences and lines; of longer ones parts of at most so many characters."""
    for start, end in sentence_spans(text):
        while end - start > most:
            at = _last_space(text, start, start + most)
            yield start, at
            start = at
            while start < end and text[start].isspace():
                start += 1
        if start < end:
            yield start, end


def _last_space(text: str, start: int, end: int) -> int:
    """Where to part a line: after its last word that ends in the second half, or right at the end.

    A word that ends right at the end is whole.
    """
    if text[end : end + 1].isspace():
        return end
    at = max(text.rfind(space, start, end) for space in (" ", "\t"))
    return at if at - start > (end - start) // 2 else end
