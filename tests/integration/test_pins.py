"""Pinned messages stay in the window or are recalled first, within budget and for their user."""

from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, ExtractiveMemory, InvalidInput, Summarize, Trim, operations
from agent_memory.ltm_blocks.extractive import ImportanceScorer
from tests.histories import call, result
from tests.integration.fact_model import Model, absorbed, dated, remembering

STRATEGIES = [
    Trim(), Trim(by="importance"), Summarize(max_summary_tokens=60), Trim(take_messages=2),
]  # fmt: skip


def chat(memory: AgentMemory, first: int, last: int) -> None:
    for i in range(first, last):
        memory.update("s", {"role": "user", "content": f"Message {i} of many, a short one."})
        memory.update("s", {"role": "assistant", "content": f"Answer {i}."})


def shown(memory: AgentMemory) -> str:
    context = memory.get("s")
    assert context.tokens <= context.max_tokens
    return str([one for one in context.to_messages() if "<summary>" not in str(one["content"])])


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_a_pinned_message_stays_in_the_window(strategy: Any) -> None:
    """Wrong: a pinned message leaves the window, or stays after it was unpinned."""
    with AgentMemory("memory://", max_tokens=400, overflow=strategy, blocks=[]) as memory:
        session = memory.session("s")
        chat(memory, 0, 3)
        session.pin(3)
        session.pin(4)  # pinning an answer pins its question
        chat(memory, 3, 60)
        assert "Message 1 of" in shown(memory)
        assert "Answer 1." in shown(memory)
        assert strategy.by == "importance" or "Message 0 of" not in shown(memory)
        session.unpin(3)
        session.unpin(4)
        chat(memory, 60, 90)
        assert strategy.by == "importance" or "Message 1 of" not in shown(memory)


def test_pinning_an_old_message_returns_it_to_the_window() -> None:
    """Wrong: pinning an old message has no effect, or shows a tool's result without its call."""
    with AgentMemory("memory://", max_tokens=400, overflow=Trim(), blocks=[]) as memory:
        session = memory.session("s")
        memory.update("s", {"role": "user", "content": "Look it up."})
        memory.update("s", call(["c"]))
        memory.update("s", result("c", "It is QX-7."))
        chat(memory, 0, 40)
        assert "QX-7" not in shown(memory)
        session.pin(3)
        session.pin(3)
        assert "QX-7" in shown(memory)
        roles = [one["role"] for one in memory.get("s").to_messages()][:3]
        assert roles == ["user", "assistant", "tool"]
        chat(memory, 40, 80)
        assert "QX-7" in shown(memory)
        with pytest.raises(InvalidInput):
            session.pin(9999)


def test_pins_leave_room_for_new_messages() -> None:
    """Wrong: pins fill the window, so new messages are hidden, or each one causes a cut."""
    with AgentMemory("memory://", max_tokens=400, overflow=Trim(), blocks=[]) as memory:
        starts = set()
        for i in range(60):
            chat(memory, i, i + 1)
            memory.session("s").pin(2 * i + 1)
            head = memory.head("s")
            assert head.window_tokens <= 400
            starts.add(head.start)
            assert f"Answer {i}." in shown(memory)
        assert len(starts) < 30


def test_a_pin_does_not_apply_to_a_reused_message_number() -> None:
    """Wrong: a pin applies to a new message that reuses the popped message's number."""
    with AgentMemory("memory://", max_tokens=400, overflow=Trim(), blocks=[]) as memory:
        chat(memory, 0, 2)
        memory.session("s").pin(3)
        memory.pop("s", 2)
        chat(memory, 7, 60)
        assert "Message 7 of" not in shown(memory)


def test_a_pin_stays_on_its_message_when_an_edit_renumbers_it() -> None:
    """Wrong: an edit of an earlier message ends the pins of later messages, or moves them."""
    with AgentMemory("memory://", max_tokens=400, overflow=Trim(), blocks=[]) as memory:
        chat(memory, 0, 4)
        memory.session("s").pin(3)
        memory.session("s").pin(5)
        memory.edit("s", lambda log: ["Hello.", "Hello.", *log])
        chat(memory, 7, 60)
        assert ["Message 0" in shown(memory), "Message 3" in shown(memory)] == [False, False]
        assert ["Message 1 " in shown(memory), "Message 2 " in shown(memory)] == [True, True]


def test_a_pinned_note_is_recalled_first_with_any_question() -> None:
    """Wrong: a pinned note is not recalled because it shares no word with the question."""
    with AgentMemory("memory://") as memory:
        ana = memory.user("ana")
        allergy = memory.remember("Ana is allergic to peanuts.", user_id="ana")
        memory.remember("The harbour opens at seven in the morning.", user_id="ana")
        question = "When does the harbour open in the morning?"
        assert len(memory.get("s", question, user_id="ana").recalls) == 1
        ana.pin(allergy.id)
        recalls = memory.get("s", question, user_id="ana").recalls
        assert ["peanuts" in one.text for one in recalls] == [True, False]
        assert recalls[0].pinned
        assert memory.get("t", question, user_id="ben").recalls == []
        assert memory.get("s", "Thanks!", user_id="ana").recalls == []
        ana.unpin(allergy.id)
        assert len(memory.get("s", question, user_id="ana").recalls) == 1


