"""Correction of misspelled words in questions."""

import pytest

from agent_memory.models.embedders.spelling import corrected, corrections


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("wehn does my pasport expir?", "when does my passport expire?"),
        ("whats the name of teh boiler man", "whats the name of the boiler man"),
        ("Which presure do the rear tyres need?", "Which pressure do the rear tyres need?"),
    ],
)
def test_a_word_with_one_wrong_letter_is_corrected(typed: str, meant: str) -> None:
    """Wrong: a misspelled word stays as it is, or a correct word changes."""
    assert corrected(typed, corrections(typed), ()) == meant


@pytest.mark.parametrize(
    "text",
    [
        "Does Kaspar Lindqvst live in Wroclav?",  # names
        "What is in src/parsr.py, recv_bufer and foo.barr of v2.1rc?",  # not words
        "In welcher Stadt wohne ich jetz?",  # not English
        "In which year did Priya's plumber move to Szeged?",
        "where is " + "pasprt" * 100_000,  # would take gigabytes
        "fix: " + " ".join(f"frobn{letter}cate" for letter in "abcdefghjkl"),  # code
    ],
)
def test_names_paths_and_foreign_words_are_not_corrected(text: str) -> None:
    """Wrong: a name, a path, an identifier, or a word of another language is corrected."""
    assert corrections(text) == {}


def test_words_of_the_users_messages_are_not_corrected() -> None:
    """Wrong: a word of the user's own messages is corrected."""
    typed = "what is kaspar alergic to"
    words = corrections(typed)
    assert set(words) == {"kaspar", "alergic"}
    assert corrected(typed, words, {"kaspar"}) == "what is kaspar allergic to"
