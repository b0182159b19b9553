"""The words and dates of texts."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.retrieval.dates import Date, dates
from agent_memory.retrieval.postings import written
from agent_memory.retrieval.words import Forms, forms_of, words, words_up_to

DAY = datetime(2023, 5, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The dogs were running, and ran!", ["dog", "run", "ran"]),
        ("Sarah's O\u2019Neill's", ["sarah", "o'neil"]),
        ("Café CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
        ("Straße \uff21\uff22\uff11", ["strass", "ab1"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("木", ["木"]),
        ("я живу в Москве", ["жив", "москв"]),
        ("GPT4とClaude", ["gpt4", "と", "claud"]),
        ("the of and", []),
        ("", []),
        ("!?\x00\ud800", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    """Wrong: what people write in two ways is not found, or a script is not searched at all."""
    assert words(text) == expected


@given(st.text())
def test_any_text_has_words(text: str) -> None:
    """Wrong: some text stops a search."""
    assert all(words(text))
    assert words(text) == words(text.upper().lower()) or not text.isascii()


@given(st.text(), st.integers(1, 5))
def test_words_are_counted_up_to_a_number(text: str, most: int) -> None:
    """Wrong: a long turn is taken for a short one."""
    assert words_up_to(most, text) == min(most, len(words(text)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on 8 May 2023", [Date(2023, 5, 8)]),
        ("May 8th, 2023?", [Date(2023, 5, 8)]),
        ("the 3rd of june", [Date(None, 6, 3)]),
        ("in December", [Date(None, 12, None)]),
        ("in May 2022 and in June", [Date(2022, 5, None), Date(None, 6, None)]),
        ("since 2023-05-08 or 2023-06", [Date(2023, 5, 8), Date(2023, 6, None)]),
        ("it may rain when they march", []),
        ("room 2023", []),
    ],
)
def test_dates(text: str, expected: list[Date]) -> None:
    """Wrong: a date in a question is not seen, or a word is taken for one."""
    assert dates(text) == expected


def test_a_date_holds_what_it_names() -> None:
    """Wrong: "in May" is taken for one day, or for any month."""
    assert Date(None, 5, None).holds(DAY)
    assert Date(2023, 5, 8).holds(DAY)
    assert not Date(2022, 5, None).holds(DAY)
    assert not Date(None, 5, 9).holds(DAY)


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hurried")
def test_threads_stem_at_the_same_time() -> None:
    """Wrong: what one thread stems is mixed with another's, and kept so for the process's life."""
    texts = ["organizations", "relational", "conditionally", "happiness", "international"]
    stem = forms_of.call  # nothing kept
    expected = [stem(text) for text in texts]

    def work(_: int) -> list[list[tuple[Forms, ...]]]:
        return [found for _ in range(300) if (found := [*map(stem, texts)]) != expected]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [[]] * 4


def test_sentences_without_blanks_are_not_kept() -> None:
    """Wrong: a process that reads Chinese keeps gigabytes of what it made of sentences."""
    said = [
        "".join(chr(0x4E00 + (7 * n + at * at) % 20_000) for at in range(90)) for n in range(500)
    ]
    written(said[0])
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert sum(len(written(one)[0].ids) for one in said) > 40_000
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
