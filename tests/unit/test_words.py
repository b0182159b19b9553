"""Words and dates of texts, and the days that a question refers to."""

import re
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.records import Hit, Record
from agent_memory.core.text import (
    escape,
    identifiers,
    last_break,
    names,
    overlap_scores,
    sentences,
    terms,
)
from agent_memory.models.embedders.base import NoEmbedder
from agent_memory.retrieval.answers import answers
from agent_memory.retrieval.dates import Date, Event, Period, dates, event_of, period_of
from agent_memory.retrieval.features import term_of, weighted, written
from agent_memory.retrieval.index import TextIndex
from agent_memory.retrieval.languages import ALL_LATIN, ENGLISH, languages_of, persons
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.score import PARTS
from agent_memory.retrieval.statements import TextHit, leans, messages_in
from agent_memory.retrieval.vectors import encoding_of
from agent_memory.retrieval.words import Forms, forms_of, roots, words
from tests.histories import texts

DAY = datetime(2023, 5, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The dogs were running, and ran!", ["dog", "run", "ran"]),
        ("Sarah's O\u2019Neill's", ["sarah", "o'neil"]),
        ("Café CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
        ("Straße \uff21\uff22\uff11", ["strass", "ab1"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("木 २०२६ ٢٠٢٦ \u06f2", ["木", "2026", "2026", "2"]),
        ("я живу в Москве", ["жив", "москв"]),
        ("GPT4とClaude", ["gpt4", "と", "claud"]),
        ("the of and", []),
        ("", []),
        ("!?\x00\ud800", []),
    ],
)
def test_spellings_of_a_word_find_each_other(text: str, expected: list[str]) -> None:
    """Wrong: two spellings of a word do not find each other, or a script is not searched."""
    assert words(text) == expected


@given(st.text())
def test_any_text_has_words(text: str) -> None:
    """Wrong: some text raises, or gives an empty word."""
    assert all(words(text))
    assert words(text) == words(text.upper().lower()) or not text.isascii()


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
        ("May I call Ann? May we meet in June?", [Date(None, 6, None)]),
        ("room 2023", []),
    ],
)
def test_dates_in_a_text_are_found(text: str, expected: list[Date]) -> None:
    """Wrong: a date in a question is missed, or a word is read as a date."""
    assert dates(text) == expected


def test_a_partial_date_contains_the_matching_days() -> None:
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
def test_concurrent_threads_get_correct_stems() -> None:
    """Wrong: stems of concurrent threads are mixed up."""
    texts = ["organizations", "relational", "conditionally", "happiness", "international"]
    stem = forms_of._call  # without the cache
    expected = [stem(text) for text in texts]

    def work(_: int) -> list[list[tuple[Forms, ...]]]:
        return [found for _ in range(300) if (found := [*map(stem, texts)]) != expected]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [[]] * 4


def test_sentences_without_blanks_are_not_cached() -> None:
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
        ("How was my weekend? What did I do over the weekend?", "2025-05-31", "2025-06-01"),
        ("What did I do two weekends ago?", "2025-05-24", "2025-05-25"),
        ("What did I do the week before last?", "2025-05-19", "2025-05-25"),
        ("What is the name of the place we visited in March?", "2025-03-01", "2025-03-31"),
        ("What happened in December?", "2024-12-01", "2024-12-31"),
        ("What did I eat on May 8th, 2023?", "2023-05-08", "2023-05-08"),
        ("How was our holiday in the summer of 2024?", "2024-06-01", "2024-08-31"),
        ("How was the winter? What did I read last winter?", "2024-12-01", "2025-02-28"),
        ("What did I read over the past three days?", "2025-06-01", "2025-06-04"),
        ("Where did we go in 2023?", "2023-01-01", "2023-12-31"),
        ("Where is the photo I took on Monday?", "2025-06-02", "2025-06-02"),
        ("Was habe ich am Montag gekauft?", "2025-06-02", "2025-06-02"),
        ("¿Qué hice el fin de semana pasado?", "2025-05-31", "2025-06-01"),
        ("Was habe ich vor zwei Tagen gegessen?", "2025-06-02", "2025-06-02"),
        ("¿Qué hice hace dos semanas?", "2025-05-18", "2025-05-24"),
        ("Qu'ai-je mangé il y a trois jours ?", "2025-06-01", "2025-06-01"),
    ],
)
def test_a_time_in_a_question_gives_its_period(asked: str, first: str, last: str) -> None:
    """Wrong: a time in a question is missed or misread."""
    assert period_of(asked, TODAY) == Period(date.fromisoformat(first), date.fromisoformat(last))


