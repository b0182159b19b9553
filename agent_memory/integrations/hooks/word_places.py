"""Which messages have which words, as one text that is searched as it is. Pure.

A word is the first eight bytes of how it is written, as a number. So the words that begin alike
stand beside each other, and what is found is to be looked at: others may begin so too.
"""

from __future__ import annotations

import re
import sys
from binascii import a2b_base64, b2a_base64
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from struct import Struct

from agent_memory.core.text import WORD
from agent_memory.retrieval.words import RUN, pairs

MOST = 256
"""Messages of one text, at most: a place is one byte."""

_MARK = b"AMW1" if sys.byteorder == "little" else b"AMWB"  # numbers are as the machine has them
_HEADER = Struct("=4sIII")
_HEADER_TEXT = 24
_END = Struct("=I")
_WIDTH = 8
_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")


class WordPlaces:
    """The words of some messages.

    Args:
        text: As `packed` gives it.

    Attributes:
        count: How many messages there are that say something.

    Raises:
        ValueError: It is no such text, or one of another release or kind of machine.
    """

    def __init__(self, text: str) -> None:
        header = a2b_base64(text[:_HEADER_TEXT])
        if len(header) != _HEADER.size:
            raise ValueError("WordPlaces are cut short.")
        mark, self.count, words, places = _HEADER.unpack(header)
        sizes = (_HEADER.size, _WIDTH * words, _END.size * words, places)
        ends = [*accumulate(_in_base64(size) for size in sizes)]
        if mark != _MARK or len(text) != ends[-1]:
            raise ValueError("These are no words that this release can read.")
        numbers = a2b_base64(text[ends[0] : ends[1]])
        if len(numbers) != sizes[1]:
            raise ValueError("WordPlaces are damaged.")
        self._words = memoryview(numbers).cast("Q")
        self._text, self._ends, self._places = text, ends[1], ends[2]

    def holding(self, root: str) -> set[int]:
        """The places of the messages with a word that begins so, and maybe of some more."""
        begun = _bytes(root)
        low = bisect_left(self._words, int.from_bytes(begun.ljust(_WIDTH, b"\x00"), "big"))
        high = bisect_right(self._words, int.from_bytes(begun.ljust(_WIDTH, b"\xff"), "big"), low)
        if low == high:
            return set()
        return set(self._part(self._places, self._end(low), self._end(high)))

    def _end(self, word: int) -> int:
        """Where the places of the words before this one end."""
        if not word:
            return 0
        start = _END.size * (word - 1)
        (end,) = _END.unpack(self._part(self._ends, start, start + _END.size))
        return int(end)

    def _part(self, at: int, start: int, end: int) -> bytes:
        """Some bytes of what begins at a place of the text, without reading the rest of it."""
        first = start // 3
        data = a2b_base64(self._text[at + 4 * first : at + _in_base64(end)])
        return data[start - 3 * first : end - 3 * first]


def packed(said: Sequence[str | None]) -> str:
    """What messages say as one text.

    Args:
        said: The text of each, by its place; None for one that is not to be found.
    """
    found: dict[int, bytearray] = {}
    for place, text in enumerate(said):
        for word in {_bytes(one) for one in _written(text)} - {b""} if text else ():
            number = int.from_bytes(word.ljust(_WIDTH, b"\x00"), "big")
            placed = found.setdefault(number, bytearray())
            if not placed or placed[-1] != place:
                placed.append(place)
    words = sorted(found)
    ends = accumulate(len(found[word]) for word in words)
    places = b"".join([found[word] for word in words])
    count = sum(1 for text in said if text is not None)
    parts = (
        _HEADER.pack(_MARK, count, len(words), len(places)),
        Struct(f"={len(words)}Q").pack(*words),
        Struct(f"={len(words)}I").pack(*ends),
        places,
    )
    return "".join([b2a_base64(part, newline=False).decode("ascii") for part in parts])


def _in_base64(size: int) -> int:
    return -(-size // 3) * 4


def _bytes(word: str) -> bytes:
    return word.encode("utf-8", "surrogatepass")[:_WIDTH]


def _written(text: str) -> set[str]:
    """The words of a text as they stand there, their case aside; see `retrieval.words.roots`."""
    if text.isascii():
        return set(_ASCII_WORD.findall(text.lower()))
    return set(chain.from_iterable(map(_parted, WORD.findall(text.casefold()))))


def _parted(word: str) -> Iterator[str]:
    start = 0
    for run in RUN.finditer(word):
        yield word[start : run.start()]
        yield run[0]
        yield from pairs(run[0])
        start = run.end()
    yield word[start:]
