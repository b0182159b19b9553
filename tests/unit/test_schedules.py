"""When sessions are due, fairness among users, pauses after failures, and what may expire."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.records import DeadLetter, Head, Scope, Summary
from agent_memory.engine.processing.compaction import safe_to_expire
from agent_memory.engine.processing.session_work import idle_wait, target_seq
from agent_memory.engine.processing.worker import FairQueue
from agent_memory.engine.recall.runner import LONGEST_REST, Backoff
from agent_memory.stores.kernel.rules import in_turns

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
MOMENTS = st.timedeltas(timedelta(days=-400), timedelta(days=400)).map(lambda delta: NOON + delta)
MINUTES = st.floats(0.01, 100_000)


def never(seq: int) -> int:
    raise AssertionError(f"the total at {seq} does not matter here")


@st.composite
def logs(draw: st.DrawFn) -> tuple[Head, int, list[int]]:
    """A head, a cursor, and the running totals of the log, from 0 on."""
    totals = [0, *accumulate(draw(st.lists(st.integers(0, 20), max_size=30)))]
    end = len(totals) - 1
    head = replace(
        Head("s", None, created_at=NOON), end=end, total=totals[-1], start=draw(st.integers(0, end))
    )
    return head, draw(st.integers(0, end)), totals


@given(logs())
def test_only_overflowed_messages_are_absorbed(log: tuple[Head, int, list[int]]) -> None:
    """Wrong: messages in the window are absorbed, or messages that left it are not."""
    head, cursor, _ = log
    assert target_seq(head, cursor, "overflow", never) == head.start


@given(logs())
def test_at_every_update_all(log: tuple[Head, int, list[int]]) -> None:
    """Wrong: the newest message is absorbed only with the next one."""
    head, cursor, _ = log
    assert target_seq(head, cursor, "every_update", never) == head.end


@given(logs(), st.integers(1, 300))
def test_pending_tokens_stay_limited(log: tuple[Head, int, list[int]], tokens: int) -> None:
    """Wrong: more tokens are pending than the setting allows, or overflowed messages wait."""
    head, cursor, totals = log
    upto = target_seq(head, cursor, tokens, totals.__getitem__)
    waiting = totals[-1] - totals[cursor]
    if cursor < head.end and waiting >= tokens:
        assert upto == head.end
    else:
        assert upto == head.start


@given(logs(), st.sampled_from(["overflow", "every_update"]) | st.integers(1, 300))
def test_a_current_block_has_nothing_to_do(log: tuple[Head, int, list[int]], absorb: Any) -> None:
    """Wrong: a block that is up to date gets more work, or the log is read for it."""
    head, _, _ = log
    assert target_seq(head, head.end, absorb, never) <= head.end


@given(MOMENTS, MOMENTS, MINUTES)
def test_idle_after_so_long_a_silence(newest: datetime, now: datetime, minutes: float) -> None:
    """Wrong: an active session counts as idle, or an idle one is checked too early or too often."""
    wait = idle_wait(newest, now, minutes)
    assert 0 <= wait <= minutes * 60
    if now >= newest:
        silent = (now - newest).total_seconds()
        assert (wait == 0) == (silent >= minutes * 60)
        assert wait == 0 or wait + silent == pytest.approx(minutes * 60)


@given(st.floats(0, 1e6), MINUTES)
def test_a_clock_that_is_ahead(ahead: float, minutes: float) -> None:
    """Wrong: messages dated ahead keep a session from becoming idle in time."""
    assert idle_wait(NOON + timedelta(seconds=ahead), NOON, minutes) == minutes * 60


_BEGUN = datetime(2024, 1, 1, tzinfo=UTC)
_USERS = st.sampled_from([None, None, "a", "b", "0", "1"])  # some names equal a session's


@given(st.lists(st.tuples(st.integers(0, 9), _USERS), max_size=25))
def test_each_owner_has_a_turn_before_any_has_another(drawn: list[tuple[int, str | None]]) -> None:
    """Wrong: a user with many sessions delays other users, or the longest wait comes last."""
    since = {str(n): at for n, (at, _) in enumerate(drawn)}
    heads = [Head(str(n), user, created_at=_BEGUN) for n, (_, user) in enumerate(drawn)]

    def owner(head: Head) -> str:
        return Scope(head.user_id, head.session_id).owner

    order = in_turns(sorted(heads, key=lambda head: since[head.session_id]), owner)

    assert sorted(order, key=heads.index) == heads
    turns: Counter[str] = Counter()
    keys = []
    for head in order:
        keys.append((turns[owner(head)], since[head.session_id]))
        turns[owner(head)] += 1
    assert keys == sorted(keys)
    for name in turns:
        mine = [since[head.session_id] for head in order if owner(head) == name]
        assert mine == sorted(mine)


USERS = ["ann", "bob", "cas", "dan"]
SESSIONS = [f"{user}-{n}" for user in USERS for n in range(5)]
STEPS = st.lists(st.sampled_from(SESSIONS) | st.none(), max_size=60)
"""Sessions that are added, in order; None takes one."""


def owner(session: str) -> str:
    return session.split("-")[0]


@given(STEPS)
def test_queues_behave_as_their_model(steps: list[str | None]) -> None:
    """Wrong: a session is queued twice, lost, given to another user, or overtakes another."""
    queue, waiting = FairQueue(), list[str]()
    for session in steps:
        if session is not None:
            queue.add(session, owner(session))
            waiting += [session] if session not in waiting else []
        else:
            taken = queue.take()
            assert (taken is None) == (not waiting)
            if taken:
                first = next(one for one in waiting if owner(one) == taken[1])
                assert taken == (first, owner(first))
                waiting.remove(first)
        assert sorted(queue) == sorted(waiting)
        assert len(queue) == len(waiting)
        assert bool(queue) == bool(waiting)


@given(STEPS)
def test_nobody_waits_for_more_than_the_other_users(steps: list[str | None]) -> None:
    """Wrong: a user with many sessions delays other users."""
    queue, takes = FairQueue(), 0
    waiting: list[str] = []
    latest: dict[str, int] = {}
    for session in [*steps, *[None] * len(SESSIONS)]:
        if session is not None:
            queue.add(session, owner(session))
            if session not in waiting:
                waiting.append(session)
                place = sum(owner(one) == owner(session) for one in waiting)
                if place == 1:  # later users are served later
                    latest[session] = takes + len({owner(one) for one in waiting})
                else:
                    latest[session] = takes + place * len(USERS)
        elif taken := queue.take():
            takes += 1
            waiting.remove(taken[0])
            assert takes <= latest.pop(taken[0])
    assert not waiting


def test_a_waiting_session_keeps_its_place_in_the_queue() -> None:
    """Wrong: a session loses its place in the queue when it changes its user or is woken again."""
    queue = FairQueue()
    queue.add("s", "session:s")
    queue.add("t", "user:ann")
    queue.add("s", "user:bob")
    taken = [queue.take() for _ in range(3)]
    assert taken == [("s", "session:s"), ("t", "user:ann"), None]


def test_pauses_after_failures_grow_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an outage slows every call, or the pause after it never ends."""
    clock = [0.0]
    monkeypatch.setattr("agent_memory.engine.recall.runner.monotonic", lambda: clock[0])
    rests = Backoff()
    assert rests.idle("x")
    rests.failed("x")
    assert (rests.ready("x"), rests.idle("x")) == (True, False)
    for expected in (4, 8, 16, 32, 64, 128, 256, LONGEST_REST, LONGEST_REST):
        rests.failed("x")
        clock[0] += expected - 0.5
        assert not rests.ready("x")
        assert rests.ready("y")
        clock[0] += 0.5
        assert rests.ready("x")
    rests.failed("x")
    rests.succeeded("x")
    assert (rests.ready("x"), rests.idle("x")) == (True, True)


