"""When a finding holds: expressions of time by the calendar, and unsupported ones."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry
from agent_memory.core.timestamps import BEGINNING
from agent_memory.ltm_blocks.extractive.history.claims import Kind
from agent_memory.ltm_blocks.extractive.history.fact import listed
from agent_memory.ltm_blocks.extractive.history.findings import Candidate, Rules, drafts, times
from agent_memory.ltm_blocks.extractive.history.history import facts_of
from agent_memory.ltm_blocks.extractive.history.periods import (
    END,
    Period,
    Precision,
    day_of,
    meant,
    parse,
    without,
    written,
)
from agent_memory.ltm_blocks.extractive.history.sources import SourceMessage, sources
from tests.unit.claiming import claim

WEDNESDAY = datetime(2023, 5, 10, 17, 30, tzinfo=UTC)
_FOUND = Candidate("Fact.", "user", "other", 1, "x", None, None, 1)


def at(date: str | None) -> datetime | None:
    return None if date is None else datetime.fromisoformat(date).replace(tzinfo=UTC)


def sources_of(*texts: str) -> list[SourceMessage]:
    messages = [Message(role="user", content=text) for text in texts]
    entries = [Entry("s", n, one, 1, n, "test", WEDNESDAY) for n, one in enumerate(messages, 1)]
    return sources(entries, ["user"])


@pytest.mark.parametrize(
    ("words", "first", "last"),
    [
        ("today", "2023-05-10", "2023-05-10"),
        ("this morning", "2023-05-10", "2023-05-10"),
        ("Yesterday", "2023-05-09", "2023-05-09"),
        ("just yesterday evening", "2023-05-09", "2023-05-09"),
        ("last night", "2023-05-09", "2023-05-09"),
        ("the day before yesterday", "2023-05-08", "2023-05-08"),
        ("tomorrow", "2023-05-11", "2023-05-11"),
        ("last week", "2023-05-01", "2023-05-07"),
        ("this week", "2023-05-08", "2023-05-14"),
        ("last weekend", "2023-05-06", "2023-05-07"),
        ("this past weekend", "2023-05-06", "2023-05-07"),
        ("next month", "2023-06-01", "2023-06-30"),
        ("last year", "2022-01-01", "2022-12-31"),
        ("last Friday", "2023-05-05", "2023-05-05"),
        ("Last Wednesday", "2023-05-03", "2023-05-03"),
        ("this Tuesday", "2023-05-09", "2023-05-09"),
        ("last Saturday night", "2023-05-06", "2023-05-06"),
        ("two days ago", "2023-05-08", "2023-05-08"),
        ("a week ago", "2023-05-01", "2023-05-07"),
        ("4 years ago", "2019-01-01", "2019-12-31"),
        ("fourteen years ago", "2009-01-01", "2009-12-31"),
        ("in two weeks", "2023-05-22", "2023-05-28"),
        ("last May", "2022-05-01", "2022-05-31"),
        ("last April", "2023-04-01", "2023-04-30"),
        ("next December", "2023-12-01", "2023-12-31"),
        ("next March", "2024-03-01", "2024-03-31"),
        ("in 2019", "2019-01-01", "2019-12-31"),
        ("on 8 May 2023", "2023-05-08", "2023-05-08"),
        ("the 8th of May 2023", "2023-05-08", "2023-05-08"),
        ("May 2021", "2021-05-01", "2021-05-31"),
        ("2023-05-08.", "2023-05-08", "2023-05-08"),
    ],
)
def test_time_expressions_give_their_period(words: str, first: str, last: str) -> None:
    """Wrong: "last Friday" is left to the model's arithmetic."""
    found = meant(words, WEDNESDAY)
    assert found is not None
    end = at(last)
    assert end is not None
    assert found.period == (at(first), end + timedelta(days=1))
    assert not found.is_beginning


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("since last week", "2023-05-01"),
        ("since 2016", "2016-01-01"),
        ("for five years", "2018-01-01"),
        ("for the past 3 months", "2023-02-01"),
    ],
)
def test_since_expressions_give_the_beginning_of_a_period(words: str, first: str) -> None:
    """Wrong: "since May" is read as a period that ended in May."""
    found = meant(words, WEDNESDAY)
    assert found.is_beginning
    assert found.period[0] == at(first)


@pytest.mark.parametrize(
    "words",
    [
        "", "recently", "a few years ago", "a couple of days ago", "soon", "next Friday",
        "on Tuesday", "in June", "may", "last summer", "around 2015", "9999 years ago",
        "one day", "since tomorrow", "for ages", "last", "ago", "two", "8 May", "gestern",
    ],
)  # fmt: skip
def test_a_vague_or_ambiguous_expression_gives_no_date(words: str) -> None:
    """Wrong: a vague or ambiguous expression gives a date."""
    assert meant(words, WEDNESDAY) is None


