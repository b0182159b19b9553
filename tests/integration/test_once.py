"""A write that is retried, and a context that is sent again, is stored once."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_memory import AgentMemory, Trim
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry
from agent_memory.errors import Conflict, InvalidInput, InvalidMessage, SessionOfAnotherUser
from agent_memory.stores import MemoryStore
from tests.kit import assistant, user


def texts(entries: list[Entry]) -> list[str]:
    return [entry.message.text() for entry in entries]


def opened(url: str, **fields: Any) -> AgentMemory:
    return AgentMemory(store=url, **fields)


def test_a_retry_after_a_restart(url: str) -> None:
    """Wrong: a retry after a crash stores the message twice."""
    with opened(url) as memory:
        first = memory.update("s", user("hello"), user_id="u", key="k")
    with opened(url) as memory:
        assert memory.update("s", user("hello"), user_id="u", key="k") == first
        memory.update("s", assistant("hi"))
        again = memory.update("s", user("hello"), user_id="u", key="k")
        assert (again.end, again.total) == (first.end, first.total)
        with pytest.raises(Conflict):
            memory.update("s", user("hello!"), key="k")
        assert texts(memory.history("s")) == ["hello", "hi"]


def test_the_same_content_is_what_is_said(url: str) -> None:
    """Wrong: a retry with a new timestamp counts as other content, or other content as a retry."""
    with opened(url) as memory:
        then = datetime(2024, 5, 1, tzinfo=UTC)
        memory.update("s", user("a", metadata={"x": 1, "y": 2}, created_at=then), key="k")
        same = {"metadata": {"y": 2, "x": 1}, "content": "a", "role": "user"}
        for given in (same, Message(**same), {**same, "created_at": then + timedelta(1)}, [same]):
            assert memory.update("s", given, key="k").end == 1
        for other in (user("a"), assistant("a"), [same, same], {**same, "name": "ann"}):
            with pytest.raises(Conflict):
                memory.update("s", other, key="k")


def test_messages_with_ids(url: str) -> None:
    """Wrong: a framework that sends its whole list each time has it stored again each time."""
    said = [user(f"m{n}", id=f"id-{n}") for n in range(5)]
    with opened(url) as memory:
        for count in (1, 3, 3, 5):
            head = memory.update("s", said[:count])
            assert (head.end, len(memory.history("s"))) == (count, count)
        assert memory.update("s", said[1]).end == 3  # the list does not matter
        assert memory.history("s")[0].message.to_dict()["id"] == "id-0"
        with pytest.raises(Conflict):
            memory.update("s", user("other", id="id-1"))
        assert memory.update("t", said[0]).end == 1
        assert memory.update("s", user("number", id=7)).end == 6
        assert memory.update("s", user("number", id=7)).end == 6
        for no_id in ({"id": ""}, {"id": None}, {"id": ["x"]}, {"id": True}):
            for _ in range(2):
                memory.update("u", user("same", **no_id))
        assert memory.update("u", user("last")).end == 9


@pytest.mark.parametrize(
    "terms", [{"key": ""}, {"key": " "}, {"key": 5}, {"expected_end": -1}, {"expected_end": "1"},
              {"expected_end": True}],
)  # fmt: skip
def test_terms_that_are_none(terms: dict[str, Any]) -> None:
    """Wrong: an empty key is accepted, and makes all writes one."""
    with AgentMemory(store="memory://") as memory:
        with pytest.raises(InvalidInput):
            memory.update("s", user("a"), **terms)
        assert memory.history("s") == []


def test_keys_are_kept_as_long_as_the_setting_says(url: str) -> None:
    """Wrong: keys never expire, or expire before `keep_keys` has passed."""
    store = MemoryStore()
    with AgentMemory(store=store, keep_keys=timedelta(hours=1)) as memory:
        memory.update("s", user("a"), key="old")
        memory.update("s", user("b"), key="new")
        (old, new) = store.keys("s")
        store.put_keys("s", [replace(old, at=old.at - timedelta(hours=2))])
        assert memory.update("s", user("b"), key="new").end == 2
        assert memory.update("s", user("a"), key="old").end == 3
        assert [one.name for one in store.keys("s")] == [new.name, old.name]
    with AgentMemory(store=store, keep_keys="forever") as memory:
        first, second = store.keys("s")
        store.put_keys("s", [replace(first, at=first.at - timedelta(days=4000))])
        assert memory.update("s", user("b"), key="new").end == 2
        assert memory.update("s", user("c"), key="c").end == 4
        assert len(store.keys("s")) == 3
    assert second.seq == 3


def test_a_retry_is_the_users_own(url: str) -> None:
    """Wrong: another user's retry under a known key succeeds, or shows if content is equal."""
    with opened(url) as memory:
        memory.update("s", user("a"), user_id="ann", key="k")
        for text in ("a", "b"):
            with pytest.raises(SessionOfAnotherUser):
                memory.update("s", user(text), user_id="ben", key="k")


def test_a_retry_is_shown_once(url: str) -> None:
    """Wrong: after a retry the context shows a message twice, or misses another process's."""
    with opened(url) as memory, opened(url) as other:
        memory.update("s", [user("a"), assistant("b")], key="1")
        assert [m["content"] for m in memory.get("s").to_messages()] == ["a", "b"]
        other.update("s", user("c"), key="2")
        memory.update("s", [user("a"), assistant("b")], key="1")
        memory.update("s", user("c"), key="2")
        memory.update("s", [user("c", id="x"), assistant("d", id="y")])
        memory.update("s", [user("c", id="x"), assistant("d", id="y"), user("e", id="z")])
        shown = [m["content"] for m in memory.get("s").to_messages()]
        assert shown == ["a", "b", "c", "c", "d", "e"]
        assert memory.get("s").tokens == other.get("s").tokens


