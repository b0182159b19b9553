"""Sentences, terms, identifiers, escaping."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.text import (
    escape,
    identifiers,
    last_break,
    names,
    overlap_scores,
    pieces,
    sentences,
    terms,
)
from tests.histories import texts


@given(texts(), texts())
def test_sentences_lose_no_word(first: str, second: str) -> None:
    """Wrong: a word between two sentences is lost."""
    text = f"{first}. {second}\n{first}"
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())
    assert all(part == part.strip() and part for part in sentences(text))


def test_sentences_terms_and_identifiers() -> None:
    """Wrong: an amount is split at its decimal point."""
    text = "It costs 3.50 now. Really?\nYes"
    assert sentences(text) == ["It costs 3.50 now.", "Really?", "Yes"]
    assert sentences("文です。次です。") == ["文です。", "次です。"]
    text = "The managers' Manager\u2019s policies, and DON'T"
    assert terms(text) == ["manager", "manager", "policie"]
    assert terms("days day") == ["day", "day"]
    assert terms("") == []
    text = (
        "Form HR-101 costs $300.50 (50% off) at 10:30 on 2026-01-05; "
        "mail a.b+c@ex-ample.co.uk or see https://x.org/a?b=1, v1.2.3, 7 and HR-101 again"
    )
    assert identifiers(text) == [
        "HR-101",
        "$300.50",
        "50%",
        "10:30",
        "2026-01-05",
        "a.b+c@ex-ample.co.uk",
        "https://x.org/a?b=1,",
        "v1.2.3",
        "7",
    ]


@given(texts())
def test_identifiers_and_names_stand_in_the_text(text: str) -> None:
    """Wrong: an identifier or a name is returned that is not in the text."""
    assert all(found in text for found in [*identifiers(text), *names(text)])


@pytest.mark.parametrize(
    "unit", ["a", "a.", "a.b-c/", "Aa", "_1", "a@", "a@b.", "é.", "$1,", "1:::", " ", "Ab ", "x\n"]
)
def test_long_monotonous_text_is_no_trap(unit: str) -> None:
    """Wrong: a pattern backtracks over a long run, and 300 KB take hours."""
    text = unit * (300_000 // len(unit))
    for find in (identifiers, names, terms, sentences):
        find(text)


def test_names_are_capitals_inside_sentences() -> None:
    """Wrong: the first word of a sentence is taken for a name."""
    assert names("Hello, I am Sarah Jones. We met Bob.") == ["Sarah Jones", "Bob"]


@given(st.lists(texts(), max_size=5), texts())
def test_overlap_is_a_share(held: list[str], query: str) -> None:
    """Wrong: a score lies outside 0 to 1, or a text has none."""
    scores = overlap_scores(query, held)
    assert len(scores) == len(held)
    assert all(0 <= score <= 1 + 1e-9 for score in scores)


def test_rare_words_weigh_more() -> None:
    """Wrong: a common word counts as much as a rare one."""
    scores = overlap_scores("remote policy", ["policy a", "policy b", "remote b", "remote policy"])
    assert scores[2] > scores[0]
    assert scores[3] == pytest.approx(1)


@given(texts())
def test_escaped_text_holds_no_markup(text: str) -> None:
    """Wrong: a recalled text opens or closes an element of the prompt."""
    escaped = escape(text)
    assert not re.search(r"[<>\x00]", escaped)
    plain = escaped.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert plain == text.replace("\x00", "")


@given(texts(), st.integers(1, 60))
def test_pieces_lose_no_word(text: str, size: int) -> None:
    """Wrong: the end of a long line is dropped, or a word is cut in two."""
    parts = pieces(text, size)
    assert " ".join(parts).split() == text.split()
    assert all(len(part) <= size or len(part.split()) == 1 for part in parts)


@given(texts(), st.integers(0, 300))
def test_a_break_is_within_the_text(text: str, upto: int) -> None:
    """Wrong: a break lies beyond the given position."""
    upto = min(upto, len(text))
    assert 0 <= last_break(text, upto) <= upto


def test_a_break_falls_after_a_sentence_or_a_word() -> None:
    """Wrong: $300 is cut to $30, or a short first sentence is kept although much more fits."""
    text = "It is approved. The allowance is up to $300 a year"
    assert text[: last_break(text, 20)] == "It is approved."
    assert text[: last_break(text, text.index("00 a"))] == "It is approved. The allowance is up to"
    assert text[: last_break(text, 5)] == "It is"
    assert last_break("unbreakable", 4) == 4
