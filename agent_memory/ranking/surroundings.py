"""A turn within its neighbours: what is said in few words is often about what was said before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Word = TypeVar("Word")

_BUDGET = 100
_MOST = 60


def surrounded(turns: Sequence[Sequence[Word]], place: int) -> list[Word]:
    """A turn with words of its neighbours, in order, a hundred words in all.

    The turn itself is whole. The turn before, the one after and the second before claim what it
    leaves, in this order, at most sixty words each, those nearest the turn. So a long turn, which
    stands for itself, is not lost among others.

    Args:
        turns: The words of the turns of one conversation, in order.
        place: Of the turn among them.
    """
    room = _BUDGET - len(turns[place])
    before: list[Word] = []
    after: list[Word] = []
    for neighbour in (place - 1, place + 1, place - 2):
        if room <= 0 or not 0 <= neighbour < len(turns):
            continue
        there = turns[neighbour]
        size = min(_MOST, room, len(there))
        room -= size
        if neighbour > place:
            after = [*there[:size]]
        else:
            before = [*there[len(there) - size :], *before]
    return [*before, *turns[place], *after]
