"""An exact token count in Python, there within milliseconds, for a process's first texts.

Nothing is built for it. A token's rank is its place in the vocabulary's file, and only what a text
asks for is looked up there; should that become much, the file is read into a table.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from itertools import pairwise

from agent_memory.core.tokens.vocabularies import Vocabulary

# Work is counted in bytes searched; a megabyte takes about half a millisecond.
_WORK_PER_CHARACTER = 500
_WORK_PER_PAIR = 200
_TABLE_WORK = 32_000_000
_MOST_WORK = 400_000_000

_LONGEST_SEARCHED = 20
_LONGEST_PIECE = 512  # the work grows with its square

_NO_TOKEN = sys.maxsize

# The pattern is shown one character for each of the classes that it tells apart.
_CASELESS, _MARK = "\u00aa", "\u0300"
_CLASSES = {
    "upper": f"A-Z{_CASELESS}{_MARK}",
    "lower": f"a-z{_CASELESS}{_MARK}",
    "letter": f"A-Za-z{_CASELESS}",
    "digit": "0-9",
    "space": r" \t-\r",
}
_SHAPES = {"Lu": "A", "Lt": "A", "Ll": "a", "Lm": _CASELESS, "Lo": _CASELESS}
_SHAPES_BY_GROUP = {"M": _MARK, "N": "0", "Z": "\t", "P": "!", "S": "!", "C": "!"}
_NEXT_LINE = "\u0085"  # white space, though its category is that of controls
_LONG_S = "\u017f"  # an s, where the pattern takes either case
_PICTURES = range(0x1F300, 0x1FB00)  # symbols, or still free for some: one class


class NotForMerging(Exception):
    """Have the tokenizer built: a character is unsure, a piece very long, or the work too much."""


class MergeCounter:
    """Counts tokens as the built tokenizer does. Safe to share between threads.

    Args:
        vocabulary: The encoding.
        table: Gives the vocabulary's ranks.

    Attributes:
        work: How much was done so far.
    """

    def __init__(self, vocabulary: Vocabulary, table: Callable[[], dict[bytes, int]]) -> None:
        self.work = 0
        self._normal = vocabulary.normal
        self._entry = vocabulary.entry
        self._listing = vocabulary.listing()
        self._places: dict[bytes, int] = {}
        self._read_table = table
        self._table: dict[bytes, int] | None = None
        self._split = re.compile(vocabulary.pattern.format(**_CLASSES)).findall
        self._shapes = _Shapes((code, chr(code)) for code in range(128))
        self._counts = _Counts(self._count_piece)

    def __call__(self, text: str) -> int:
        """Tokens of a text.

        Raises:
            NotForMerging: Nothing was counted.
        """
        self._spend(_WORK_PER_CHARACTER * len(text))
        if self._normal is not None:
            text = self._normal(text)
        pieces = self._split(text) if text.isascii() else self._split_by_shape(text)
        return sum(map(self._counts.__getitem__, pieces))

    def _split_by_shape(self, text: str) -> list[str]:
        pieces, start = [], 0
        for shape in self._split(text.translate(self._shapes)):
            end = start + len(shape)
            pieces.append(text[start:end])
            start = end
        return pieces

    def _count_piece(self, piece: str) -> int:
        token = piece.encode()
        if len(token) > _LONGEST_PIECE:
            raise NotForMerging
        searching = self._table is None
        rank = self._search if searching else self._look_up
        if rank(token) != _NO_TOKEN:
            return 1
        if searching and (len(token) > _LONGEST_SEARCHED or self.work > _TABLE_WORK):
            self._table = self._read_table()
            rank = self._look_up
        # One of the two for a whole piece: what they say has its order in common, no more.
        return self._merge(token, rank)

    def _merge(self, token: bytes, rank: Callable[[bytes], int]) -> int:
        parts = [token[i : i + 1] for i in range(len(token))]
        ranks = [rank(left + right) for left, right in pairwise(parts)]
        while ranks and (best := min(ranks)) != _NO_TOKEN:
            self._spend(_WORK_PER_PAIR * len(ranks))
            at = ranks.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del ranks[at]
            if at > 0:
                ranks[at - 1] = rank(parts[at - 1] + parts[at])
            if at < len(ranks):
                ranks[at] = rank(parts[at] + parts[at + 1])
        return len(parts)

    def _look_up(self, token: bytes) -> int:
        assert self._table is not None, "it was read"
        return self._table.get(token, _NO_TOKEN)

    def _search(self, token: bytes) -> int:
        place = self._places.get(token)
        if place is None:
            found = self._listing.find(self._entry(token))
            self._spend(found if found >= 0 else len(self._listing))
            place = self._places[token] = found if found >= 0 else _NO_TOKEN
        return place

    def _spend(self, work: int) -> None:
        self.work += work
        if self.work > _MOST_WORK:
            raise NotForMerging


class _Counts(dict[str, int]):
    """Tokens of each piece seen so far."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count

    def __missing__(self, piece: str) -> int:
        count = self[piece] = self._count(piece)
        return count


class _Shapes(dict[int, str]):
    """What the pattern is shown for each character seen so far."""

    def __missing__(self, code: int) -> str:
        shape = self[code] = _shape(chr(code))
        return shape


def _shape(character: str) -> str:
    """One character of the same class.

    Raises:
        NotForMerging: Its class may not be the same in another release of Unicode.
    """
    if ord(character) in _PICTURES:
        return "!"
    category = unicodedata.category(character)
    ever = unicodedata.ucd_3_2_0.category(character)
    if category != ever or category in ("Cn", "Cs") or character == _LONG_S:
        raise NotForMerging
    if character == _NEXT_LINE:
        return "\t"
    return _SHAPES.get(category) or _SHAPES_BY_GROUP[category[0]]