def test_tools_write_once(url: str) -> None:
    """Wrong: a retried tool call stores a second note."""
    with opened(url) as memory:
        session = memory.session("s", "u")
        first = session.call_tool("memory_write", {"text": "Drinks tea."}, key="k")
        assert session.call_tool("memory_write", {"text": "Drinks tea."}, key="k") == first
        refused = session.call_tool("memory_write", {"text": "Likes tea."}, key="k")
        assert "'k'" in refused
        session.call_tool("memory_write", {"text": "Likes tea."}, key="l")
        other = memory.session("s2", "v")
        assert other.call_tool("memory_write", {"text": "Likes coffee."}, key="k") == first
        assert "coffee" not in session.call_tool("memory_read", {"query": "coffee"}, key="k")
        notes = [note.text for note in memory.user("u").notes().all()]
        assert notes == ["Drinks tea.", "Likes tea."]
        assert [note.text for note in memory.user("v").notes().all()] == ["Likes coffee."]


def test_an_agent_whose_first_write_was_retried_is_redacted() -> None:
    """Wrong: an agent whose write was retried is no author, so its deletion leaves text."""
    store = MemoryStore()
    with AgentMemory(store=store) as memory:
        share = memory.share("team")
        share.grant("a", "write")
        share.grant("b", "write")
        share.agent("a").update("s", user("secret"), key="k")
        share.agent("b").update("s", user("open"))
        memory.components.authors.drop("a", _shared(store))
        with AgentMemory(store=store) as another:
            again = another.share("team").agent("a")
            assert again.update("s", user("secret"), key="k").end == 1
            assert another.components.authors.first("a", _shared(store)) == 1


def _shared(store: MemoryStore) -> str:
    (head,) = store.sessions()
    return head.session_id


TURNS = [("Where do I live?", "In Graz."), ("And my dog?", "Rex."), ("What is his name?", "Rex!")]


def said(memory: AgentMemory) -> list[tuple[str, Any]]:
    return [(str(e.message.role), e.message.content) for e in memory.history("s", user_id="ana")]


@pytest.mark.parametrize("role", ["system", "user", "leading"])
@pytest.mark.parametrize("rules", [None, "Be brief."])
def test_what_came_from_the_context_is_not_stored_again(role: Any, rules: str | None) -> None:
    """Wrong: each turn stores the whole context again, recalls included."""
    with AgentMemory("memory://", memory_role=role) as memory:
        memory.remember("Ana lives in Graz and has a dog, Rex.", user_id="ana")
        first = [{"role": "system", "content": rules}] if rules else []
        memory.update("s", first, user_id="ana")
        for question, answer in TURNS:
            messages = memory.get("s", question, user_id="ana").to_messages()
            answered = [*messages, {"role": "assistant", "content": answer}]
            memory.update("s", answered, user_id="ana")
        stored = said(memory)
    expected = [one for q, a in TURNS for one in (("user", q), ("assistant", a))]
    assert [one for one in stored if one[0] != "system"] == expected
    assert [one[1] for one in stored if one[0] == "system"] == ([rules] if rules else [])


def test_a_long_question_and_tool_calls_are_stored_whole() -> None:
    """Wrong: a message that the context shortened is stored shortened."""
    question = "Compare these: " + "many words " * 2000
    function = {"name": "f", "arguments": "{}"}
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    with AgentMemory("memory://", max_tokens=1000, overflow=Trim(), blocks=[]) as memory:
        for _ in range(2):
            messages = memory.get("s", question, user_id="ana").to_messages()
            messages += [call, {"role": "tool", "tool_call_id": "c1", "content": "1"}]
            memory.update("s", [*messages, {"role": "assistant", "content": "a"}], user_id="ana")
        stored = said(memory)
    assert [role for role, _ in stored] == ["user", "assistant", "tool", "assistant"] * 2
    assert stored[0][1] == stored[4][1] == question


def test_recalls_of_another_context_are_refused() -> None:
    """Wrong: another process, or an older context, stores recalls as a system message."""
    with AgentMemory("memory://") as memory:
        memory.remember("Ana lives in Graz.", user_id="ana")
        messages = memory.get("s", "Where do I live?", user_id="ana").to_messages()
        memory.get("s", "Something else about Graz?", user_id="ana")
        sent = json.loads(json.dumps([*messages, {"role": "assistant", "content": "In Graz."}]))
        with pytest.raises(InvalidMessage, match="Pass the new messages alone"):
            memory.update("s", sent, user_id="ana")
        assert said(memory) == []


def test_what_is_said_again_or_popped_is_new() -> None:
    """Wrong: a turn that repeats an earlier one is taken for a copy of the context, and dropped."""
    turn = [{"role": "user", "content": "More."}, {"role": "assistant", "content": "Here."}]
    with AgentMemory("memory://", blocks=[]) as memory:
        for _ in range(3):
            memory.get("s", user_id="ana")
            memory.update("s", turn, user_id="ana")
        assert len(said(memory)) == 6
    user, assistant = {"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}
    with AgentMemory("memory://", blocks=[]) as memory:
        for change in (memory.delete, memory.pop):
            memory.update("s", [user, assistant, {**user, "content": "C"}], user_id="ana")
            sent = memory.get("s", user_id="ana").to_messages()
            change("s")
            before = [content for _, content in said(memory)]
            memory.update("s", [*sent, {**assistant, "content": "D"}], user_id="ana")
            assert [content for _, content in said(memory)] == [*before, "A", "B", "C", "D"]
            memory.delete("s")
