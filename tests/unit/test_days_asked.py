"""The days that a question asks about."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.retrieval.dates import Event, Period, event_of, period_of

TODAY = date(2025, 6, 4)  # a Wednesday


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("What did I do last weekend?", "2025-05-31", "2025-06-01"),
        ("What did I buy two weeks ago?", "2025-05-18", "2025-05-24"),
        ("Where was I yesterday?", "2025-06-03", "2025-06-03"),
        ("Who did I meet on Monday?", "2025-06-02", "2025-06-02"),
        ("What happened in March?", "2025-03-01", "2025-03-31"),
        ("What happened in December?", "2024-12-01", "2024-12-31"),
        ("What did I say on 2025-03-14?", "2025-03-14", "2025-03-14"),
        ("What did I eat on May 8th, 2023?", "2023-05-08", "2023-05-08"),
        ("How was our holiday in the summer of 2024?", "2024-06-01", "2024-08-31"),
        ("How was the winter? What did I read last winter?", "2024-12-01", "2025-02-28"),
        ("What did I spend last month?", "2025-05-01", "2025-05-31"),
        ("What did I read over the past three days?", "2025-06-01", "2025-06-04"),
        ("Where did we go in 2023?", "2023-01-01", "2023-12-31"),
        ("Was habe ich letzte Woche gekauft?", "2025-05-26", "2025-06-01"),
        ("Was habe ich vor zwei Tagen gegessen?", "2025-06-02", "2025-06-02"),
        ("¿Qué hice hace dos semanas?", "2025-05-18", "2025-05-24"),
        ("¿Qué compré en marzo?", "2025-03-01", "2025-03-31"),
        ("Qu'est-ce que j'ai fait la semaine dernière ?", "2025-05-26", "2025-06-01"),
        ("Qu'ai-je mangé il y a trois jours ?", "2025-06-01", "2025-06-01"),
    ],
)
def test_the_days_of_a_question(asked: str, first: str, last: str) -> None:
    """Wrong: a time that people name is passed over, or is another one."""
    assert period_of(asked, TODAY) == Period(date.fromisoformat(first), date.fromisoformat(last))


@pytest.mark.parametrize(
    "asked", ["What may I eat?", "What should I cook today?", "Where do I live?", "on 2025-02-30"]
)
def test_questions_without_a_time(asked: str) -> None:
    """Wrong: a word is taken for a time, or a day that does not exist raises."""
    assert period_of(asked, TODAY) is None


@pytest.mark.parametrize(
    ("asked", "event"),
    [
        ("What was my job before I moved?", Event(True, "I moved")),
        ("What have I read since my birthday?", Event(False, "my birthday")),
        ("What comes before lunch?", None),
    ],
)
def test_events_that_a_question_dates_by(asked: str, event: Event | None) -> None:
    """Wrong: "before I moved" is no time, or any "before" is one."""
    assert event_of(asked) == event


@given(
    st.dates(date(1, 6, 1), date(9998, 1, 1)),
    st.sampled_from(["last week", "4 months ago", "in March", "last winter", "99 years ago"]),
)
def test_every_day_has_periods(today: date, asked: str) -> None:
    """Wrong: at some day of the calendar a question raises, or its days begin in the future."""
    period = period_of(f"What did I do {asked}?", today)
    assert period is not None
    assert period.first <= period.last
    assert period.first <= today + timedelta(days=1)
