"""Spending limits, quiet periods and usage: pure functions."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.usage import SpendingLimit, Spent, Usage, day_of, exceeded, seconds_left
from agent_memory.engine.processing.session_work import quiet_seq

NUMBERS = st.integers(0, 50)
MORE = st.builds(Spent, st.just(1), NUMBERS, NUMBERS.map(float))
LIMITS = st.builds(
    SpendingLimit,
    calls=st.none() | NUMBERS,
    tokens=st.none() | NUMBERS,
    cost=st.none() | NUMBERS.map(float),
)
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.timezones())
GAPS = st.lists(st.integers(0, 100), min_size=1, max_size=20)
BEGUN = datetime(2024, 1, 1, tzinfo=UTC)


@given(LIMITS, st.lists(MORE, max_size=60))
def test_no_limit_is_passed_in_any_order(limit: SpendingLimit, asked: list[Spent]) -> None:
    """Wrong: a limit is exceeded, or a call within it is refused."""
    spent = Spent()
    for more in asked:
        after = spent + more
        fits = (
            (limit.calls is None or after.calls <= limit.calls)
            and (limit.tokens is None or after.tokens <= limit.tokens)
            and (limit.cost is None or after.cost <= limit.cost)
        )
        assert (exceeded(limit, spent, more) is None) == fits
        spent = after if fits else spent


@given(MORE, MORE)
def test_a_refunded_call_is_not_counted(one: Spent, other: Spent) -> None:
    """Wrong: a refunded call is still partly counted."""
    assert one + other - other == one


@given(MOMENTS)
def test_a_day_ends_at_midnight_utc(now: datetime) -> None:
    """Wrong: the day ends by the machine's time zone, or waiting work wakes a day late."""
    left = seconds_left(now)
    assert 0 < left <= 86_400
    then = now.astimezone(UTC) + timedelta(seconds=left)
    assert day_of(then) != day_of(now)
    assert day_of(then - timedelta(milliseconds=1)) == day_of(now)


@given(GAPS, st.integers(1, 100), st.integers(0, 200))
def test_what_a_pause_followed_is_absorbed(gaps: list[int], pause: int, since: int) -> None:
    """Wrong: a message before a pause is not absorbed, or a running conversation is cut."""
    at, said = BEGUN, list[tuple[int, datetime]]()
    for seq, gap in enumerate(gaps, 1):
        at += timedelta(seconds=gap)
        said.append((seq, at))
    between = max((seq for seq, gap in enumerate(gaps) if seq and gap >= pause), default=0)
    assert quiet_seq(said, None, pause) == between
    later = quiet_seq(said, at + timedelta(seconds=since), pause)
    assert later == (len(said) if since >= pause else between)


def test_a_sum_with_an_unknown_cost_is_unknown() -> None:
    """Wrong: a sum with an unknown cost looks complete."""
    assert (Usage(calls=1, cost=0.5) + Usage(calls=2, cost=0.25)).cost == 0.75
    unknown = Usage(calls=1, cost=0.5) + Usage(calls=2, cost=None, estimated=1)
    assert (unknown.calls, unknown.cost, unknown.estimated) == (3, None, 1)
