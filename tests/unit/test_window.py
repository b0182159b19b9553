"""The window's rules, and limits in messages, over generated conversations."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import AgentMemory, Entry, Trim
from agent_memory.core import window
from agent_memory.core.fitting import Fitting
from agent_memory.core.shapes import leads, pairs, role_of, shape_of
from agent_memory.core.shortening import Shortener
from agent_memory.core.window import (
    Cut,
    apply,
    choose_cut,
    guarded,
    is_user,
    passes,
    snap,
    turns,
    units,
    unshown,
    visible,
)
from agent_memory.strategies import Window
from tests.histories import (
    COUNTER,
    PLENTY,
    call,
    counted,
    histories,
    least,
    log_of,
    long_turn,
    result,
    torn,
)
from tests.provider_logs import Logs

U = {"role": "user", "content": "question"}
A = {"role": "assistant", "content": "answer"}
S = {"role": "system", "content": "rules"}


def entries_of(messages: Sequence[Any], prices: Sequence[int] = (10,)) -> list[Entry]:
    prices_left = iter(prices * len(messages))
    return log_of(messages, lambda message: next(prices_left))


def logs() -> st.SearchStrategy[list[Entry]]:
    return st.builds(entries_of, histories(), st.lists(st.integers(1, 200), min_size=1, max_size=9))


def seqs(entries: Sequence[Entry]) -> list[int]:
    return [entry.seq for entry in entries]


def cost(entries: Sequence[Entry]) -> int:
    return sum(entry.tokens for entry in entries if not entry.message.is_system)


def groups_of(entries: Sequence[Entry]) -> tuple[list[set[int]], set[int]]:
    """Return the seqs of each group of calls and results, and of the calls without a result."""
    shapes = [shape_of(entry.message) for entry in entries]
    answered = pairs(shapes)
    groups: list[set[int]] = []
    for answer, asked in answered.items():
        both = {entries[answer[0]].seq, entries[asked[0]].seq}
        touching = [group for group in groups if group & both]
        groups = [group for group in groups if not group & both] + [both.union(*touching)]
    called = set(answered.values())
    return groups, {
        entry.seq
        for place, entry in enumerate(entries)
        if any((place, at) not in called for at in range(len(shapes[place].calls)))
    }


def pending(entries: Sequence[Entry]) -> list[int]:
    """Return the calls that wait for a result: nothing that the model or the user did follows."""
    groups, unanswered = groups_of(entries)
    results = {e.seq for e in entries if shape_of(e.message).answers or says(e)}
    calls = {e.seq for e in entries if shape_of(e.message).calls}
    rounds = [
        max((seq for seq in results if seq < call), default=0)
        for group in groups
        if not group & unanswered
        for call in group & calls
    ]
    last = max([*rounds, *(e.seq for e in entries if says(e))], default=0)
    return [seq for seq in sorted(unanswered) if seq >= last]


def says(entry: Entry) -> bool:
    return role_of(entry.message) in ("user", "assistant") and any(shape_of(entry.message).says)


def legal_starts(entries: Sequence[Entry]) -> list[int]:
    """Return the seqs after which a cut splits no group and loses no pending call or reasoning."""
    waiting = set(pending(entries))
    groups = [group for group in groups_of(entries)[0] if not group & waiting]
    shown = visible(entries, was_cut=False)
    first_pending = min(pending(entries), default=len(entries) + 1)
    return [
        entry.seq
        for entry in entries
        if entry.seq < first_pending
        and not leads(entry.message)
        and not torn([e for e in shown if e.seq > entry.seq])
        # a result that belongs to an older call must not stay without it
        and not torn([e for e in shown if e.seq <= entry.seq])
        # both halves may have text, and would stand alone
        and not any(min(group) <= entry.seq < max(group) for group in groups)
    ]


def legal_cuts(entries: Sequence[Entry]) -> list[Cut]:
    """Return every cut that the rules allow, by brute force."""
    shown = visible(entries, was_cut=False)
    found: list[Cut] = []
    for start in legal_starts(entries):
        after = [entry for entry in shown if entry.seq > start]
        before = [entry for entry in entries if entry.seq <= start and is_user(entry)]
        if not after:
            continue
        if is_user(after[0]):
            found.append(Cut(start))
        elif before:
            found.append(Cut(start, (before[-1].seq,)))
        elif not any(is_user(entry) for entry in after):
            found.append(Cut(start))
    return [cut for cut in found if len(apply(entries, cut)) < len(entries)]


@given(logs(), st.booleans())
def test_visible_shows_whole_groups_in_order(entries: list[Entry], was_cut: bool) -> None:
    """Wrong: the window shows an orphan, an unfinished call, a system message, or another order."""
    shown = visible(entries, was_cut=was_cut)
    assert torn(shown) == []
    assert seqs(shown) == sorted(set(seqs(shown)) & set(seqs(entries)))
    assert not any(entry.message.is_system for entry in shown)
    users = [entry.seq for entry in shown if is_user(entry)]
    if was_cut and users:
        late = [group for group in groups_of(shown)[0] if max(group) >= users[0]]
        assert {seq for seq in seqs(shown) if seq < users[0]} <= set().union(*late)


@given(logs())
def test_visible_hides_nothing_else(entries: list[Entry]) -> None:
    """Wrong: a plain message is left out of a window that was never cut."""
    plain = [one.seq for one in entries if says(one) and not shape_of(one.message).calls]
    assert set(plain) <= set(seqs(visible(entries, was_cut=False)))


def test_visible_pairs_by_id_and_format() -> None:
    """Wrong: results out of order or between other messages lose their call."""
    entries = entries_of([U, call(["a", "b"]), U, result("b"), A, result("a"), U])
    assert visible(entries, was_cut=False) == entries
    entries = entries_of([U, call(["a"]), U, call(["a"]), result("a"), U, call(["a"]), result("a")])
    assert seqs(visible(entries, was_cut=False)) == [1, 3, 4, 5, 6, 7, 8]
    raw = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    entries = entries_of([U, {"raw": raw, "format": "openai.responses"}, result("a")])
    assert visible(entries, was_cut=False) == entries


def test_visible_omits_unpaired_calls_and_results() -> None:
    """Wrong: a call or result is shown alone, or those without ids count as a pair."""
    nameless = {"role": "assistant", "content": None, "tool_calls": [{"type": "function"}]}
    messages = [
        U,
        call(["a", "b"]),
        result("a"),
        U,
        result("stray"),
        nameless,
        {"role": "tool", "content": "names no call"},
        call(["None"]),
        {"role": "tool", "content": "names no call", "tool_call_id": None},
        A,
    ]
    assert seqs(visible(entries_of(messages), was_cut=False)) == [1, 2, 3, 4, 10]


@given(logs(), st.integers(1, 1500), st.none() | st.integers(1, 8))
def test_a_cut_splits_no_group_and_begins_with_a_user(
    entries: list[Entry], keep: int, keep_messages: int | None
) -> None:
    """Wrong: a cut leaves half a group, loses the turn's question, or removes a pending call."""
    cut = choose_cut(entries, keep, keep_messages)
    if cut is None:
        return
    assert cut.start in legal_starts(entries)
    kept = apply(entries, cut)
    assert len(kept) < len(entries)
    before = set(seqs(visible(entries, was_cut=False)))
    assert torn([entry for entry in kept if entry.seq in before]) == []
    assert set(pending(entries)) <= set(seqs(kept))
    shown = visible(kept, was_cut=True)
    assert shown
    gone = [entry for entry in entries if entry.seq <= cut.start and is_user(entry)]
    if any(is_user(entry) for entry in shown) or gone:
        assert is_user(shown[0])


