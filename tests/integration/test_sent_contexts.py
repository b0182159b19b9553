"""The prompt log is exact to the byte, as long as its source data exists."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, Message, StaticMemory, Summarize, Trim, VectorMemory
from agent_memory.core.records import Record
from agent_memory.core.system_collections import PROMPT_LOG, PROMPT_TEXTS
from tests.histories import call, result
from tests.kit import user

BLOCKS = [VectorMemory(), StaticMemory(facts=["The shop opens at nine."])]


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    with AgentMemory(
        store="memory://", keep_contexts=True, max_tokens=1500, blocks=BLOCKS, min_relevance=0
    ) as memory:
        yield memory


def pair(text: str, answer: str = "I see.") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]


def remember_move(memory: AgentMemory) -> None:
    memory.update("before", pair("I moved to Lisbon with Bruno in May."), user_id="ana")
    memory.end("before")


def ask_about_houses(memory: AgentMemory) -> None:
    for number in range(14):
        memory.update(f"c{number}", pair(f"In Lisbon I saw house {number}. " * 9), user_id="ana")
        memory.end(f"c{number}")
    memory.update("s", pair("Hello"), user_id="ana")
    memory.get("s", "Which house did I see in Lisbon?", user_id="ana")


def records(memory: AgentMemory) -> list[str]:
    there = memory.components.store.all_records()
    names = (PROMPT_LOG.name, PROMPT_TEXTS.name)
    return [f"{one.text} {one.metadata}" for block, one in there if block in names]


@pytest.mark.parametrize("strategy", [Trim(), Summarize(max_summary_tokens=100)])
def test_the_prompt_log_returns_each_turn_exactly(strategy: Any) -> None:
    """Wrong: the prompt log is rebuilt from a window that has moved on."""
    chance = random.Random(7)
    sent = {}
    with AgentMemory(
        store="memory://", keep_contexts=True, max_tokens=800, overflow=strategy, blocks=BLOCKS
    ) as memory:
        memory.update("s", {"role": "system", "content": "Be kind & brief."}, user_id="ana")
        for number in range(12):
            question = f"Question {number} on Lisbon: " + "word " * chance.randint(1, 60)
            turn = memory.before_turn("s", question, user_id="ana")
            sent[memory.after_turn(turn, "Answer. " * chance.randint(1, 90)).end - 1] = turn
        told = memory.contexts("s", user_id="ana")
    assert [one.turn for one in told] == sorted(sent)
    for one in told:
        assert one.exact
        assert not one.missing
        assert one.messages == sent[one.turn].messages
        assert one.context.recalls == [] or one.context.recalls[0].text
        assert one.context.tokens == sent[one.turn].context.tokens
    assert any(one.shortened for one in told) or any(one.window[0] > 1 for one in told[1:])


def test_the_prompt_log_contains_every_round_of_tools(memory: AgentMemory) -> None:
    """Wrong: the prompt log has only one of several rounds of tools."""
    asked: list[dict[str, Any]] = [{"role": "user", "content": "What time is it?"}]
    first = memory.before_turn("s", asked, user_id="ana")
    asked += [call(["c"], "now"), result("c", "12:00")]
    second = memory.before_turn("s", asked, user_id="ana")
    memory.after_turn(second, "Noon.")
    told = memory.contexts("s")
    # before a session's first message only the latest context is kept
    assert [one.messages for one in told] == [second.messages]
    first = memory.before_turn("s", "And now?", user_id="ana")
    asked = [{"role": "user", "content": "And now?"}, *asked[1:]]
    second = memory.before_turn("s", asked, user_id="ana")
    sent = [one.messages for one in memory.contexts("s", after=4)]
    assert sent == [first.messages, second.messages]


def test_the_prompt_log_contains_a_regenerated_turn(memory: AgentMemory) -> None:
    """Wrong: the log lacks the request that led to the stored answer."""
    memory.after_turn(memory.before_turn("s", "Which city?", user_id="ana"), "Rome.")
    memory.remember("Ana lives in the city of Lisbon.", user_id="ana")
    again = memory.regenerate("s", user_id="ana")
    memory.after_turn(again, "Lisbon.")
    assert "Lisbon" in str(again.messages)
    assert [one.messages for one in memory.contexts("s", user_id="ana")] == [again.messages]


def test_the_prompt_log_survives_a_restart(tmp_path: Path) -> None:
    """Wrong: the prompt log is lost at a restart, or is written without the setting."""
    path = tmp_path / "m.db"
    with AgentMemory(path, keep_contexts=True, blocks=BLOCKS, min_relevance=0) as memory:
        remember_move(memory)
        memory.remember("Ana is allergic to nuts.", user_id="ana")
        turn = memory.before_turn("s", "Where did I move? Can I eat nuts?", user_id="ana")
        memory.after_turn(turn, "In Lisbon.")
    with AgentMemory(path, blocks=BLOCKS, min_relevance=0) as memory:
        [told] = memory.contexts("s")
        assert told.exact
        assert told.messages == turn.messages
        assert {one.block for one in told.context.recalls} == {"vector", "notes", "static"}
        memory.get("s", "Another question", user_id="ana")
        assert len(memory.contexts("s")) == 1  # without the setting nothing is added


def test_a_deleted_session_leaves_the_prompt_log(memory: AgentMemory, monkeypatch: Any) -> None:
    """Wrong: a deleted chat survives in the prompt log of other chats, or its own survives."""
    remember_move(memory)
    memory.update("t", pair("Hello"), user_id="ana")
    memory.get("t", "Where did I move?", user_id="ana")
    with monkeypatch.context() as patch:  # in several steps
        patch.setattr("agent_memory.engine.edit.delete._is_small", lambda heads: False)
        memory.delete("t")
    assert records(memory) == []
    turn = memory.before_turn("s", "Where did I move?", user_id="ana")
    assert "Bruno" in str(turn.messages)
    memory.after_turn(turn, "I would have to look.")
    assert memory.contexts("s")[0].exact
    assert "Bruno" in str(records(memory))
    memory.delete("before", user_id="ana")
    [told] = memory.contexts("s")
    assert not told.exact
    assert told.missing
    assert "Bruno" not in str(records(memory))
    assert "Bruno" not in str(told)
    memory.delete("s")
    assert records(memory) == []


def test_popped_messages_leave_the_prompt_log(memory: AgentMemory) -> None:
    """Wrong: the prompt log still shows a popped message, or a context that recalled one."""
    for number in range(3):
        turn = memory.before_turn("s", f"Question {number}", user_id="ana")
        memory.after_turn(turn, f"Answer {number}")
    memory.end("s")
    memory.update("other", pair("Hello"), user_id="ana")
    memory.get("other", "Question 2", user_id="ana")
    assert "Question 2" in str(memory.contexts("other")[-1].context.recalls)
    memory.pop("s", 2)
    assert [one.turn for one in memory.contexts("s")] == [1, 3]
    told = memory.contexts("other")[-1]
    assert "Answer 2" not in str(told.context.recalls)
    assert not told.exact


def test_a_deleted_note_leaves_the_prompt_log(memory: AgentMemory) -> None:
    """Wrong: a deleted note survives in the prompt log."""
    note = memory.remember("Ana is allergic to nuts.", user_id="ana")
    turn = memory.before_turn("s", "Can I eat nuts?", user_id="ana")
    memory.after_turn(turn, "Better not.")
    assert memory.contexts("s")[0].exact
    memory.user("ana").notes().delete(note.id)
    [told] = memory.contexts("s")
    assert told.missing == 1
    assert not told.exact
    assert "allergic" not in str(records(memory))


@pytest.mark.parametrize(
    ("strategy", "retention"), [(Summarize(max_summary_tokens=100), "forever"), (Trim(), "window")]
)
def test_the_prompt_log_stores_no_text_that_no_context_shows(strategy: Any, retention: Any) -> None:
    """Wrong: the prompt log has expired messages, or a text that none of its contexts shows."""
    fields: dict[str, Any] = {"overflow": strategy, "retention": retention, "blocks": []}
    with AgentMemory(store="memory://", keep_contexts=True, max_tokens=600, **fields) as memory:
        for number in range(20):
            rule = {"role": "system", "content": f"Rule {number} holds."}
            memory.update("s", [rule, *pair(f"Pet {number} is new" + " word" * 40)], user_id="ana")
            memory.get("s", "Which pet?")
        if retention == "forever":
            memory.edit("s", lambda log: [*log[:4], *log[5:]])
        told, expired = memory.contexts("s"), memory.head("s").expired
        assert told
        assert all(one.turn > expired for one in told)
        assert (expired > 10) is (retention == "window")
        shown = [message["content"] for one in told for message in one.messages]
        kept = memory.components.store.records(PROMPT_TEXTS.name, "session:s")
        assert {json.loads(one.text)["content"] for one in kept} <= {*shown}


def test_the_prompt_log_explains_left_out_records(memory: AgentMemory) -> None:
    """Wrong: the prompt log does not say why a record was left out, or quotes a deleted session."""
    ask_about_houses(memory)
    told = memory.contexts("s")[-1]
    assert told.left_out
    assert all(one.why and one.recall.text.startswith("In Lisbon") for one in told.left_out)
    store = memory.components.store
    for head in memory.sessions(prefix="c"):  # their deletions are interrupted
        store.move(replace(head, deleting=True))
    assert not any(one.recall.text for one in memory.contexts("s")[-1].left_out)


def test_left_out_records_never_show_another_users_text(memory: AgentMemory) -> None:
    """Wrong: a context, stored before or later, shows another user's text under a reused id."""
    ask_about_houses(memory)
    memory.get("new", "Which house did I see in Lisbon?", user_id="ana")
    for number in range(30):
        memory.delete(f"c{number}", user_id="ana")
        memory.update(f"c{number}", pair("My safe opens with 4711."), user_id="ben")
    memory.update("new", pair("Hello"), user_id="ana")
    (told,) = memory.contexts("new", user_id="ana")
    assert told.left_out
    assert "4711" not in str([told, memory.contexts("s", user_id="ana")])