@pytest.mark.parametrize(
    "asked",
    [
        "What may I eat?", "What should I cook today?", "Where do I live?", "on 2025-02-30",
        "Where are we going in October?", "Who do I need to ring on Monday?", "Am I free on May 8?",
        "What's planned for this summer?", "Am I going to Iceland this summer?",
        "Any ideas for this weekend?",
    ],
)  # fmt: skip
def test_a_question_without_a_time_gives_no_period(asked: str) -> None:
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
def test_an_event_that_dates_a_question_is_found(asked: str, event: Event | None) -> None:
    """Wrong: "before I moved" is no time, or every "before" is one."""
    assert event_of(asked) == event


@given(
    st.dates(date(1, 6, 1), date(9998, 1, 1)),
    st.sampled_from(["last week", "4 months ago", "in March", "last winter", "99 years ago"]),
)
def test_every_day_has_periods(today: date, asked: str) -> None:
    """Wrong: on some calendar day a question raises, or its period begins in the future."""
    period = period_of(f"What did I do {asked}?", today)
    assert period.first <= period.last
    assert period.first <= today + timedelta(days=1)


@given(texts(), texts())
def test_sentences_lose_no_word(first: str, second: str) -> None:
    """Wrong: a word between two sentences is lost."""
    text = f"{first}. {second}\n{first}"
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())
    assert all(part == part.strip() and part for part in sentences(text))


def test_sentences_terms_and_identifiers_are_extracted() -> None:
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
    found = "HR-101 $300.50 50% 10:30 2026-01-05 a.b+c@ex-ample.co.uk https://x.org/a?b=1, v1.2.3 7"
    assert " ".join(identifiers(text)) == found


@given(texts())
def test_identifiers_and_names_stand_in_the_text(text: str) -> None:
    """Wrong: an identifier or a name is returned that is not in the text."""
    assert all(found in text for found in [*identifiers(text), *names(text)])


@pytest.mark.parametrize(
    "unit", ["a", "a.", "a.b-c/", "Aa", "_1", "a@", "a@b.", "é.", "$1,", "1:::", " ", "Ab ", "x\n"]
)
def test_long_repetitive_text_is_processed_quickly(unit: str) -> None:
    """Wrong: a pattern backtracks over a long run, and 300 KB take hours."""
    text = unit * (300_000 // len(unit))
    for find in (identifiers, names, terms, sentences):
        find(text)


def test_names_are_capitalized_words_inside_sentences() -> None:
    """Wrong: the first word of a sentence is taken for a name."""
    assert names("Hello, I am Sarah Jones. We met Bob.") == ["Sarah Jones", "Bob"]
    assert names("mit Jürgen, Łukasz Śliwa и Иваном") == ["Jürgen", "Łukasz Śliwa", "Иваном"]


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


@given(texts(), st.integers(0, 300))
def test_a_break_is_within_the_text(text: str, upto: int) -> None:
    """Wrong: a break lies beyond the given position."""
    upto = min(upto, len(text))
    assert 0 <= last_break(text, upto) <= upto


def test_a_break_is_after_a_sentence_or_a_word() -> None:
    """Wrong: $300 is cut to $30, or a short first sentence is kept although much more fits."""
    text = "It is approved. The allowance is up to $300 a year"
    assert text[: last_break(text, 20)] == "It is approved."
    assert text[: last_break(text, text.index("00 a"))] == "It is approved. The allowance is up to"
    assert text[: last_break(text, 5)] == "It is"
    assert last_break("unbreakable", 4) == last_break("… unbreakable", 4) == 4


SOME = st.frozensets(st.sampled_from(sorted(ALL_LATIN)), min_size=1)


def asked(question: str) -> list[int]:
    words = Query.of(question, NoEmbedder().encode_query("")).words
    return [*dict.fromkeys(number for word in words for number in word)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Where does my sister live?", {"english"}),
        ("Wo wohnt meine Schwester?", {"german"}),
        ("Où habite ma sœur ?", {"french"}),
        ("¿Dónde vive mi hermana?", {"spanish"}),
        ("Dove abita mia sorella?", {"italian"}),
        ("Onde mora a minha irmã?", {"portuguese"}),
        ("Waar woont mijn zus?", {"dutch"}),
        ("Benim kız kardeşim nerede yaşıyor?", {"turkish"}),
        ("Missä minun siskoni asuu?", {"finnish"}),
        ("Lasagne", ALL_LATIN),
        ("Где живёт сестра?", ALL_LATIN),
        ("", ALL_LATIN),
    ],
)
def test_common_words_identify_the_language(text: str, expected: set[str]) -> None:
    """Wrong: a text's language is not detected, or guessed without evidence."""
    assert languages_of(text) == expected


