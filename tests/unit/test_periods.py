"""Dates from models, periods, and the times of findings."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.timestamps import BEGINNING
from agent_memory.ltm_blocks.extractive.history.periods import (
    END,
    Period,
    day_of,
    parse,
    without,
    written,
)

DAY = timedelta(days=1)


def at(date: str) -> datetime:
    return datetime.fromisoformat(date).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("date", "begin", "end"),
    [
        ("2024-03-09", "2024-03-09", "2024-03-10"),
        ("2024-3-9", "2024-03-09", "2024-03-10"),
        ("2024-03", "2024-03-01", "2024-04-01"),
        ("2024-12", "2024-12-01", "2025-01-01"),
        ("2023-02", "2023-02-01", "2023-03-01"),
        ("2024-02", "2024-02-01", "2024-03-01"),
        ("2024", "2024-01-01", "2025-01-01"),
        ("2024-02-29", "2024-02-29", "2024-03-01"),
        ("2024-12-31", "2024-12-31", "2025-01-01"),
        ("2024-03-09T23:59:59+02:00", "2024-03-09", "2024-03-10"),
        ("2024-03-09 23:59", "2024-03-09", "2024-03-10"),
        (" 2024-03 \n", "2024-03-01", "2024-04-01"),
        ("0001", "0001-01-01", "0002-01-01"),
        ("9998", "9998-01-01", "9999-01-01"),
    ],
)
def test_a_date_names_all_of_its_time(date: str, begin: str, end: str) -> None:
    """Wrong: "until March" ends on March 1, or every month has 30 days."""
    assert parse(date) == (at(begin), at(end))


@pytest.mark.parametrize(
    "date",
    [
        None, "", " ", "soon", "March 2024", "31.12.2024", "24-03", "2024-02-31", "2023-02-29",
        "2024-13", "2024-00", "2024-01-00", "2024-1-1-1", "20240309", "2024/03/09", "2024-03-09x",
        "2024-", "-2024", "0000", "9999", "9999-12", "9999-12-31", "2024-W10", "2024-03-1000",
    ],
)  # fmt: skip
def test_what_is_no_date_counts_as_not_given(date: str | None) -> None:
    """Wrong: invalid text as a date raises, or becomes another day."""
    assert parse(date) is None


@given(st.text(max_size=30) | st.from_regex(r"\d{4}(-\d\d?(-\d\d?)?)?", fullmatch=True))
def test_no_date_of_a_model_raises(date: str) -> None:
    """Wrong: a model's text fails the batch, or gives a period that ends before it begins."""
    found = parse(date)
    assert found is None or found[0] < found[1]


def test_day_of_is_the_day_where_it_was_said() -> None:
    """Wrong: an evening message from New York is dated by its UTC day."""
    evening = datetime(2024, 3, 9, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    assert day_of(evening) == at("2024-03-09")


@pytest.mark.parametrize(
    ("begin", "end", "text"),
    [
        ("2024-05-07", "2024-05-08", "2024-05-07"),
        ("2024-05-01", "2024-06-01", "2024-05"),
        ("2024-01-01", "2025-01-01", "2024"),
        ("2024-05-07", "2024-05-10", "2024-05-07 to 2024-05-09"),
        ("2024-05-01", "2024-07-01", "2024-05 to 2024-06"),
        ("2023-01-01", "2024-04-01", "2023 to 2024-03"),
        ("2023-05-01", "2023-05-08", "2023-05-01 to 2023-05-07"),
        ("2024-01-01", "2024-01-02", "2024-01-01"),
        ("2024-05-07", None, "since 2024-05-07"),
        ("2024-05-01", None, "since 2024-05"),
        ("2019-01-01", None, "since 2019"),
        (None, "2024-05-08", "until 2024-05-07"),
        (None, "2024-06-01", "until 2024-05"),
        (None, "2024-01-01", "until 2023"),
        (None, None, ""),
    ],
)
def test_times_as_people_write_them(begin: str | None, end: str | None, text: str) -> None:
    """Wrong: one day is shown as two, or a year as its first day."""
    assert written(begin and at(begin), end and at(end)) == text


@given(st.dates(datetime(1000, 1, 1).date(), datetime(9998, 12, 30).date()))
def test_a_day_is_written_as_itself(day: Any) -> None:
    """Wrong: a date is shown as another."""
    begin = at(day.isoformat())
    assert written(begin, begin + DAY) == day.isoformat()
    assert parse(written(begin, None).removeprefix("since "))[0] == begin


_MOMENTS = [at("2024-01-01") + DAY * n for n in range(12)]
_PERIODS = st.tuples(st.sampled_from(_MOMENTS), st.sampled_from(_MOMENTS))


@given(_PERIODS, st.lists(_PERIODS, max_size=6))
def test_without_leaves_just_the_rest(period: Period, others: list[Period]) -> None:
    """Wrong: subtracting periods leaves a moment too many or too few, or gives empty or unordered
    periods."""
    left = without(period, others)
    assert all(begin < end for begin, end in left)
    assert all(one[1] <= other[0] for one, other in pairwise(left))
    for moment in _MOMENTS:
        taken = any(begin <= moment < end for begin, end in others)
        inside = period[0] <= moment < period[1]
        assert any(begin <= moment < end for begin, end in left) == (inside and not taken)


def test_without_end() -> None:
    """Wrong: periods without a beginning or end cannot be subtracted."""
    day = at("2024-01-01")
    assert without((BEGINNING, END), [(day, day + DAY)]) == [(BEGINNING, day), (day + DAY, END)]
    assert without((day, END), [(BEGINNING, END)]) == []
    assert without((day, day), []) == []
