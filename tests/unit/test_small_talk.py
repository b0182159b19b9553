"""Small talk, moods and empty turns, and texts that only look like them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.messages import Message
from agent_memory.core.query_text import is_small_talk
from agent_memory.core.records import Entry
from agent_memory.ltm_blocks.extractive.history.findings import Candidate, is_chatter
from agent_memory.ltm_blocks.extractive.history.sources import sources
from agent_memory.retrieval.languages import languages_of
from agent_memory.retrieval.statements import question_share, repeats, tells_nothing
from agent_memory.retrieval.words import words
from benchmarks.recall.paraphrases import COURTESIES, FOREIGN
from tests.unit.claiming import DAY

MORE = ("बहुत धन्यवाद!", "kiitos paljon", "çok teşekkürler", "terima kasih", "ευχαριστώ πολύ")


@pytest.mark.parametrize("text", [*COURTESIES, *MORE, "Pourquoi ?"])
def test_small_talk_is_recognized(text: str) -> None:
    """Wrong: thanks or a nod trigger a recall."""
    assert is_small_talk(text)


@pytest.mark.parametrize(
    "text",
    [
        *FOREIGN,
        "Who am I?",
        "What did I say yesterday?",
        "Thanks! What have I to do today?",
        "Thanks, and where do I live?",
        "ok, book the usual table",
        "My dog is fine, thanks",
        "Hi, I'm Ana",
        "No, the blue one",
        "Danke, wo wohne ich?",
        "धन्यवाद, मैं कहाँ रहता हूँ?",
        "Kiitos, missä minä asun?",
        "谢谢 我住在哪里",
        "x" * 10_000,
    ],
)
def test_a_question_or_statement_is_not_small_talk(text: str) -> None:
    """Wrong: a question that begins politely is treated as small talk."""
    assert not is_small_talk(text)


@given(st.text())
def test_any_text_can_be_looked_at(text: str) -> None:
    """Wrong: some text raises, or surrounding blanks change the answer."""
    assert is_small_talk(text) in (True, False)
    assert is_small_talk(f"  {text}\n") == is_small_talk(text) or len(text) > 100


_SAID = [Message(role="user", name=name, content="Thanks!") for name in ("Caroline", "Melanie")]
SHOWN = sources([Entry("s", n, one, 1, n, "t", DAY) for n, one in enumerate(_SAID, 1)], ["user"])


def finding(text: str, **fields: object) -> Candidate:
    return Candidate(text, "user", "other", 1, "Thanks!", None, None, 1, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "Caroline appreciates Melanie's support.",
        "Melanie is glad to hear Caroline's news.",
        "Caroline thinks Melanie is amazing.",
        "The user is excited about the journey.",
        "Caroline agrees that relaxing is key.",
        "Caroline feels thankful for the kind words of her friend.",
    ],
)
def test_a_mood_or_a_courtesy_is_not_a_fact(text: str) -> None:
    """Wrong: a mood or a courtesy is stored as a fact."""
    assert is_chatter(finding(text), SHOWN)


@pytest.mark.parametrize(
    "text",
    [
        "Caroline is excited about her trip to Rome.",
        "Melanie enjoys pottery.",
        "Caroline feels safe at the LGBTQ centre.",
        "Caroline is proud of her son.",
        "Melanie hopes to adopt a child.",
        "Caroline thinks of 3 things.",
        "Caroline has a good friend.",
        "Caroline moved.",
        "Caroline freut sich auf den Umzug.",
    ],
)
def test_an_informative_finding_is_not_small_talk(text: str) -> None:
    """Wrong: a wish, a preference or an achievement is dropped as small talk."""
    assert not is_chatter(finding(text), SHOWN)


def test_a_plan_or_a_change_of_a_fact_is_not_small_talk() -> None:
    """Wrong: "is not happy any more", or a plan, is dropped as a mood."""
    assert not is_chatter(finding("Caroline is happy.", relation="end", related=("x",)), SHOWN)
    assert not is_chatter(finding("Caroline looks forward to seeing friends.", kind="plan"), SHOWN)


QUESTION = "Where do I live?"


def nothing(text: str, *, user: bool = False, question: str = QUESTION) -> bool:
    languages = languages_of(question)
    return tells_nothing(frozenset(words(question, languages)), languages, text, user)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (QUESTION, "I don't know."),
        (QUESTION, "I don't know where you live."),
        (QUESTION, "Sorry, I don't have that information yet."),
        (QUESTION, "I'm not sure where you live, you haven't told me."),
        (QUESTION, "I'm afraid I can't find any record of where you live."),
        (QUESTION, "Das weiß ich leider nicht."),
        (QUESTION, "Lo siento, no lo sé."),
        (QUESTION, "Je ne sais pas, désolé."),
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
def test_an_answer_that_nobody_knew_is_uninformative(question: str, answer: str) -> None:
    """Wrong: an old "I don't know", in any language, is recalled instead of a later answer."""
    assert nothing(answer, question=question)


@pytest.mark.parametrize(
    ("question", "answer", "user"),
    [
        ("Wo wohne ich?", "Du wohnst in Lissabon.", False),
        ("Где я живу?", "Ты живёшь в Москве.", False),
        ("Is my dog's name Rex?", "My dog's name is Rex.", True),
    ],
)
def test_a_short_answer_is_informative(question: str, answer: str, user: bool) -> None:
    """Wrong: an answer is dropped, because it is in another language or only confirms."""
    assert not nothing(answer, user=user, question=question)


@pytest.mark.parametrize("question", [QUESTION, "where do i live ?", "So where do I live?"])
def test_a_repeated_question_is_uninformative(question: str) -> None:
    """Wrong: an unanswered question is recalled instead of its answer."""
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
def test_an_answer_with_words_of_the_question_is_informative(text: str, user: bool) -> None:
    """Wrong: an answer is dropped because it repeats the question's words, or expresses doubt."""
    assert not nothing(text, user=user)


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
def test_a_question_within_a_longer_message_is_recognized(text: str, again: bool) -> None:
    """Wrong: a message that contains the question is recalled instead of the answer."""
    question = "Which city do I live in?"
    languages = languages_of(question)
    assert repeats(frozenset(words(question, languages)), languages, text) is again


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("She enrolled in marine biology, can you believe it?", 0),
        ("It moved to Friday, didn't it?", 0),
        ("Can you believe it? how to cite a map", 100),
        ("what time does my flight leave again", 100),
        ("quick q what version of postgres is prod on", 100),
        ("dinner invite. what day is choir rehearsal", 71),
        ("I take 50 mcg of it, can I have coffee?", 40),
        ("When I am home I call her", 0),
    ],
)
def test_only_the_asking_part_of_a_message_is_a_question(text: str, asks: int) -> None:
    """Wrong: a statement beside a question counts as one, or a question needs its question mark."""
    assert question_share(text) == asks
