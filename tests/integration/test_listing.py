"""Lists of sessions, and edits of logs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, Entry, VectorMemory
from agent_memory.errors import InvalidInput, MessageTooLarge
from tests.kit import texts

BEGUN = datetime(2026, 3, 1, tzinfo=UTC)


def message(text: str, minutes: int = 0, **more: Any) -> dict[str, Any]:
    at = BEGUN + timedelta(minutes=minutes)
    return {"role": "user", "content": text, "created_at": at, **more}


def ids(memory: AgentMemory, **how: Any) -> list[str]:
    return [head.session_id for head in memory.sessions(**how)]


def test_sessions_are_listed_by_prefix_and_newest_first(memory: AgentMemory) -> None:
    """Wrong: a list omits a session, repeats one, or contains another user's."""
    for number, name in enumerate(["a-1", "a-2", "a", "b-1", "a-3", "aa"]):
        memory.update(name, message("hi", number), user_id="ana" if number % 2 else "ben")
    memory.update("a-1", message("again", 99))
    assert ids(memory, prefix="a-") == ["a-1", "a-2", "a-3"]
    assert ids(memory, prefix="a") == ["a", "a-1", "a-2", "a-3", "aa"]
    assert ids(memory, prefix="a", limit=2, after="a-1") == ["a-2", "a-3"]
    assert ids(memory, prefix="a-", user_id="ana") == ["a-2"]
    newest = ["a-1", "aa", "a-3", "b-1", "a", "a-2"]
    assert ids(memory, newest=True) == newest
    paged: list[str] = []
    while page := ids(memory, newest=True, limit=2, after=paged[-1] if paged else None):
        paged += page
    assert paged == newest
    assert ids(memory, newest=True, prefix="a-", user_id="ben") == ["a-1", "a-3"]
    with pytest.raises(InvalidInput, match="Begin again"):
        memory.sessions(newest=True, after="gone")
    memory.delete("a-1")
    assert ids(memory, prefix="a-", newest=True) == ["a-3", "a-2"]


def test_a_head_contains_updated_at_and_metadata(memory: AgentMemory) -> None:
    """Wrong: a head has a wrong `updated_at`, or metadata from before a deletion."""
    assert memory.head("s") is None
    memory.update("s", [message("hi"), message("there", 5)], user_id="ana")
    head = memory.head("s")
    assert head.updated_at == BEGUN + timedelta(minutes=5)
    assert (head.end, head.metadata) == (2, {})
    session = memory.session("s", "ana")
    session.describe({"title": "Rome", "tags": ["trip"]})
    memory.describe("t", {"title": "empty"}, user_id="ana")
    told = {one.session_id: one.metadata for one in memory.sessions(user_id="ana")}
    assert told == {"s": {"title": "Rome", "tags": ["trip"]}, "t": {"title": "empty"}}
    assert session.head() == head  # metadata does not change the conversation
    with pytest.raises(InvalidInput):
        memory.describe("s", {"of": {1, 2}})
    memory.delete("s")
    memory.update("s", message("anew"), user_id="ana")
    assert session.head().metadata == {}  # type: ignore[union-attr]


def test_a_log_is_edited_in_one_step(memory: AgentMemory) -> None:
    """Wrong: an edit rewrites unchanged messages, loses times, or returns the old head."""
    memory.update("s", [message(str(number), number, id=f"m{number}") for number in range(5)])
    before = memory.history("s")

    def corrected(log: list[Entry]) -> list[Any]:
        return [message("two", 2) if one.message.text() == "2" else one for one in log]

    head = memory.edit("s", corrected)
    assert texts(memory) == ["0", "1", "two", "3", "4"]
    assert memory.history("s")[:2] == before[:2]
    assert [one.created_at for one in memory.history("s")] == [one.created_at for one in before]
    assert head.end == 5
    assert memory.edit("s", lambda log: log[3:]).end == 2
    assert [(one.seq, one.message.text()) for one in memory.history("s")] == [(1, "3"), (2, "4")]
    assert memory.edit("s", lambda log: [one for one in log if one.seq != 1]).end == 1
    assert memory.edit("s", lambda log: log).end == 1
    assert memory.edit("s", lambda log: []).end == 0
    small = AgentMemory("memory://", max_message_bytes=1_000)
    with small, pytest.raises(MessageTooLarge):
        small.edit("s", lambda log: [message("x" * 2_000)])
    assert memory.edit("new", lambda log: [message("begun")], user_id="ana").user_id == "ana"
    for wrong in (None, "text", {"role": "user"}, [3]):
        with pytest.raises(InvalidInput):
            memory.edit("new", lambda log, wrong=wrong: wrong)  # type: ignore[misc]
    assert texts(memory, "new") == ["begun"]


def test_a_message_removed_by_an_edit_is_not_recalled(tmp_path: Path) -> None:
    """Wrong: a block still recalls a message that an edit removed, or forgets another."""
    with AgentMemory(store=f"sqlite:///{tmp_path}/m.db", blocks=[VectorMemory()]) as memory:
        messages = [message("My dog is called Rex."), message("I live in Lisbon.", 1)]
        memory.update("s", messages, user_id="a")
        memory.flush("s")
        memory.edit("s", lambda log: log[1:])
        memory.flush("s")
        found = [one.text for one in memory.search("dog Rex Lisbon live", user_id="a")]
        assert len(found) == 1
        assert "Lisbon" in found[0]


def test_an_edit_during_an_update_loses_no_message(memory: AgentMemory) -> None:
    """Wrong: an edit overwrites a message that was stored while its function ran."""
    memory.update("s", message("one"))
    asked: list[int] = []

    def change(log: list[Entry]) -> list[Any]:
        asked.append(len(log))
        if len(asked) == 1:
            memory.update("s", message("said meanwhile", 1))
        return [*log[1:], message("last", 2)]

    memory.edit("s", change)
    assert asked[-1] == 2
    assert texts(memory) == ["said meanwhile", "last"]