def test_pinned_recalls_stay_within_the_budget() -> None:
    """Wrong: ten long pins exceed `max_recall_tokens`."""
    with AgentMemory("memory://", max_tokens=1000, max_recall_tokens=200) as memory:
        for i in range(10):
            note = memory.remember(f"Rule {i}: " + "never do this again " * 8, user_id="ana")
            memory.user("ana").pin(note.id)
        context = memory.get("s", "What about the harbour?", user_id="ana")
        assert 0 < len(context.recalls) < 10
        assert sum(one.tokens for one in context.recalls) <= 200
        assert context.tokens <= 1000


def test_a_pinned_fact_is_recalled_first() -> None:
    """Wrong: a fact cannot be pinned, or a superseded one is recalled for its pin."""
    model = Model()
    model.tell("I live in Oslo", "Lives in Oslo.", category="home")
    model.tell("I row", "Rows.", category="sport")
    with remembering(model) as memory:
        absorbed(memory, "a", dated("I live in Oslo"), dated("I row"))
        home = next(one for one in memory.user("ada").facts() if "Oslo" in one.text)
        memory.user("ada").pin(home.id)
        found = memory.get("new", "Does she row?", user_id="ada").extracted_facts
        assert [one.text for one in found] == ["Lives in Oslo.", "Rows."]
        memory.user("ada").forget(home.id)
        found = memory.get("new", "Does she row?", user_id="ada").extracted_facts
        assert [one.text for one in found] == ["Rows."]


@pytest.mark.parametrize("tie", ["refine", "update", "contradict"])
def test_a_pin_applies_to_the_fact_that_replaced_the_pinned_one(tie: str) -> None:
    """Wrong: a newer version of a pinned fact is not recalled first, or cannot be unpinned."""
    model, old = Model(), "Is allergic to peanuts."
    model.tell("I avoid peanuts", old, category="health")
    model.tell("and cashews", "Is allergic to nuts.", (tie, old), category="health")
    with remembering(model, min_relevance=0.5) as memory:
        ada, question = memory.user("ada"), "When does the harbour open?"
        absorbed(memory, "a", dated("I avoid peanuts"))
        (fact,) = ada.facts()
        ada.pin(fact.id)
        absorbed(memory, "b", dated("and cashews", "2024-02-05"))
        (recall,) = memory.get("new", question, user_id="ada").recalls
        assert (recall.text, recall.pinned) == ("Is allergic to nuts.", True)
        ada.unpin(recall.id)
        assert memory.get("new", question, user_id="ada").recalls == []


def test_pins_are_exported_and_deleted_with_their_session(tmp_path: Path) -> None:
    """Wrong: a snapshot loses pins, or a deletion leaves them."""
    with AgentMemory("memory://", max_tokens=400, overflow=Trim(), blocks=[]) as memory:
        memory.update("s", {"role": "user", "content": "Keep this: QX-7."}, user_id="ana")
        memory.session("s", "ana").pin(1)
        memory.session("s", "ana").export(tmp_path / "s.jsonl")
        memory.delete("s")
        assert "'pinned'" not in str(list(memory.components.store.all_records()))
    with AgentMemory("memory://", max_tokens=400, overflow=Trim(), blocks=[]) as memory:
        operations.import_session(memory, tmp_path / "s.jsonl")
        chat(memory, 0, 60)
        assert "QX-7" in shown(memory)


def test_facts_recalled_often_rank_higher_if_configured() -> None:
    """Wrong: recalls are counted without the setting, or do not change the ranking with it."""
    model = Model()
    model.tell("I sail", "Sails on the lake on Sundays.", category="sport")
    model.tell("I row", "Rows on the lake on Fridays.", category="sport")
    question = "What about the lake?"
    often = ImportanceScorer(relevance=0.01, recency=0, use=0, confidence=0, recalled=1)
    for scorer in (often, ImportanceScorer()):
        block = ExtractiveMemory(scorer=scorer)
        with remembering(model, block=block) as memory:
            absorbed(memory, "a", dated("I sail"), dated("I row"))
            for _ in range(5):
                memory.get("new", "Does she sail on Sundays?", user_id="ada")
            kept = str(list(memory.components.store.all_records()))
            assert ("'recalled'" in kept) == (scorer is often)
            found = memory.search(question, user_id="ada", blocks=["extractive"])
            if scorer is often:
                assert found[0].text.startswith("Sails")
                assert found[0].views["recalled"] > found[1].views["recalled"]
                memory.delete_user("ada")
                assert "'recalled'" not in str(list(memory.components.store.all_records()))


def test_distinct_facts_rank_higher_if_configured() -> None:
    """Wrong: a fact that others repeat ranks as high as a distinct one."""
    scorer = ImportanceScorer(relevance=0, recency=0, use=0, confidence=0, distinct=1)
    model = Model()
    for day in ("Monday", "Tuesday", "Friday"):
        model.tell(f"I row on {day}", f"Rows on the lake on {day}.", category="sport")
    model.tell("I fear heights", "Fears heights.", category="fear")
    with remembering(model, block=ExtractiveMemory(scorer=scorer)) as memory:
        absorbed(memory, "a", *[dated(quote) for quote in model.finds])
        best = memory.get("new", "Rows she on the lake, and what of heights?", user_id="ada")
    assert best.extracted_facts[0].text == "Fears heights."
