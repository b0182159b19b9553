"""Which claims a note of a forgotten fact covers."""

import pytest

from agent_memory.ltm_blocks.extractive.history.claims import covers
from agent_memory.ltm_blocks.registry import Tombstone
from tests.unit.claiming import DAY, claim

QUOTED = (8, 15)


def note(
    first: int, last: int, span: tuple[int, int] | None, at: str = "s", *spared: str
) -> Tombstone:
    return Tombstone(None, at, first, last, span, DAY, "", spared)


@pytest.mark.parametrize(
    ("one", "covered"),
    [
        (note(1, 1, None), True),
        (note(1, 9, None), True),
        (note(1, 1, (10, 12)), True),
        (note(1, 1, (0, 9)), True),
        (note(1, 1, (14, 99)), True),
        (note(1, 1, (0, 8)), False),
        (note(1, 1, (15, 20)), False),
        (note(2, 2, None), False),
        (note(1, 1, None, "t"), False),
        (note(1, 1, (8, 15), "s", "other"), True),
        (note(1, 1, (8, 15), "s", "f"), False),
    ],
)
def test_what_a_note_covers(one: Tombstone, covered: bool) -> None:
    """Wrong: a forgotten sentence comes back by a longer or a shorter quote."""
    assert covers(one, claim("f", session_id="s", seq=1, span=QUOTED)) == covered