def test_questions_before_a_session_began_stay_with_their_user(memory: AgentMemory) -> None:
    """Wrong: a question asked before a session began is shown to another user who begins it."""
    remember_move(memory)
    memory.get("plan", "Is it open?", user_id="ben")
    memory.get("plan", "Where does Bruno live?", user_id="ana")
    memory.update("plan", pair("Hello"), user_id="ben")
    assert [one.question for one in memory.contexts("plan", user_id="ben")] == ["Is it open?"]
    assert "Bruno" not in str(records(memory))


def test_questions_in_an_anonymous_session_stay_with_their_user(memory: AgentMemory) -> None:
    """Wrong: the user who takes over an anonymous session reads another's question."""
    remember_move(memory)
    memory.update("s", pair("The door is green."))
    memory.get("s", "Where did I move to?", user_id="ana")
    memory.update("s", pair("I am Ben."), user_id="ben")
    assert memory.contexts("s", user_id="ben") == []
    assert "Lisbon" not in str(records(memory))

    memory.update("t", pair("The door is green."))
    memory.get("t", "Where did I move to?", user_id="ana")
    memory.update("t", pair("I am Ana."), user_id="ana")
    (told,) = memory.contexts("t", user_id="ana")
    assert "Lisbon" in str(told.messages)


@pytest.mark.parametrize("ends", ["before it is written", "meanwhile"])
def test_a_late_prompt_is_not_shown_in_a_recreated_session(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Wrong: a prompt sent while its session was deleted appears in the next one under the id."""
    remember_move(memory)
    memory.update("s", pair("Hello"), user_id="ana")
    asked = [Message(role="user", content="Where does Bruno live?")]
    send = memory.components.contexts.begin("s", asked, user_id="ana")
    store = memory.components.store
    put = store.put_records

    def begin_anew() -> None:
        monkeypatch.setattr(store, "put_records", put)
        memory.delete("s", user_id="ana")
        memory.update("s", pair("Hi"), user_id="ben")

    def put_then(block: str, given: Sequence[Record], **more: Any) -> None:
        put(block, given, **more)
        begin_anew()

    if ends == "meanwhile":
        monkeypatch.setattr(store, "put_records", put_then)
    else:
        begin_anew()
    send(asked)
    assert memory.contexts("s", user_id="ben") == []
    assert "Bruno" not in str(records(memory))
    memory.get("s", "Is it open?", user_id="ben")
    assert [one.question for one in memory.contexts("s", user_id="ben")] == ["Is it open?"]


@pytest.mark.parametrize("deleting", ["user", "session"])
def test_a_deletion_removes_questions_before_the_session(tmp_path: Path, deleting: str) -> None:
    """Wrong: a question asked before a session began survives a deletion by another process."""
    settings: dict[str, Any] = {"store": f"sqlite:///{tmp_path}/m.db", "keep_contexts": True}
    with AgentMemory(**settings) as here, AgentMemory(**settings) as there:
        here.get("s", "Where do I live?", user_id="ana")
        there.update("s", pair("Hello"), user_id="ana")
        if deleting == "user":
            there.delete_user("ana")
        else:
            there.delete("s", user_id="ana")
        here.update("s", pair("Hello again"), user_id="ana")
        assert here.contexts("s", user_id="ana") == []
        here.get("s", "And now?", user_id="ana")
        assert [one.question for one in here.contexts("s", user_id="ana")] == ["And now?"]


def test_a_note_that_a_follow_up_question_recalled_is_shown() -> None:
    """Wrong: the prompt log misses a note that only the question before leads to."""
    with AgentMemory("memory://", keep_contexts=True, recall_timeout=60) as memory:
        for text in ("Tiago lost his job at the bank.", "Rui broke his arm.", "Ana likes jazz."):
            memory.remember(text, user_id="ana")
        memory.update("s", user("Where does Tiago work?"), user_id="ana")
        turn = memory.before_turn("s", "What did he do before?", user_id="ana")
        (recall,) = turn.context.recalls
        assert recall.text == "Tiago lost his job at the bank."
        memory.after_turn(turn, "He worked at a bank.")
        (sent,) = memory.contexts("s", user_id="ana")
        assert sent.exact
        assert sent.messages == turn.messages