_UNITS = st.sampled_from(["day", "week", "month", "year"])


@given(st.datetimes(datetime(1950, 1, 1), datetime(2150, 1, 1)), st.integers(1, 30), _UNITS)
def test_ago_and_ahead(moment: datetime, number: int, unit: str) -> None:
    """Wrong: a calendar day raises, or a past time lies after its message."""
    now = moment.replace(tzinfo=UTC)
    ago, ahead = meant(f"{number} {unit}s ago", now), meant(f"in {number} {unit}s", now)
    assert ago.period[0] < ago.period[1] <= now < ahead.period[0] < ahead.period[1]
    last, this = meant(f"last {unit}", now), meant(f"this {unit}", now)
    assert unit == "day" or (last is not None and this is not None)
    if last is not None and this is not None:
        assert last.period[1] == this.period[0] <= now < this.period[1]


@pytest.mark.parametrize("words", ["in 12 years", "next year", "in 400 days"])
def test_an_expression_beyond_the_calendar_gives_no_date(words: str) -> None:
    """Wrong: a message from the calendar's last year makes its batch fail."""
    last = datetime(9999, 12, 30, tzinfo=UTC)
    assert meant(words, last) is None


@given(st.text(max_size=40), st.datetimes())
def test_no_words_raise(words: str, moment: datetime) -> None:
    """Wrong: some user's text raises, and its batch fails."""
    found = meant(words, moment.replace(tzinfo=UTC))
    assert found is None or found.period[0] < found.period[1]


@pytest.mark.parametrize(
    ("text", "kind", "when", "since", "until", "begin", "end", "kept"),
    [
        # the calendar before the model's arithmetic
        ("Went there last Friday", "event", "last Friday", "2023-05-08", "2023-05-08",
         "2023-05-05", "2023-05-06", ""),
        ("I live here since last week", "state", "since last week", "", "", "2023-05-01", None, ""),
        ("We moved last weekend", "state", "last weekend", "2023-05-06", "", "2023-05-06", None,
         ""),
        ("Tested last week: no allergy", "state", "last week", "", "", None, None, "last week"),
        ("We go next month", "plan", "next month", None, None, "2023-06-01", "2023-07-01", ""),
        # what the code cannot read, the model may
        ("Fui el martes", "event", "el martes", "2023-05-09", "2023-05-09", "2023-05-09",
         "2023-05-10", ""),
        ("We met in June", "event", "in June", "2022-06", "2022-06", "2022-06-01", "2022-07-01",
         ""),
        # not supported by the text
        ("I went to Rome", "event", "", "2023-05-10", "2023-05-10", None, None, ""),
        ("I live in Rome", "state", "", "2023-05-10", "", None, None, ""),
        ("I live in Rome", "state", "since May", "2023-05", "", None, None, ""),
        ("I went some years ago", "event", "some years ago", "2020", "2020", None, None,
         "some years ago"),
        ("We are off soon", "plan", "soon", "2023-05-17", "2023-05-20", None, None, "soon"),
        # in the text, although the words were not copied
        ("I went on 3 May 2023", "event", "", "2023-05-03", "2023-05-03", "2023-05-03",
         "2023-05-04", ""),
        ("Went today", "event", "", "2023-05-10", "2023-05-10", "2023-05-10", "2023-05-11", ""),
        # an event has both times or neither
        ("Fui en 2020", "event", "en 2020", "2020", "", "2020-01-01", "2021-01-01", ""),
        ("Fui en 2020", "event", "en 2020", "", "2020", "2020-01-01", "2021-01-01", ""),
        # without the words of the text
        ("x", "", None, "2020", None, "2020-01-01", None, ""),
        ("x", "", None, "2020-05", "2022-03-31", "2020-05-01", "2022-04-01", ""),
        ("x", "", None, "2024-05", "2024-03", "2024-05-01", None, ""),
        ("x", "", None, None, "2024-03", None, "2024-04-01", ""),
        ("x", "", None, "2024-02-31", "nonsense", None, None, ""),
        ("x", "", None, None, None, None, None, ""),
    ],
)  # fmt: skip
def test_a_finding_has_only_dates_that_its_text_supports(
    text: str,
    kind: Kind,
    when: str | None,
    since: str | None,
    until: str | None,
    begin: str | None,
    end: str | None,
    kept: str,
) -> None:
    """Wrong: a date that the text does not support is stored, or a supported one is lost."""
    found = replace(_FOUND, kind=kind, when=when, since=since, until=until)
    shown = sources_of(text)
    assert times(found, shown[0], shown)[:3] == (at(begin), at(end), kept)


