"""Records that are compared closely with a question, and the windows that they stand in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np

REACH = 2
"""Records to each side of a record that may belong to its window."""

_GAP = 4  # seqs between neighbours: messages of tools stand between those that people see
_WINDOW_WORDS = 130
_NEIGHBOUR_WORDS = 60


def in_order(places: np.ndarray) -> np.ndarray:
    """(n,) the rows of `features.PLACE` in the order of their conversations."""
    found: np.ndarray = np.lexsort((places["part"], places["seq"], places["session"]))
    return found


class Named(NamedTuple):
    """The ids of records, made when they are asked for: most candidates are not among the best.

    Attributes:
        name: The id of a record by its number.
        numbers: (n,) the records.
    """

    name: Callable[[int], str]
    numbers: np.ndarray

    def at(self, rows: np.ndarray) -> Named:
        """Some of them."""
        return Named(self.name, self.numbers[rows])

    def all(self) -> list[str]:
        """All ids."""
        return [self.name(number) for number in self.numbers.tolist()]


class Candidates(NamedTuple):
    """Records to be compared closely, in the order of their conversations.

    Attributes:
        names: Their ids.
        places: (n,) of `features.PLACE`.
        cosines: (n,) cosine of each with the question.
        filled: (n,) whether that is known.
        best: (n, pieces) best cosine of a record's word pieces with each of the question's.
        weights: (n, words) what each of the question's words is worth in each; 0: it is not there.
        meant: (n,) whether who speaks is meant.
        total: How many records there are, with those that are no candidates.
        holding: (words,) how many of them have each word.
    """

    names: Named
    places: np.ndarray
    cosines: np.ndarray
    filled: np.ndarray
    best: np.ndarray
    weights: np.ndarray
    meant: np.ndarray
    total: int
    holding: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Those of several indexes, in the order of their conversations. Of a record that two of
        them have the first counts."""
        if len(parts) == 1:
            return parts[0]
        places, cosines, filled, best, weights, meant = (
            np.concatenate(one) for one in zip(*(part[1:7] for part in parts), strict=True)
        )
        ids = [name for part in parts for name in part.names.all()]
        names = Named(ids.__getitem__, np.arange(len(ids)))
        total, holding = sum(part.total for part in parts), sum(part.holding for part in parts)
        every = cls(names, places, cosines, filled, best, weights, meant, total, np.array(holding))
        first = {name: at for at, name in reversed([*enumerate(ids)])}
        rows = np.array(sorted(first.values()), np.intp)
        return every.at(rows[in_order(places[rows])])

    def at(self, rows: np.ndarray) -> Self:
        """Some of them."""
        places, cosines, filled, best, weights, meant = (one[rows] for one in self[1:7])
        return type(self)(
            self.names.at(rows),
            places,
            cosines,
            filled,
            best,
            weights,
            meant,
            self.total,
            self.holding,
        )

    def neighbours(self) -> list[np.ndarray]:
        """(n,) the places of the record before each, after it, and second before it; -1 where there
        is none, or no room for it: long records need no window."""
        before, after, second = (_shifted(self.places, step) for step in (-1, 1, -2))
        words = self.places["words"].astype(np.int64)
        taken = np.minimum(words, _NEIGHBOUR_WORDS)

        def fitting(near: np.ndarray, used: np.ndarray) -> np.ndarray:
            fits = used + taken[near] <= _WINDOW_WORDS
            return np.where((near >= 0) & fits, near, -1)

        return [
            fitting(before, words),
            fitting(after, words),
            fitting(second, words + words[before]),
        ]


def _shifted(places: np.ndarray, step: int) -> np.ndarray:
    """(n,) the place so many records on, in the same session; -1 where there is none."""
    count = len(places)
    near = np.arange(count) + step
    there = (near >= 0) & (near < count)
    near = near.clip(0, max(0, count - 1))
    if count:
        gap = np.abs(places["seq"][near].astype(np.int64) - places["seq"])
        there &= (places["session"][near] == places["session"]) & (gap <= abs(step) * _GAP)
        there &= places["seq"] > 0
    return np.where(there, near, -1)
