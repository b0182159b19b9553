"""What is to be absorbed now, and when to look again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.records import Head, empty_head
from agent_memory.engine.processing.session_work import idle_wait, target_seq

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
        empty_head("s", None, NOON),
        end=end,
        total=totals[-1],
        start=draw(st.integers(0, end)),
    )
    return head, draw(st.integers(0, end)), totals


@given(logs())
def test_on_overflow_what_left_the_window(log: tuple[Head, int, list[int]]) -> None:
    """Wrong: what the window still shows is absorbed, or what left it waits."""
    head, cursor, _ = log
    assert target_seq(head, cursor, "overflow", never) == head.start


@given(logs())
def test_at_every_update_all(log: tuple[Head, int, list[int]]) -> None:
    """Wrong: the newest message waits for the next."""
    head, cursor, _ = log
    assert target_seq(head, cursor, "every_update", never) == head.end


@given(logs(), st.integers(1, 300))
def test_by_tokens(log: tuple[Head, int, list[int]], tokens: int) -> None:
    """Wrong: more tokens wait than were asked for, or what left the window waits for more."""
    head, cursor, totals = log
    upto = target_seq(head, cursor, tokens, totals.__getitem__)
    waiting = totals[-1] - totals[cursor]
    if cursor < head.end and waiting >= tokens:
        assert upto == head.end
    else:
        assert upto == head.start


@given(logs(), st.sampled_from(["overflow", "every_update"]) | st.integers(1, 300))
def test_a_block_that_is_up_to_date_has_nothing_to_do(
    log: tuple[Head, int, list[int]], absorb: Any
) -> None:
    """Wrong: a session is looked at for ever, or the log is read in vain."""
    head, _, _ = log
    assert target_seq(head, head.end, absorb, never) <= head.end


@given(MOMENTS, MOMENTS, MINUTES)
def test_idle_after_so_long_a_silence(newest: datetime, now: datetime, minutes: float) -> None:
    """Wrong: a session is absorbed while it goes on, or is looked at too early and too often."""
    wait = idle_wait(newest, now, minutes)
    assert 0 <= wait <= minutes * 60
    if now >= newest:
        silent = (now - newest).total_seconds()
        assert (wait == 0) == (silent >= minutes * 60)
        assert wait == 0 or wait + silent == pytest.approx(minutes * 60)


@given(st.floats(0, 1e6), MINUTES)
def test_a_clock_that_is_ahead(ahead: float, minutes: float) -> None:
    """Wrong: messages dated ahead keep a session from ever counting as idle, or for too long."""
    assert idle_wait(NOON + timedelta(seconds=ahead), NOON, minutes) == minutes * 60
