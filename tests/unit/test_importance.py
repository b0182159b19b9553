"""Which turns say most."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.shapes import role_of
from agent_memory.core.summaries import importance, most_important
from agent_memory.core.window import turns, visible
from agent_memory.testing.histories import call, histories, log_of, result
from tests.kit import user


@given(histories(), st.integers(0, 200), st.none() | st.integers(0, 6))
def test_chosen_turns_are_whole_and_within_bounds(
    messages: list[dict[str, Any]], tokens: int, count: int | None
) -> None:
    """Wrong: half a turn is pinned, one that no user opened, or more than there is room for."""
    entries = log_of(messages, lambda message: 7)
    chosen = most_important(entries, tokens, count)
    assert list(chosen) == sorted(set(chosen))
    assert 7 * len(chosen) <= tokens
    assert count is None or len(chosen) <= count
    for turn in turns(entries):
        inside = {entry.seq for entry in turn} & set(chosen)
        assert inside in (set(), {entry.seq for entry in turn})
        assert not inside or role_of(turn[0].message) == "user"
    assert set(chosen) <= {entry.seq for entry in visible(entries, was_cut=False)}


def test_facts_outweigh_small_talk() -> None:
    """Wrong: the turn with the name and the form is given up for chatter."""
    entries = log_of(
        [
            user("how are you doing today my friend"),
            {"role": "assistant", "content": "fine, thanks"},
            user("I am Sarah Jones, form HR-101, 2 years"),
            {"role": "assistant", "content": "noted"},
            user("lovely weather"),
        ],
        lambda message: 10,
    )
    assert most_important(entries, 20) == (3, 4)
    assert most_important(entries, 30) == (3, 4, 5)
    assert most_important(entries, 20, 1) == (5,)


def test_a_users_words_count_more_and_length_less() -> None:
    """Wrong: a tool's long table of numbers outweighs what the user said of himself."""
    said, repeated = (
        log_of([{"role": role, "content": "code HR-101"}], lambda m: 10)
        for role in ("user", "assistant")
    )
    assert importance(said) > importance(repeated) > 0
    longer = log_of([user("code HR-101")], lambda m: 500)
    assert importance(said) > importance(longer)


def test_a_tool_group_is_chosen_with_its_turn() -> None:
    """Wrong: results are pinned without the call."""
    entries = log_of(
        [user("find HR-101"), call(["a"]), result("a", "HR-101 is at 10:30"), user("bye")],
        lambda message: 10,
    )
    assert most_important(entries, 35) == (1, 2, 3)