@given(st.text())
def test_any_text_is_of_some_language(text: str) -> None:
    """Wrong: a text raises, or has no language."""
    assert languages_of(text)
    assert languages_of(f"{text} {text}") <= ALL_LATIN


@given(st.text(), SOME)
def test_each_word_has_its_plain_form_in_any_language(text: str, languages: frozenset[str]) -> None:
    """Wrong: a word's plain form depends on the language it is looked up in."""
    known = {one.plain for written in text.split() for one in forms_of(written)}
    for piece in text.split():
        for one in forms_of(piece, languages):
            assert one.plain
            assert one.stems
            assert all(one.stems)
            assert one.plain in known


@given(st.text())
def test_a_text_finds_itself(text: str) -> None:
    """Wrong: a query yields other words than the same text when it is stored."""
    assert set(asked(text)) == set(weighted(written(text), 20.0).ids.tolist())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Wo sind die Häuser?", "Das Haus ist hier."),
        ("где мои книги", "эта книга"),
        ("¿Dónde están las llaves?", "la llave es roja"),
        ("çocuğum nerede", "bu çocuk kim"),
        ("मेरी किताबें कहाँ हैं", "यह किताब है"),
        ("أين الكتاب", "كتاب في البيت"),
        ("dov'è l'albero", "gli alberi sono alti"),
    ],
)
def test_inflected_forms_match_each_other(one: str, other: str) -> None:
    """Wrong: a question with "Häuser" does not find "Haus"."""
    assert set(asked(one)) & set(asked(other))


@pytest.mark.parametrize("name", ["Minka", "Lisbonne", "Weihnachten", "Zermatt"])
def test_a_name_is_found_from_another_language(name: str) -> None:
    """Wrong: a name in an Italian message is stemmed, and an English question does not find it."""
    for around in ("Il mio gatto è {}.", "Wo ist die {}?", "{}!", "Meu nome não é {}"):
        assert set(asked(name)) & set(asked(f"Where is {name}?"))
        stored = set(weighted(written(around.format(name)), 20.0).ids.tolist())
        assert stored & set(asked(f"Where is {name}?"))


def test_words_keep_their_combining_marks() -> None:
    """Wrong: a Hindi word is split at its vowel signs, and found by single letters."""
    assert [one.plain for one in forms_of("हिन्दी")] == ["हिन्दी"]
    assert [one.plain for one in forms_of("தமிழ்")] == ["தமிழ்"]
    assert words("1\ufe0f\u20e3") == ["1"]
    assert [one.plain for one in forms_of("ශ්\u200dරී")] == ["ශ්රී"]


@given(st.text(st.characters(codec="ascii")), SOME)
def test_what_words_begin_with_is_in_the_text(text: str, languages: frozenset[str]) -> None:
    """Wrong: the fast preselection skips a message that contains the word."""
    for word, root in roots(text, languages).items():
        assert root in text.casefold() or root == word


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("Wo wohne ich?", True, False),
        ("Was hast du mir geraten?", True, True),
        ("Où est-ce que j\u2019habite ?", True, False),
        ("¿Cómo se llama mi gato?", True, False),
        ("Где мой ключ?", True, False),
        ("मेरा नाम क्या है?", True, False),
        ("我住在哪里？", True, False),
        ("Wo wohnt Anna?", False, False),
        ("Who is Ich?", False, False),
    ],
)
def test_first_and_second_person_are_recognized(text: str, first: bool, second: bool) -> None:
    """Wrong: a question about oneself in another language is not recognized as one."""
    assert persons(text) == (first, second)


@pytest.mark.parametrize("text", ["fox owl den", "Anna's hut", "the war and the die"])
def test_an_english_word_that_is_a_foreign_stop_word_is_searched(text: str) -> None:
    """Wrong: an English word is ignored because it is a stop word in another language."""
    assert {term_of(word) for word in words(text)} <= set(asked(text))


def test_english_text_gets_no_forms_of_other_languages() -> None:
    """Wrong: an English text gets forms of other languages."""
    text = "The dogs were running to Sarah's house, and I saw them die in the war."
    assert languages_of(text) == ENGLISH
    assert set(asked(text)) == {term_of(word) for word in words(text)}


def test_a_code_is_not_stemmed() -> None:
    """Wrong: in a text of no known language, codes with the same beginning are the same word."""
    languages = languages_of("INV2033")
    assert words("INV2033", languages) == ["inv2033"]
    assert words("INV2033", frozenset({"turkish"})) == ["inv2033"]
    assert words("INV2033'ü", frozenset({"turkish"})) == ["inv2033"]
    assert words("INV2033 INV2044", ALL_LATIN) == ["inv2033", "inv2044"]


