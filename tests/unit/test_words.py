"""Words and dates of texts, and the days that a question refers to."""

import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.retrieval.dates import Date, Event, Period, dates, event_of, period_of
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
    """Wrong: two spellings of a word do not find each other, or a script is not searched."""
    assert words(text) == expected


@given(st.text())
def test_any_text_has_words(text: str) -> None:
    """Wrong: some text raises, or gives an empty word."""
    assert all(words(text))
    assert words(text) == words(text.upper().lower()) or not text.isascii()


@given(st.text(), st.integers(1, 5))
def test_words_are_counted_up_to_a_number(text: str, most: int) -> None:
    """Wrong: the count stops early, or exceeds its limit."""
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
    """Wrong: a date in a question is missed, or a word is read as a date."""
    assert dates(text) == expected


def test_a_date_holds_what_it_names() -> None:
    """Wrong: "in May" means one day, or any month."""
    assert Date(None, 5, None).holds(DAY)
    assert Date(2023, 5, 8).holds(DAY)
    assert not Date(2022, 5, None).holds(DAY)
    assert not Date(None, 5, 9).holds(DAY)


@pytest.fixture
def hurried() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hurried")
def test_threads_stem_at_the_same_time() -> None:
    """Wrong: stems of concurrent threads are mixed up."""
    texts = ["organizations", "relational", "conditionally", "happiness", "international"]
    stem = forms_of.call  # without the cache
    expected = [stem(text) for text in texts]

    def work(_: int) -> list[list[tuple[Forms, ...]]]:
        return [found for _ in range(300) if (found := [*map(stem, texts)]) != expected]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [[]] * 4


def test_sentences_without_blanks_are_not_kept() -> None:
    """Wrong: whole Chinese sentences fill the cache of stems."""
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
    """Wrong: a time in a question is missed or misread."""
    assert period_of(asked, TODAY) == Period(date.fromisoformat(first), date.fromisoformat(last))


@pytest.mark.parametrize(
    "asked", ["What may I eat?", "What should I cook today?", "Where do I live?", "on 2025-02-30"]
)
def test_questions_without_a_time(asked: str) -> None:
    """Wrong: a word is read as a time, or an impossible date raises."""
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
    """Wrong: "before I moved" is no time, or every "before" is one."""
    assert event_of(asked) == event


@given(
    st.dates(date(1, 6, 1), date(9998, 1, 1)),
    st.sampled_from(["last week", "4 months ago", "in March", "last winter", "99 years ago"]),
)
def test_every_day_has_periods(today: date, asked: str) -> None:
    """Wrong: on some calendar day a question raises, or its period begins in the future."""
    period = period_of(f"What did I do {asked}?", today)
    assert period is not None
    assert period.first <= period.last
    assert period.first <= today + timedelta(days=1)