NAMES = ["x", "y", ("x", "s")]


@given(
    st.lists(
        st.tuples(st.sampled_from(["failed", "worked", "passes"]), st.sampled_from(NAMES))
        | st.tuples(st.just("passes"), st.floats(0, 500)),
        max_size=60,
    )
)
def test_pauses_apply_to_one_name_until_a_success(steps: list[tuple[str, object]]) -> None:
    """Wrong: a failure pauses another name, or a pause ends early, never, or not by a success."""
    clock, failures = 1000.0, Counter[object]()
    until: dict[object, float] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent_memory.engine.recall.runner.monotonic", lambda: clock)
        rests = Backoff()
        for step, what in steps:
            if step == "failed":
                rests.failed(what)
                failures[what] += 1
                if failures[what] > 1:
                    until[what] = clock + min(2.0 ** failures[what], LONGEST_REST)
            elif step == "worked":
                rests.succeeded(what)
                del failures[what]
                until.pop(what, None)
            elif isinstance(what, float):
                clock += what
            left = {name: max(0.0, until.get(name, 0.0) - clock) for name in NAMES}
            for name in NAMES:
                assert rests.seconds(name) == left[name] <= LONGEST_REST
                assert rests.ready(name) == (left[name] == 0)
                assert rests.idle(name) == (failures[name] == 0)
            assert rests.seconds(*NAMES) == max(left.values())
            assert rests.ready(*NAMES) == (max(left.values()) == 0)


def test_a_pause_never_exceeds_its_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: after thousands of failures the pause overflows or is forgotten."""
    monkeypatch.setattr("agent_memory.engine.recall.runner.monotonic", lambda: 0.0)
    rests = Backoff()
    for _ in range(2000):
        rests.failed("x")
    assert rests.seconds("x") == LONGEST_REST


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
def test_messages_expire_after_all_blocks_and_the_window_passed_them(
    head: Head, blocks: list[str], dead: list[DeadLetter], expected: int
) -> None:
    """Wrong: a message expires that a block or the window still needs, or none ever expires."""
    assert safe_to_expire(head, blocks, dead) == expected


@given(end=st.integers(1, 50), data=st.data())
def test_no_schedule_skips_a_message(end: int, data: st.DataObject) -> None:
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