TEXTS = ["Likes green tea", "Has a dog named Rex", "Works at Acme in Oslo", "Is from Norway"]
ROWS = [encoding_of(row) for row in np.eye(5, dtype=np.float32)[:4]]  # each has its own direction


def by_words(texts: Sequence[str]) -> TextIndex:
    return TextIndex(texts, NoEmbedder().encode(texts))


def asking(question: str, *meaning: float) -> Query:
    return Query.of(question, encoding_of(np.array(meaning, np.float32)))


def test_words_or_meaning_make_a_text_relevant() -> None:
    """Wrong: a text is not found by words alone, or by meaning alone."""
    index = TextIndex(TEXTS, ROWS)
    words = index.relevance(asking("green tea", 0.3, 0, 0, 0, 0.95))
    meaning = index.relevance(asking("xyzzy", 0, 1, 0, 0, 0))
    assert words.argmax() == 0
    assert meaning.argmax() == 1
    for found in (words, meaning):
        assert sorted(found)[-1] > 0.2 > sorted(found)[-2]
    relevance = by_words(["Oslo is cold", "Oslo is dear", "Oslo has trams"]).relevance(
        asking("trams in Oslo")
    )
    assert relevance[0] == relevance[1] < relevance[2]


def test_relevance_works_without_vectors_or_texts() -> None:
    """Wrong: without vectors nothing is found by words, or an empty index raises."""
    for index in (by_words(TEXTS), TextIndex(TEXTS, ROWS)):
        for meaning in ((), (1, 0, 0)):
            found = index.relevance(asking("a dog named Rex", *meaning))
            assert found.argmax() == 1
            assert found[1] > 0.5
            assert not index.relevance(asking("tomorrow", *meaning)).any()
    assert by_words([]).relevance(asking("tea", 1, 0)).shape == (0,)
    index = by_words(["", "  ", "tea"])
    assert index.relevance(asking("tea")).nonzero()[0].tolist() == [2]
    assert not index.relevance(asking("")).any()


some_words = st.sampled_from(["tea", "dog", "Oslo", "Acme", "green", "named"])
phrases = st.lists(some_words, max_size=4).map(" ".join)


@given(st.lists(phrases, max_size=8), phrases)
def test_relevance_is_a_probability(texts: Sequence[str], question: str) -> None:
    """Wrong: relevance lies outside 0 to 1, or a text without the question's words has some."""
    relevance = by_words(texts).relevance(asking(question))
    assert relevance.shape == (len(texts),)
    assert ((relevance >= 0) & (relevance <= 1)).all()
    asked = set(question.split())
    assert set(relevance.nonzero()[0].tolist()) == {
        place for place, text in enumerate(texts) if asked & set(text.split())
    }


def hit_of(text: str, score: float, **fields: Any) -> TextHit:
    day = datetime(2024, 1, 1, tzinfo=UTC)
    record = Record(text, "ana", "s", 1, 1, text, (1,), day, {"role": "user"})
    return messages_in([Hit(record, score, relevance=0.9, **fields)])[0]


def test_a_hit_relevant_only_by_its_neighbours_raises_no_error() -> None:
    """Wrong: a statement that only its neighbours make relevant ends the recall in an error."""
    parts = tuple(-0.4 if name == "meaning" else 0.0 for name in PARTS)
    hit = hit_of("I sail on Sundays.", 0.5, parts=parts)
    options = {"corrects": True, "in_context": True}
    assert answers("When do I sail?", [hit], 0.2, lambda stated: [], **options) == [hit]


def test_a_search_for_a_code_ranks_the_text_with_the_code_first() -> None:
    """Wrong: questions that name other codes come first, since only this one repeats the query."""
    texts = ["Question 7: where is parcel P-7?", "Question 8: where is parcel P-8?"]
    hits = [hit_of(text, 1 - at / 10, words=1.0 - at) for at, text in enumerate(texts)]
    found = answers("P-7", hits, 0.2, lambda stated: [], corrects=True, in_context=False)
    assert found[0] == hits[0]


def test_a_short_message_corrects_the_statement_before_it() -> None:
    """Wrong: a correction without a subject is missed, or a new subject counts as one."""
    statement, question = "My dentist is in room 12.", "Where is my dentist?"
    for text in ("No, room 14.", "14, sorry!", "It moved to room 14."):
        assert leans(text, statement, (), question)
    for text in ("I have a budget of 900 euros.", "My room is number 7.", "Thanks!"):
        assert not leans(text, statement, (), question)