@given(logs(), st.integers(1, 1500), st.none() | st.integers(1, 8))
def test_a_cut_keeps_within_bounds_whenever_a_legal_one_does(
    entries: list[Entry], keep: int, keep_messages: int | None
) -> None:
    """Wrong: a cut keeps too much although another would fit, or no cut is found."""
    shown = set(seqs(visible(entries, was_cut=False)))

    def fits(cut: Cut) -> bool:
        kept = apply(entries, cut)
        count = sum(entry.seq in shown for entry in kept)
        return cost(kept) <= keep and (keep_messages is None or count <= keep_messages)

    possible = legal_cuts(entries)
    chosen = choose_cut(entries, keep, keep_messages)
    assert (chosen is None) == (not possible)
    if chosen is not None:
        assert fits(chosen) or not any(map(fits, possible))


@given(logs(), st.integers(0, 60), st.lists(st.integers(1, 60), max_size=3))
def test_no_strategy_takes_the_newest_step_away(
    entries: list[Entry], start: int, pinned: list[int]
) -> None:
    """Wrong: a third-party strategy removes the newest message, its call, or its question."""
    cut = guarded(entries, Cut(start, tuple(pinned)))
    shown = visible(entries, was_cut=False)
    assert cut.start <= start
    if not shown:
        assert cut == Cut(start, tuple(pinned))
        return
    newest = next(unit for unit in units(shown) if unit[-1] == shown[-1])
    kept = apply(entries, cut)
    assert all(entry in kept for entry in newest)
    users = [entry for entry in entries if is_user(entry) and entry.seq <= newest[0].seq]
    assert users[-1:] == [entry for entry in kept if entry in users[-1:]]


