"""Detecting languages, and the forms by which words are found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.models.embedders.base import NoEmbedder
from agent_memory.retrieval.languages import ALL_LATIN, ENGLISH, languages_of, persons
from agent_memory.retrieval.postings import term_of, weighted, written
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.words import forms_of, roots, words

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
def test_common_words_tell_the_language(text: str, expected: set[str]) -> None:
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
def test_what_is_asked_holds_what_was_stored_before(text: str) -> None:
    """Wrong: a query does not find files stored before languages were detected."""
    languages = languages_of(text)
    plain = {one.plain for piece in text.split() for one in forms_of(piece, languages)}
    assert {term_of(word) for word in plain} <= set(asked(text))


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
def test_inflected_forms_are_one_word(one: str, other: str) -> None:
    """Wrong: a question with "Häuser" does not find "Haus"."""
    assert set(asked(one)) & set(asked(other))


@pytest.mark.parametrize("name", ["Minka", "Lisbonne", "Weihnachten", "Zermatt"])
def test_a_name_is_found_from_another_language(name: str) -> None:
    """Wrong: a name in an Italian message is stemmed, and an English question does not find it."""
    for around in ("Il mio gatto è {}.", "Wo ist die {}?", "{}!", "Meu nome não é {}"):
        assert set(asked(name)) & set(asked(f"Where is {name}?"))
        stored = set(weighted(written(around.format(name)), 20.0).ids.tolist())
        assert stored & set(asked(f"Where is {name}?"))


def test_words_keep_their_marks() -> None:
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
def test_persons(text: str, first: bool, second: bool) -> None:
    """Wrong: a question about oneself in another language is not recognized as one."""
    assert persons(text) == (first, second)


@pytest.mark.parametrize("text", ["fox owl den", "Anna's hut", "the war and the die"])
def test_an_english_word_that_is_common_elsewhere_is_looked_for(text: str) -> None:
    """Wrong: an English word is ignored because it is a stop word in another language."""
    assert {term_of(word) for word in words(text)} <= set(asked(text))


def test_english_is_as_it_was() -> None:
    """Wrong: an English text gets forms of other languages."""
    text = "The dogs were running to Sarah's house, and I saw them die in the war."
    assert languages_of(text) == ENGLISH
    assert set(asked(text)) == {term_of(word) for word in words(text)}
