"""Sessions that are due, and have only to wait: workers put them off without taking a lease."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory
from agent_memory.core.messages import Message
from agent_memory.core.records import Head
from agent_memory.engine.processing.worker import Worker

SAID = {"role": "user", "content": "I moved to Lisbon, where the trams are yellow."}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    with AgentMemory(store=f"sqlite:///{tmp_path}/m.db", max_tokens=600) as memory:
        yield memory


def due(memory: AgentMemory) -> list[Head]:
    """What is due."""
    return memory.components.store.due()


def test_one_that_waits_is_put_off_until_it_is_idle(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: it is looked at over and over; or never again, or its lease is taken for nothing."""
    memory.update("s", SAID, user_id="ana")
    (head,) = due(memory)
    leased: list[Any] = []
    monkeypatch.setattr(memory.components.store, "lease", lambda *args, **_: leased.append(args))
    assert memory.components.work.put_off(head)
    assert (due(memory), leased) == ([], [])
    memory.update("s", SAID, user_id="ana")
    assert [one.session_id for one in due(memory)] == ["s"]


def test_one_that_is_idle_is_not_put_off(memory: AgentMemory) -> None:
    """Wrong: what was said ten minutes ago is never absorbed."""
    long_ago = datetime.now(UTC) - timedelta(minutes=11)
    message = Message(role="user", content="Long ago.", created_at=long_ago)
    head = memory.components.store.append("s", memory._appender.drafts([message]), "ana")
    assert not memory.components.work.put_off(head)
    assert [one.session_id for one in due(memory)] == ["s"]


def test_one_with_work_to_do_is_not_put_off(memory: AgentMemory) -> None:
    """Wrong: an overflow that a killed process left waits until the session is idle; or a deletion
    that had begun stands still."""
    store, work = memory.components.store, memory.components.work
    said = memory._appender.drafts(
        [{**SAID, "content": f"{n} {SAID['content']}"} for n in range(80)]
    )
    assert not work.put_off(store.append("long", said, "ana"))
    going = store.append("going", said[:1], "ana")
    moved = store.move(replace(going, deleting=True))
    assert moved is not None
    assert not work.put_off(moved)
    assert {one.session_id for one in due(memory)} == {"long", "going"}


def test_one_that_was_spoken_in_since_is_not_put_off(memory: AgentMemory) -> None:
    """Wrong: what was said right after the look waits as long as what was said before it."""
    before = memory.update("s", SAID, user_id="ana")
    memory.update("s", SAID, user_id="ana")
    assert not memory.components.work.put_off(before)
    assert [one.session_id for one in due(memory)] == ["s"]


def test_a_worker_puts_off_what_it_finds(memory: AgentMemory, monkeypatch: Any) -> None:
    """Wrong: a running worker processes each session that only waits, or leaves it due."""
    for n in range(5):
        memory.update(f"s{n}", SAID, user_id="ana")
    parts, processed = memory.components, []
    monkeypatch.setattr(parts.work, "process", lambda *args, **given: processed.append(args))
    worker = Worker(parts.store, parts.work, lambda: None, 1)
    worker._poll()
    assert (due(memory), processed, len(worker._queue)) == ([], [], 0)
