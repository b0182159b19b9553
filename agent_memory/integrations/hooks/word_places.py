"""Which messages have which words, as one text that is searched as it is. Pure.

A word is the first nine bytes of how it is written. So the words that begin alike stand beside each
other, and what is found is to be looked at: others may begin so too. They are in base64, with an
alphabet in the order of its characters: so they are looked up as they are, without decoding.
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

_MARK = b"AMW2" if sys.byteorder == "little" else b"AMWB"  # numbers are as the machine has them
_HEADER = Struct("=4sIII")
_HEADER_TEXT = 24
_END = Struct("=I")
_WIDTH, _CHARS = 9, 12
_IN_ORDER = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz",
)
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
            raise ValueError("These words are cut short.")
        mark, self.count, self._words, places = _HEADER.unpack(header)
        sizes = (_HEADER.size, _WIDTH * self._words, _END.size * self._words, places)
        ends = [*accumulate(_in_base64(size) for size in sizes)]
        if mark != _MARK or len(text) != ends[-1]:
            raise ValueError("These are no words that this release can read.")
        self._text, self._ends, self._places = text, ends[1], ends[2]

    def holding(self, root: str) -> set[int]:
        """The places of the messages with a word that begins so, and maybe of some more."""
        begun, words = _bytes(root), range(self._words)
        low = bisect_left(words, _text_of(begun.ljust(_WIDTH, b"\x00")), key=self._word)
        high = bisect_right(words, _text_of(begun.ljust(_WIDTH, b"\xff")), low, key=self._word)
        if low == high:
            return set()
        return set(self._part(self._places, self._end(low), self._end(high)))

    def _word(self, number: int) -> str:
        at = _HEADER_TEXT + _CHARS * number
        return self._text[at : at + _CHARS]

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
    found: dict[bytes, bytearray] = {}
    for place, text in enumerate(said):
        for word in {_bytes(one) for one in _written(text)} - {b""} if text else ():
            placed = found.setdefault(word.ljust(_WIDTH, b"\x00"), bytearray())
            if not placed or placed[-1] != place:
                placed.append(place)
    words = sorted(found)
    ends = accumulate(len(found[word]) for word in words)
    places = b"".join([found[word] for word in words])
    count = sum(1 for text in said if text is not None)
    header = _HEADER.pack(_MARK, count, len(words), len(places))
    kept = Struct(f"={len(words)}I").pack(*ends)
    return "".join((_base64(header), _text_of(b"".join(words)), _base64(kept), _base64(places)))


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


def _text_of(words: bytes) -> str:
    return b2a_base64(words, newline=False).translate(_IN_ORDER).decode("ascii")


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
