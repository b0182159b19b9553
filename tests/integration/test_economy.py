"""Contexts show what bears on the question, and no more."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_memory import AgentMemory, NoteMemory, StaticMemory, VectorMemory


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    with AgentMemory(
        store=f"sqlite:///{tmp_path}/m.db",
        blocks=[VectorMemory(), NoteMemory(), StaticMemory(facts=["Prices are in euros."])],
        recall_timeout=60,
    ) as opened:
        yield opened


def say(memory: AgentMemory, session: str, *texts: str) -> None:
    roles = ("user", "assistant")
    said = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    memory.update(session, said, user_id="ana")


def shown(memory: AgentMemory, question: str) -> list[str]:
    context = memory.get("now", question, user_id="ana")
    return [one.text for one in context.recalls if one.block != "static"]


def test_a_question_that_was_asked_in_vain_hides_nothing(memory: AgentMemory) -> None:
    """Wrong: once nobody knew an answer, what tells it is never recalled again."""
    say(memory, "mon", "By the way, I moved to Lisbon last week.", "Congratulations on the move!")
    say(memory, "tue", "What is the weather where I live?", "I don't know where you live.")
    for day in range(20):
        say(memory, f"day-{day}", "Where do I live?", "Sorry, I don't know where you live.")
    memory.flush()
    found = shown(memory, "Where do I live?")
    assert any("Lisbon" in text for text in found)
    assert not any("Sorry" in text for text in found)


def test_thanks_bring_nothing_but_what_is_always_there(memory: AgentMemory) -> None:
    """Wrong: "ok thanks" is answered with dozens of memories; or what holds for everyone goes."""
    say(memory, "mon", "Thanks, my cat Mia is ok.", "Good to hear, thanks!")
    memory.user("ana").notes().add("Thanks are to be short.")
    memory.flush()
    for courtesy in ("ok thanks", "Bye!", "👍", "Danke dir", "谢谢"):
        context = memory.get("now", courtesy, user_id="ana")
        assert [one.text for one in context.recalls] == ["Prices are in euros."]
    assert memory.search("thanks", user_id="ana")
    assert any("Mia" in text for text in shown(memory, "Thanks! How is my cat Mia?"))


def test_what_bears_much_less_on_it_than_the_best_is_left_out(tmp_path: Path) -> None:
    """Wrong: contexts are filled up to their bound, whatever is asked."""
    url = f"sqlite:///{tmp_path}/m.db"
    with AgentMemory(store=url, recall_timeout=60, min_relevance=0) as memory:
        say(memory, "mon", "My telescope is a refractor, bought in Jena in 2019.", "Lovely!")
        for day in range(30):
            say(memory, f"day-{day}", f"On day {day} we looked at the sky for a while.", "I see.")
        memory.flush()
        everything = shown(memory, "Where did I buy my telescope?")
        told = {len(shown(memory, text)) for text in ("I look at the sky.", "The sky today?")}
    with AgentMemory(store=url, recall_timeout=60) as memory:
        found = shown(memory, "Where did I buy my telescope?")
        assert "Jena" in found[0]
        assert len(found) < len(everything)
        assert len(shown(memory, "I look at the sky.")) <= max(told)
        explained = memory.explain("Where did I buy my telescope?", user_id="ana")
        assert any("much less" in one.why for one in explained.left_out)


def test_without_an_embedder_foreign_requests_bring_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: words alone know no quiet, and every request brings whatever shares a word."""
    monkeypatch.setattr("agent_memory.models.embedders.local.is_installed", lambda: False)
    with AgentMemory(store=f"sqlite:///{tmp_path}/m.db", recall_timeout=60) as memory:
        for day in range(60):
            say(memory, f"d-{day}", f"On day {day} I went for a walk in the park.", "How nice.")
        say(memory, "tea", "I bought a teapot in Kyoto.", "What a find!")
        memory.flush()
        assert any("Kyoto" in text for text in shown(memory, "Where is my teapot from?"))
        assert shown(memory, "How many moons does Neptune have in a day?") == []
