"""A word index of messages as one text, which is searched without decoding. Pure.

A word is truncated to its first nine bytes. Words with the same prefix are adjacent, and a match is
only a candidate. Words are in an order-preserving base64 alphabet, so that they can be searched in
encoded form.
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
"""Maximum number of messages in one text: a place is one byte."""

_MARK = b"AMW2" if sys.byteorder == "little" else b"AMWB"  # numbers have the machine's byte order
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
    """The word index of some messages.

    Args:
        text: The result of `packed`.

    Attributes:
        count: Number of messages with text.

    Raises:
        ValueError: The text is damaged, or from another release or kind of machine.
    """

    def __init__(self, text: str) -> None:
        header = a2b_base64(text[:_HEADER_TEXT])
        if len(header) != _HEADER.size:
            raise ValueError("The word index is truncated.")
        mark, self.count, self._words, places = _HEADER.unpack(header)
        sizes = (_HEADER.size, _WIDTH * self._words, _END.size * self._words, places)
        ends = [*accumulate(_in_base64(size) for size in sizes)]
        if mark != _MARK or len(text) != ends[-1]:
            raise ValueError("The word index is not readable by this release.")
        self._text, self._ends, self._places = text, ends[1], ends[2]

    def holding(self, root: str) -> set[int]:
        """Return the places of messages with a word of this prefix, and perhaps of some others."""
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
        """Return the end of the places of the words before this one."""
        if not word:
            return 0
        start = _END.size * (word - 1)
        (end,) = _END.unpack(self._part(self._ends, start, start + _END.size))
        return int(end)

    def _part(self, at: int, start: int, end: int) -> bytes:
        """Decode a range of bytes from a place of the text."""
        first = start // 3
        data = a2b_base64(self._text[at + 4 * first : at + _in_base64(end)])
        return data[start - 3 * first : end - 3 * first]


def packed(said: Sequence[str | None]) -> str:
    """Build the word index of messages.

    Args:
        said: The texts by place; None for a message that is not indexed.
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
    """Return the words of a text as written, in lower case; see `retrieval.words.roots`."""
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
