"""How much of a log may expire."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.records import DeadLetter, Head, Summary
from agent_memory.engine.processing.retention import safe_to_expire

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = replace(Head("s", "u", created_at=NOW), end=100, start=80, cursors={"a": 90, "b": 60})


def letter(first: int) -> DeadLetter:
    return DeadLetter("a", "s", first, first + 2, 8, "no", NOW)


@pytest.mark.parametrize(
    ("head", "blocks", "dead", "expected"),
    [
        (replace(HEAD, cursors={}), [], [], 80),  # what left the window
        (HEAD, ["a", "b"], [], 59),  # the slowest block
        (HEAD, ["a", "b", "new"], [], 0),  # a block that has begun nothing
        (HEAD, ["a"], [], 59),  # a block that is not configured now
        (HEAD, ["a", "b"], [letter(31), letter(50)], 30),
        (replace(HEAD, cursors={}, pinned=(12, 40)), [], [], 11),
        (replace(HEAD, cursors={}, start=100), [], [], 99),  # the newest entry stays
        (replace(HEAD, cursors={}, summary=Summary("x", 1, 80, "local", 25)), [], [], 25),
        (replace(HEAD, cursors={}, summary=Summary("x", 1, 80, "m")), [], [], 80),  # a final one
        (replace(HEAD, expired=70), ["a", "new"], [], 70),  # it never goes back
    ],
)
def test_passed(head: Head, blocks: list[str], dead: list[DeadLetter], expected: int) -> None:
    """Wrong: a message expires that a block or the window still needs, or none ever expires."""
    assert safe_to_expire(head, blocks, dead) == expected


@given(end=st.integers(1, 50), data=st.data())
def test_what_is_passed_nothing_reads(end: int, data: st.DataObject) -> None:
    """Wrong: some order of cursors, window and dead letters loses a message."""
    seq = st.integers(0, end)
    cursors = data.draw(st.dictionaries(st.sampled_from("abc"), seq))
    blocks = data.draw(st.lists(st.sampled_from("abc"), unique=True))
    dead = [letter(at) for at in data.draw(st.lists(st.integers(1, end)))]
    start = data.draw(seq)
    pinned = tuple(sorted(data.draw(st.sets(st.integers(1, max(start, 1))))))
    expired = data.draw(st.integers(0, end - 1))
    head = replace(HEAD, end=end, start=start, pinned=pinned, cursors=cursors, expired=expired)
    upto = safe_to_expire(head, blocks, dead)
    assert expired <= upto < end
    if upto > expired:
        assert upto <= start
        assert not any(at <= upto for at in pinned)
        assert all(cursors.get(name, 0) > upto for name in {*blocks, *cursors})
        assert all(one.first > upto for one in dead)
