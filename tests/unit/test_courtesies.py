"""What only thanks, greets or nods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.small_talk import is_courtesy
from benchmarks.foreign import FOREIGN, SMALL_TALK


@pytest.mark.parametrize("text", SMALL_TALK)
def test_small_talk_is_known(text: str) -> None:
    """Wrong: thanks, or a nod, makes memories come up that nobody asked for."""
    assert is_courtesy(text)


@pytest.mark.parametrize(
    "text",
    [
        "बहुत धन्यवाद!",
        "kiitos paljon",
        "çok teşekkürler",
        "terima kasih",
        "ευχαριστώ πολύ",
        "Pourquoi ?",
    ],
)
def test_small_talk_in_more_languages(text: str) -> None:
    """Wrong: what is written with marks is none of the words of the list, which has it."""
    assert is_courtesy(text)


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
def test_what_asks_or_tells_something_is_none(text: str) -> None:
    """Wrong: a question that begins politely is not answered from memory."""
    assert not is_courtesy(text)


@given(st.text())
def test_any_text_can_be_looked_at(text: str) -> None:
    """Wrong: some text raises, or the same text in capitals is another."""
    assert is_courtesy(text) in (True, False)
    assert is_courtesy(f"  {text}\n") == is_courtesy(text) or len(text) > 100
