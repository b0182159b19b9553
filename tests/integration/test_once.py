"""A write that is retried is stored once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_memory import AgentMemory, Message
from agent_memory.errors import Conflict, InvalidInput, SessionOfAnotherUser
from agent_memory.stores import MemoryStore
from tests.kit import assistant, user


def test_a_retry_may_have_a_new_timestamp_but_no_other_content(url: str) -> None:
    """Wrong: a retry with a new timestamp counts as other content, or other content as a retry."""
    with AgentMemory(url) as memory:
        then = datetime(2024, 5, 1, tzinfo=UTC)
        memory.update("s", user("a", metadata={"x": 1, "y": 2}, created_at=then), key="k")
        same = {"metadata": {"y": 2, "x": 1}, "content": "a", "role": "user"}
        for given in (same, Message(**same), {**same, "created_at": then + timedelta(1)}, [same]):
            assert memory.update("s", given, key="k").end == 1
        for other in (user("a"), assistant("a"), [same, same], {**same, "name": "ann"}):
            with pytest.raises(Conflict):
                memory.update("s", other, key="k")


def test_messages_with_ids_are_stored_once(url: str) -> None:
    """Wrong: a framework that sends its whole list each time has it stored again each time."""
    said = [user(f"m{n}", id=f"id-{n}") for n in range(5)]
    with AgentMemory(url) as memory:
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
def test_an_invalid_key_or_expected_end_is_rejected(terms: dict[str, Any]) -> None:
    """Wrong: an empty key is accepted, and makes all writes one."""
    with AgentMemory(store="memory://") as memory:
        with pytest.raises(InvalidInput):
            memory.update("s", user("a"), **terms)
        assert memory.history("s") == []


def test_idempotency_keys_expire_after_the_configured_time(url: str) -> None:
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


def test_a_retry_by_another_user_is_rejected(url: str) -> None:
    """Wrong: another user's retry under a known key succeeds, or shows if content is equal."""
    with AgentMemory(url) as memory:
        memory.update("s", user("a"), user_id="ann", key="k")
        for text in ("a", "b"):
            with pytest.raises(SessionOfAnotherUser):
                memory.update("s", user(text), user_id="ben", key="k")


def test_a_context_shows_a_retried_message_once(url: str) -> None:
    """Wrong: after a retry the context shows a message twice, or misses another process's."""
    with AgentMemory(url) as memory, AgentMemory(url) as other:
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


def test_a_retried_tool_call_writes_one_note(url: str) -> None:
    """Wrong: a retried tool call stores a second note."""
    with AgentMemory(url) as memory:
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
