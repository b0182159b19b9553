"""Limits in messages: how far a window is cut, and how much of it a context shows."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from agent_memory import Entry, TokenCounter, Trim
from agent_memory.core.fitting import Fitting
from agent_memory.core.shapes import role_of
from agent_memory.core.shortening import Shortener
from agent_memory.core.window import apply, choose_cut, passes, visible
from agent_memory.strategies import Cut, Window
from tests.histories import call, histories, log_of, result, torn

U = {"role": "user", "content": "question"}
A = {"role": "assistant", "content": "answer"}
PLENTY = 10**9


COUNTER = TokenCounter()


def entries_of(messages: Sequence[object]) -> list[Entry]:
    return log_of(messages, COUNTER.message)


def fit(entries: Sequence[Entry], room: int, most: int | None = None) -> list[Entry]:
    found = Fitting(Shortener(COUNTER), room, 0, max(1, room // 2), most).fit(entries)
    return [] if found is None else found.entries


def logs() -> st.SearchStrategy[list[Entry]]:
    return st.builds(entries_of, histories())


wrong = torn


def least(entries: Sequence[Entry]) -> int:
    """Return the smallest number of messages that a legal cut can leave."""
    cut = choose_cut(entries, PLENTY, 1)
    return len(visible(apply(entries, cut), was_cut=True)) if cut else len(entries)


@given(logs(), st.integers(2, 60))
def test_fit_never_passes_its_messages(entries: list[Entry], most: int) -> None:
    """Wrong: too many messages are kept although whole groups would fit, or half a group is."""
    shown = visible(entries, was_cut=False)
    kept = fit(shown, PLENTY, most)
    assert len(kept) <= max(most, least(shown))
    assert wrong(kept) == []
    assert kept == [entry for entry in shown if entry in kept]
    if len(shown) <= most:
        assert kept == shown
    else:
        assert kept
        assert kept[-1] == shown[-1]
        # a user message inside a group of calls is no place to cut
        if kept != shown and any(role_of(entry.message) == "user" for entry in shown):
            assert role_of(kept[0].message) == "user"


@given(logs(), st.integers(0, 700), st.integers(2, 60))
def test_both_bounds_hold_at_once(entries: list[Entry], room: int, most: int) -> None:
    """Wrong: one of two limits is ignored."""
    shown = visible(entries, was_cut=False)
    kept = fit(shown, room, most)
    assert sum(entry.tokens for entry in kept) <= room
    # a shortened message of a provider may become several
    assert len({entry.seq for entry in kept}) <= max(most, least(shown))


@given(logs(), st.integers(0, 700))
def test_without_messages_nothing_changes(entries: list[Entry], room: int) -> None:
    """Wrong: a limit that is not set shortens a context."""
    shown = visible(entries, was_cut=False)
    assert fit(shown, room, None) == fit(shown, room, len(shown) + 1)


@given(st.integers(2, 10_000), st.one_of(st.none(), st.integers(1, 20_000)))
def test_what_is_kept_leaves_room(most: int, wanted: int | None) -> None:
    """Wrong: a full window is cut only to its limit, so the next message cuts it again."""
    kept = Window((), 100, most).keep_messages(wanted)
    assert kept is not None
    assert 1 <= kept < most
    if wanted is not None and wanted < most:
        assert kept == wanted
    else:
        assert kept >= 0.7 * most - 1


@given(st.one_of(st.none(), st.integers(1, 99)))
def test_without_a_capacity_the_strategy_says(wanted: int | None) -> None:
    """Wrong: a limit that is not set cuts a window."""
    assert Window((), 100).keep_messages(wanted) == wanted


def test_groups_and_long_turns_at_the_bound() -> None:
    """Wrong: results lose their call, or a long turn shows all its steps."""
    ids = ["a", "b", "c", "d"]
    entries = entries_of([U, A, U, call(ids), *map(result, ids)])
    assert [entry.seq for entry in fit(entries, PLENTY, 3)] == [3, 4, 5, 6, 7, 8]
    assert [entry.seq for entry in fit(entries[2:], PLENTY, 3)] == [3, 4, 5, 6, 7, 8]
    steps = [step for i in "abcdef" for step in (call([i]), result(i))]
    entries = entries_of([U, *steps])
    assert [entry.seq for entry in fit(entries, PLENTY, 6)] == [1, 10, 11, 12, 13]
    entries = entries_of([U, A, U])
    assert not passes(entries, 3)
    assert passes(entries, 2)
    assert not passes(entries, None)


@given(logs(), st.integers(2, 40))
def test_importance_keeps_within_the_messages(entries: list[Entry], most: int) -> None:
    """Wrong: important turns are kept in addition to a full window."""
    if len(visible(entries, was_cut=False)) <= most:
        return
    cut = Trim(by="importance").cut(Window(tuple(entries), PLENTY, most)) or Cut(0)
    kept = visible(apply(entries, cut), was_cut=True)
    assert len(kept) <= max(most, least(entries))