@given(logs())
def test_units_are_the_groups(entries: list[Entry]) -> None:
    """Wrong: a call is separated from its results, or plain messages are grouped."""
    shown = visible(entries, was_cut=False)
    found = units(shown)
    assert sorted(entry.seq for unit in found for entry in unit) == seqs(shown)
    assert all(torn(unit) == [] for unit in found)
    assert all(len(unit) == 1 for unit in found if is_user(unit[0]))


def test_unpaired_calls_and_results_are_counted() -> None:
    """Wrong: a pending call or a stray result is left out without a warning."""
    entries = entries_of([S, U, call(["a", "b"]), result("a"), result("stray"), A])
    assert unshown(entries) == (1, 1)
    assert unshown(entries_of([U, call(["a", "b"]), U])) == (2, 0)
    whole = entries_of([S, U, call(["a"]), result("a")])
    assert unshown(whole) == (0, 0)


@given(logs(), st.integers(0, 60))
def test_snap_finds_the_last_legal_place(entries: list[Entry], start: int) -> None:
    """Wrong: a custom strategy's cut splits a group, or moves further than necessary."""
    assert snap(entries, start) == max((s for s in legal_starts(entries) if s <= start), default=0)


def test_an_empty_user_message_ends_no_turn() -> None:
    """Wrong: a pending call is cut away because of an empty user message after it."""
    call = {"role": "assistant", "content": None, "function_call": {"name": "f"}}
    assert snap(entries_of([call, {"role": "user", "content": ""}]), 1) == 0


@given(logs())
def test_turns_are_whole_and_complete(entries: list[Entry]) -> None:
    """Wrong: a turn lacks its tool results, begins late, or a message is in no turn."""
    found = turns(entries)
    assert [entry for turn in found for entry in turn] == visible(entries, was_cut=False)
    for turn in found:
        assert torn(turn) == []
    assert all(is_user(turn[0]) for turn in found[1:])


def test_a_window_is_cut_at_turns() -> None:
    """Wrong: a cut falls inside a turn although cutting at a turn would use most of the limits."""
    assert choose_cut(entries_of([U, A, U, A, A, U, A, A]), 30) == Cut(5)
    entries = entries_of([*long_turn(50), U, A])
    cut = choose_cut(entries, 500)
    assert cut.pinned == (1,)
    assert 400 < cost(apply(entries, cut)) <= 500
    entries = entries_of([U, A, A, U, call(["a"]), result("a"), A], (10, 90, 90, 10, 10, 10, 10))
    assert choose_cut(entries, 100) == Cut(3)
    entries = entries_of([S, A, U, A])
    assert seqs(visible(entries, was_cut=False)) == [2, 3, 4]
    assert seqs(visible(entries, was_cut=True)) == [3, 4]
    assert visible([], was_cut=True) == []
    assert choose_cut([], 10) is None
    assert turns([]) == []
    assert snap([], 5) == 0
    entries = entries_of([call(["a"]), U, result("a"), A])
    assert visible(entries, was_cut=True) == entries
    entries = entries_of([call(["a"]), A, U, result("a")])
    assert seqs(visible(entries, was_cut=True)) == [1, 3, 4]
    entries = entries_of([A, call(["a"]), result("a"), U])
    assert seqs(visible(entries, was_cut=True)) == [4]
    assert choose_cut(entries_of([U, A]), 15) is None
    assert choose_cut(entries_of([U, call(["a"]), result("a")]), 25) is None


