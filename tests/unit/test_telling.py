"""Turns that tell nothing to one who asks."""

import pytest

from agent_memory.retrieval.informativeness import repeats, tells_nothing
from agent_memory.retrieval.languages import languages_of
from agent_memory.retrieval.words import words

QUESTION = "Where do I live?"


def nothing(text: str, *, user: bool = False, question: str = QUESTION) -> bool:
    languages = languages_of(question)
    return tells_nothing(frozenset(words(question, languages)), languages, text, user)


@pytest.mark.parametrize(
    "answer",
    [
        "I don't know.",
        "I don't know where you live.",
        "Sorry, I don't have that information yet.",
        "I'm not sure where you live, you haven't told me.",
        "I'm afraid I can't find any record of where you live.",
        "Das weiß ich leider nicht.",
        "Lo siento, no lo sé.",
        "Je ne sais pas, désolé.",
    ],
)
def test_an_answer_that_nobody_knew_tells_nothing(answer: str) -> None:
    """Wrong: an old "I don't know" takes the place of what was said since."""
    assert nothing(answer)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Wo wohne ich?", "Ich weiß leider nicht, wo du wohnst."),
        ("Où est-ce que j'habite ?", "Je ne sais pas où tu habites."),
        ("¿Dónde vivo?", "No lo sé, no me lo has dicho."),
        ("Dove abito?", "Mi dispiace, non lo so ancora."),
        ("Где я живу?", "К сожалению, я не знаю."),
        ("Nerede yaşıyorum?", "Üzgünüm, bilmiyorum."),
        ("मैं कहाँ रहता हूँ?", "मुझे नहीं पता।"),
        ("我住在哪里", "抱歉，我不知道。"),
    ],
)
def test_nobody_knew_in_other_languages_either(question: str, answer: str) -> None:
    """Wrong: the old "I don't know" hides what was said since, but for who writes English."""
    assert nothing(answer, question=question)


@pytest.mark.parametrize(
    ("question", "answer"),
    [("Wo wohne ich?", "Du wohnst in Lissabon."), ("Где я живу?", "Ты живёшь в Москве.")],
)
def test_an_answer_in_another_language_stays(question: str, answer: str) -> None:
    """Wrong: an answer is dropped for being short."""
    assert not nothing(answer, question=question)


@pytest.mark.parametrize("question", [QUESTION, "where do i live ?", "So where do I live?"])
def test_the_same_question_tells_nothing(question: str) -> None:
    """Wrong: a question that was asked in vain is recalled in place of its answer."""
    assert nothing(question, user=True)


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("I live here.", True),
        ("You live in Lisbon.", False),
        ("I don't know whether you still live in Lisbon.", False),
        ("Can you book a table at Noma, where I live?", True),
        ("I don't know.", True),
    ],
)
def test_what_tells_something_stays(text: str, user: bool) -> None:
    """Wrong: an answer is dropped for having the question's words, or for a doubt in it."""
    assert not nothing(text, user=user)


def test_a_yes_in_the_question_s_words_stays() -> None:
    """Wrong: "My dog's name is Rex" is dropped where "Is my dog's name Rex?" is asked."""
    assert not nothing("My dog's name is Rex.", user=True, question="Is my dog's name Rex?")


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("Works. And I'm testing your memory for fun. Which city do I live in?", True),
        ("Before I call the movers back: which city do I live in?", True),
        ("Which city do I live in? Lisbon is the city that I live in.", False),
        ("Which city is the largest of Peru?", False),
        ("I moved to Lisbon last week.", False),
    ],
)
def test_a_question_that_was_asked_among_other_words(text: str, again: bool) -> None:
    """Wrong: the message in which it was asked hides the answer, or one that has it is fainter."""
    question = "Which city do I live in?"
    languages = languages_of(question)
    assert repeats(frozenset(words(question, languages)), languages, text) is again
