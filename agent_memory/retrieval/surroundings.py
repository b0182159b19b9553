"""A turn within what was said before it: few words are often about what came before."""

from __future__ import annotations

from collections.abc import Sequence

BUDGET = 100
"""Words of a turn within its surroundings."""

_MOST = 60
FARTHEST = 4
"""So many turns before a turn are looked at."""


def claims(lengths: Sequence[int], place: int) -> list[tuple[int, int]]:
    """Which turns belong to a turn's surroundings, and with how many of their last words.

    The turn itself is whole. Those before it claim what it leaves of a hundred words, the nearest
    first, at most sixty each. So a long turn, which stands for itself, is not lost among others.
    What comes after it claims nothing: so the surroundings of a turn never change.

    Args:
        lengths: How many words the turns of one conversation have, in order.
        place: Of the turn among them.

    Returns:
        Places and numbers of words, in order; the turn itself is the last.
    """
    claimed = [(place, lengths[place])]
    room = BUDGET - lengths[place]
    for before in range(place - 1, max(-1, place - 1 - FARTHEST), -1):
        if room <= 0:
            break
        size = min(_MOST, room, lengths[before])
        room -= size
        claimed.append((before, size))
    return claimed[::-1]