def test_a_very_long_turn_is_cut_with_its_question_pinned() -> None:
    """Wrong: a turn of 200 rounds is removed as a whole, or kept as a whole."""
    entries = entries_of(long_turn(200))
    cut = choose_cut(entries, 1000)
    assert cut is not None
    kept = apply(entries, cut)
    assert cut.pinned == (1,)
    assert 900 < cost(kept) <= 1000
    assert visible(kept, was_cut=True) == kept
    again = choose_cut(kept, 500)
    assert again.pinned == (1,)
    assert again.start > cut.start


def test_pending_calls_are_never_cut() -> None:
    """Wrong: a pending call is cut away, which makes its result an orphan."""
    entries = entries_of([U, A, U, call(["a", "b"]), result("a")], (10, 10, 10, 500, 500))
    assert choose_cut(entries, 50) == Cut(2)
    finished = entries_of([*(e.message for e in entries), result("b")])
    assert visible(apply(finished, Cut(2)), was_cut=True) == finished[2:]
    rounds = [U, call(["a"]), result("a"), call(["b"]), result("b")]
    assert choose_cut(entries_of(rounds, (40, 5, 5, 30, 40)), 100) == Cut(3, (1,))
    assert choose_cut(entries_of(rounds, (999, 5, 5, 5, 5)), 10) == Cut(3, (1,))
    # a system message does not end the wait for a result
    assert snap(entries_of([U, call(["a"]), S, call(["b"]), result("b")]), 3) == 1


def test_a_result_without_its_siblings_is_shown_after_the_next_message() -> None:
    """Wrong: if one of two parallel results never comes, no context shows the other one. Or it is
    shown while the agent still waits for both."""
    begun = [U, call(["a", "b"]), result("a")]

    def shown(*more: Any) -> list[int]:
        return seqs(visible(entries_of([*begun, *more]), was_cut=False))

    assert shown() == [1]
    assert shown(S) == [1]
    assert shown(U) == [1, 2, 3, 4]
    assert shown(A) == [1, 2, 3, 4]
    assert shown(call(["c"])) == [1]
    assert shown(call(["c"]), result("c")) == [1, 2, 3, 4, 5]
    assert shown(call(["c", "d"]), result("c")) == [1]
    assert shown(call(["c", "d"]), result("c"), A, result("b")) == [1, 2, 3, 4, 5, 6, 7]
    rounds = [one for name in "cdefg" for one in (call([name]), result(name))]
    assert choose_cut(entries_of([*begun, *rounds]), 60) == Cut(9, (1,))


def item(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"raw": {"role": role, "content": [*blocks]}, "format": "anthropic.messages"}


def use(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "f", "input": {}}


def given_result(name: str, text: str = "1") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": text}


def test_several_results_in_one_item_are_shown_or_hidden_together() -> None:
    """Wrong: an item that shows as several messages hides its calls."""

    def shown(*messages: Any) -> list[int]:
        return seqs(visible(entries_of(messages), was_cut=False))

    asks = item("assistant", use("a"), use("b"))
    answers = item("user", given_result("a"), given_result("b"), {"type": "text", "text": "Go on."})
    assert shown(U, asks, answers, A) == [1, 2, 3, 4]
    assert shown(U, asks, item("user", given_result("a")), A) == [
        1,
        2,
        3,
        4,
    ]  # one result is missing
    assert shown(U, answers, A) == [1, 2, 3]  # text next to the results stays
    apart = item("assistant", use("a")), item("assistant", use("b"))
    assert shown(U, *apart, answers, A) == [1, 2, 3, 4, 5]
    assert shown(U, item("assistant", use("a"), use("c")), apart[1], answers, A) == [1, 2, 3, 4, 5]
    log = entries_of([U, *apart, answers, A, U])
    assert [snap(log, start) for start in (1, 2, 3, 4, 5)] == [1, 1, 1, 4, 5]


@pytest.mark.parametrize("seed", range(40))
def test_a_cached_layout_extends_to_the_layout_of_a_longer_window(seed: int) -> None:
    """Wrong: a cached layout is used for a window that continues differently."""
    random = Random(seed)
    with AgentMemory(store="memory://", blocks=[]) as memory:
        for message in Logs(seed, few_ids=seed % 2 == 0).log(30):
            memory.update("s", message)
        entries = memory.history("s")
    other = [*entries]
    random.shuffle(other)
    for end in random.choices(range(len(entries) + 1), k=60):
        said = entries[:end] + random.choice(([], other[:2]))
        assert window._layout(said) == window._laid_out(said)


