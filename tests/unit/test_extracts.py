"""Summaries without a model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.extracts import extract, keep_codes
from agent_memory.core.text import codes, identifiers
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.testing.histories import histories, log_of, texts

COUNT = TokenCounter().text
CLAUDE = TokenCounter("claude-sonnet-4-5").text


def said(*contents: str) -> Any:
    return log_of([{"role": "user", "content": text} for text in contents], lambda message: 1)


@pytest.mark.parametrize("count", [COUNT, CLAUDE])
@given(texts(), histories(max_steps=8), st.integers(0, 120))
def test_an_extract_keeps_its_limit(
    count: Any, previous: str, messages: list[dict[str, Any]], limit: int
) -> None:
    """Wrong: the stand-in summary passes `max_summary_tokens`, or differs from run to run."""
    entries = log_of(messages, lambda message: 1)
    text = extract(previous, entries, count, limit)
    assert count(text) <= limit
    assert text == extract(previous, entries, count, limit)


def test_an_extract_prefers_what_says_most() -> None:
    """Wrong: greetings win over names, amounts and codes."""
    entries = said(
        "Hello there, how are you doing today?",
        "My manager Tom Baker approved $300 with form HR-101.",
        "Thanks, that is very kind, thank you so much indeed.",
    )
    text = extract("Sarah works in Marketing.", entries, COUNT, 29)
    assert "HR-101" in text
    assert "Sarah works in Marketing." in text
    assert "Hello" not in text


def test_an_extract_says_each_thing_once() -> None:
    """Wrong: a sentence that the last summary already holds is repeated."""
    once = extract("", said("Form HR-101 is due."), COUNT, 100)
    assert extract(once, said("Form HR-101 is due."), COUNT, 100) == once


@pytest.mark.parametrize("glue", [" ", "; "])
def test_an_extract_of_one_endless_line_is_not_empty(glue: str) -> None:
    """Wrong: nothing fits, so nothing is kept; or an identifier is cut where the line is."""
    wanted = [f"HR-{n}00{n}" for n in range(100, 400)]
    text = extract("", said(glue.join(wanted)), COUNT, 40)
    assert text
    assert set(identifiers(text)) <= set(wanted)
    assert identifiers(text)


@pytest.mark.parametrize("count", [COUNT, CLAUDE])
@given(texts(), st.lists(texts(), max_size=4), st.integers(0, 80))
def test_kept_identifiers_stay_within_the_limit(
    count: Any, summary: str, sources: list[str], limit: int
) -> None:
    """Wrong: the note of identifiers drives the summary above `max_summary_tokens`."""
    assert count(keep_codes(summary, sources, count, limit)) <= limit


def test_lost_identifiers_are_added_verbatim() -> None:
    """Wrong: a model drops a code and nobody notices."""
    text = keep_codes(
        "She may spend $300.", ["Form HR-101", "at most $300 within 30 days"], COUNT, 100
    )
    assert text == "She may spend $300.\nVerbatim: HR-101"


def test_a_complete_summary_is_left_alone() -> None:
    """Wrong: identifiers that the summary holds are listed once more."""
    summary = "Form HR-101, $300, by 10:30."
    assert keep_codes(summary, [summary, "HR-101 and 10:30"], COUNT, 100) == summary


def test_identifiers_that_clipping_loses_are_added_too() -> None:
    """Wrong: the note is drawn up before the summary is cut to its limit."""
    summary = "She asked about many things at length, " * 8 + "the form is HR-101."
    text = keep_codes(summary, ["The form is HR-101."], COUNT, 50)
    assert text.endswith("Verbatim: HR-101")
    assert COUNT(text) <= 50


def test_of_a_summary_that_is_too_long_the_end_is_not_lost() -> None:
    """Wrong: what is newest, and still open, stands last and is cut off."""
    told = [f"They talked about the weather and the garden, number {n}." for n in range(20)]
    summary = "\n".join([*told, "Open: Ana waits for Brandl to send the Lisbon contract."])
    text = keep_codes(summary, [], COUNT, 60)
    assert "Open: Ana waits for Brandl" in text
    assert COUNT(text) <= 60


@pytest.mark.parametrize(
    "said",
    ["7", "30 days", "on the 14th", "2.5kg", "at 10:30", "9:30pm", "30%", "in 2023", "2023-05-07",
     "8/9", "the 1990s", "7.5.2023", "2020-2023", "90 minutes"],
)  # fmt: skip
def test_quantities_and_times_are_no_codes(said: str) -> None:
    """Wrong: a summary ends with "Verbatim: 7; 6; 5"."""
    assert codes(said) == []


@pytest.mark.parametrize(
    "said",
    ["HR-101", "AX-4471", "4471", "$30", "0911-4432", "a@b.example", "https://a.example/x", "B2C4",
     "C01X00T47", "$1,234.50"],
)  # fmt: skip
def test_codes_are_kept_whole(said: str) -> None:
    """Wrong: what nobody could guess is lost for good."""
    assert codes(f"It is {said} now") == [said]