def test_the_time_expression_may_be_in_another_message() -> None:
    """Wrong: "In Rome." "When?" "Last week." gives no date."""
    found = replace(_FOUND, kind="event", when="Last week")
    shown = sources_of("I was in Rome.", "Last week.")
    assert times(found, shown[0], shown)[:2] == (at("2023-05-01"), at("2023-05-08"))


@pytest.mark.parametrize(
    ("since", "related", "begin"),
    [
        ("2023-04-04", ("a",), "2023-04-04"),
        ("2023-04-09", ("a",), None),
        ("2023-04-04", ("b",), None),
    ],
)
def test_a_finding_can_take_the_date_of_a_related_fact(
    since: str, related: tuple[str, ...], begin: str | None
) -> None:
    """Wrong: "The party was fun" loses the day for which the known fact had planned it."""
    day = {"valid_from": at("2023-04-04"), "valid_to": at("2023-04-05")}
    known = [claim("a", **day), claim("b", valid_from=None), claim("c", **day)]
    finding = replace(_FOUND, kind="event", when="", since=since, until=since, related=related)
    shown = sources_of("The party was fun")
    assert times(finding, shown[0], shown, known)[0] == at(begin)


DAY = timedelta(days=1)


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
def test_a_partial_date_covers_its_full_period(date: str, begin: str, end: str) -> None:
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
def test_an_invalid_date_is_ignored(date: str | None) -> None:
    """Wrong: invalid text as a date raises, or becomes another day."""
    assert parse(date) is None


@given(st.text(max_size=30) | st.from_regex(r"\d{4}(-\d\d?(-\d\d?)?)?", fullmatch=True))
def test_no_date_of_a_model_raises(date: str) -> None:
    """Wrong: a model's text fails the batch, or gives a period that ends before it begins."""
    found = parse(date)
    assert found is None or found[0] < found[1]


def test_day_of_uses_the_time_zone_of_the_message() -> None:
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
def test_periods_are_written_in_plain_words(begin: str | None, end: str | None, text: str) -> None:
    """Wrong: one day is shown as two, or a year as its first day."""
    assert written(begin and at(begin), end and at(end)) == text


@pytest.mark.parametrize(
    ("begin", "end", "precision", "text"),
    [
        ("2025-08-01", None, "day", "since 2025-08-01"),
        ("2026-01-01", None, "month", "since 2026-01"),
        ("2025-08-15", None, "day", "since 2025-08-15"),
        ("2025-08-01", "2027-01-01", "day", "2025-08-01 to 2026-12-31"),
        ("2025-05-01", "2026-01-01", "month", "2025-05 to 2025-12"),
        ("2025-08-01", "2025-08-02", "day", "2025-08-01"),
    ],
)
def test_a_first_day_is_shown(begin: str, end: str | None, precision: Precision, text: str) -> None:
    """Wrong: "from 1 August" is shown as "since August", and "since January" as the year."""
    assert written(at(begin), end and at(end), precision) == text


@pytest.mark.parametrize(
    ("said_text", "when", "since", "time"),
    [
        ("I start on 1 August", "on 1 August", "2023-08-01", "since 2023-08-01"),
        ("I swim since January", "since January", "2023-01", "since 2023-01"),
        ("I live here since 2019", "since 2019", "2019", "since 2019"),
    ],
)
def test_a_fact_keeps_the_precision_of_its_beginning(
    said_text: str, when: str, since: str, time: str
) -> None:
    """Wrong: a fact that began on the first day of a month does not show this day."""
    finding = replace(_FOUND, kind="state", when=when, since=since, quote=said_text)
    rules = Rules({}, (), (), 0.0, "m", "p")
    (draft,), _ = drafts([finding], sources_of(said_text), (), rules, lambda source, finding: "id")
    (fact,) = facts_of([draft.claim])
    assert fact.time == time
    assert listed(draft.claim) == f"other, state [{time}]: Fact."


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
    """Wrong: a subtraction leaves a moment too many or too few, or empty or unordered periods."""
    left = without(period, others)
    assert all(begin < end for begin, end in left)
    assert all(one[1] <= other[0] for one, other in pairwise(left))
    for moment in _MOMENTS:
        taken = any(begin <= moment < end for begin, end in others)
        inside = period[0] <= moment < period[1]
        assert any(begin <= moment < end for begin, end in left) == (inside and not taken)


def test_unbounded_periods_can_be_subtracted() -> None:
    """Wrong: periods without a beginning or end cannot be subtracted."""
    day = at("2024-01-01")
    assert without((BEGINNING, END), [(day, day + DAY)]) == [(BEGINNING, day), (day + DAY, END)]
    assert without((day, END), [(BEGINNING, END)]) == []
    assert without((day, day), []) == []