def test_a_call_with_an_earlier_result_may_get_a_later_one() -> None:
    """Wrong: a cached layout pairs a call with another result than a new process does."""
    entries = entries_of([U, result("a"), call(["a"]), U, result("a")])
    for end in (4, 5):
        assert window._layout(entries[:end]) == window._laid_out(entries[:end])


def fit(entries: Sequence[Entry], room: int, most: int | None = None) -> list[Entry]:
    found = Fitting(Shortener(COUNTER), room, 0, max(1, room // 2), most).fit(entries)
    return [] if found is None else found.entries


def counted_logs() -> st.SearchStrategy[list[Entry]]:
    return st.builds(counted, histories())


def test_a_question_next_to_a_result_is_shown_once() -> None:
    """Wrong: a shortened turn shows the text next to a tool result twice."""
    said = given_result("a", "word " * 300), {"type": "text", "text": "Go on."}
    kept = fit(counted([item("assistant", use("a")), item("user", *said), A]), 150)
    chat = [view for entry in kept for view in entry.message.views()]
    assert [view["role"] for view in chat] == ["assistant", "tool", "user", "assistant"]


@given(counted_logs(), st.integers(2, 60))
def test_fit_never_passes_its_messages(entries: list[Entry], most: int) -> None:
    """Wrong: too many messages are kept although whole groups would fit, or half a group is."""
    shown = visible(entries, was_cut=False)
    kept = fit(shown, PLENTY, most)
    assert len(kept) <= max(most, least(shown))
    assert torn(kept) == []
    assert kept == [entry for entry in shown if entry in kept]
    if len(shown) <= most:
        assert kept == shown
    else:
        assert kept
        assert kept[-1] == shown[-1]
        # a user message inside a group of calls is no place to cut
        users = [entry.seq for entry in kept if is_user(entry)]
        if kept != shown and users:
            assert units(kept)[0][-1].seq >= users[0]


@given(counted_logs(), st.integers(0, 700), st.integers(2, 60))
def test_both_bounds_hold_at_once(entries: list[Entry], room: int, most: int) -> None:
    """Wrong: one of two limits is ignored."""
    shown = visible(entries, was_cut=False)
    kept = fit(shown, room, most)
    assert sum(entry.tokens for entry in kept) <= room
    # a shortened message of a provider may become several
    assert len({entry.seq for entry in kept}) <= max(most, least(shown))


@given(counted_logs(), st.integers(0, 700))
def test_without_messages_nothing_changes(entries: list[Entry], room: int) -> None:
    """Wrong: a limit that is not set shortens a context."""
    shown = visible(entries, was_cut=False)
    assert fit(shown, room, None) == fit(shown, room, len(shown) + 1)


@given(st.integers(2, 10_000), st.one_of(st.none(), st.integers(1, 20_000)))
def test_a_cut_leaves_room_for_new_messages(most: int, wanted: int | None) -> None:
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


def test_fit_keeps_groups_and_shortens_long_turns_at_the_limit() -> None:
    """Wrong: results lose their call, or a long turn shows all its steps."""
    ids = ["a", "b", "c", "d"]
    entries = counted([U, A, U, call(ids), *map(result, ids)])
    assert [entry.seq for entry in fit(entries, PLENTY, 3)] == [3, 4, 5, 6, 7, 8]
    assert [entry.seq for entry in fit(entries[2:], PLENTY, 3)] == [3, 4, 5, 6, 7, 8]
    steps = [step for i in "abcdef" for step in (call([i]), result(i))]
    entries = counted([U, *steps])
    assert [entry.seq for entry in fit(entries, PLENTY, 6)] == [1, 10, 11, 12, 13]
    entries = counted([U, A, U])
    assert not passes(entries, 3)
    assert passes(entries, 2)
    assert not passes(entries, None)


@given(counted_logs(), st.integers(2, 40))
def test_importance_keeps_within_the_messages(entries: list[Entry], most: int) -> None:
    """Wrong: important turns are kept in addition to a full window."""
    if len(visible(entries, was_cut=False)) <= most:
        return
    cut = Trim(by="importance").cut(Window(tuple(entries), PLENTY, most)) or Cut(0)
    kept = visible(apply(entries, cut), was_cut=True)
    assert len(kept) <= max(most, least(entries))
