"""Appends that are made together, by threads and by processes."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory
from agent_memory.errors import Conflict, InvalidMessage, SessionOfAnotherUser
from tests.processes import check_fork, check_writers


def text_message(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


@pytest.fixture(params=["sqlite", "memory", "power"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AgentMemory]:
    """A memory with an append queue, over a store with or without grouped transactions."""
    store = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/m.db"
    durability = "power" if request.param == "power" else "process"
    with AgentMemory(store=store, blocks=[], durability=durability) as memory:
        yield memory


def queue_together(memory: AgentMemory, calls: Sequence[Callable[[], Any]]) -> list[Future[Any]]:
    """Start calls that wait in the append queue in this order, and return their results."""
    queue = memory._appender._queue
    assert queue is not None
    futures: list[Future[Any]] = [Future() for _ in calls]

    def run(future: Future[Any], call: Callable[[], Any]) -> None:
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - set on the future
            future.set_exception(error)

    with queue._lock:
        for count, (future, call) in enumerate(zip(futures, calls, strict=True), 1):
            threading.Thread(target=run, args=(future, call), daemon=True).start()
            while len(queue._pending) < count:
                pass
    return futures


def update(memory: AgentMemory, session: str, message: Any, **more: Any) -> Callable[[], Any]:
    return lambda: memory.update(session, message, **more)


def test_each_call_of_a_batch_gets_its_own_result(memory: AgentMemory) -> None:
    """Wrong: a refused append fails others in its batch, or a call gets the result of another."""
    memory.update("anas", text_message("first"), user_id="ana")
    memory.update("bens", text_message("ben's"), user_id="ben")
    one, of_ben, no_role, late, two, again, other, new = queue_together(
        memory,
        [
            update(memory, "anas", text_message("one"), user_id="ana"),
            update(memory, "bens", text_message("not ben"), user_id="ana"),
            update(memory, "anas", text_message("?", "nobody"), user_id="ana"),
            update(memory, "anas", text_message("late"), user_id="ana", expected_end=1),
            update(memory, "anas", text_message("two"), user_id="ana", key="k"),
            update(memory, "anas", text_message("two"), user_id="ana", key="k"),
            update(memory, "anas", text_message("else"), user_id="ana", key="k"),
            update(memory, "new", text_message("hello"), user_id="cy"),
        ],
    )
    assert [head.result(30).end for head in (one, two, again, new)] == [2, 3, 3, 1]
    assert new.result().user_id == "cy"
    errors = [future.exception(30) for future in (of_ben, no_role, late, other)]
    expected = [SessionOfAnotherUser, InvalidMessage, Conflict, Conflict]
    assert [type(error) for error in errors] == expected
    log = [(entry.seq, entry.message.content) for entry in memory.history("anas")]
    assert log == [(1, "first"), (2, "one"), (3, "two")]
    assert [one.content for one in memory.get("anas").messages] == ["first", "one", "two"]
    assert [entry.message.content for entry in memory.history("bens")] == ["ben's"]


def test_processes_create_and_append_concurrently(url: str) -> None:
    """Wrong: processes that start together raise 'database is locked', or lose a message."""
    check_writers(url, "default", 4, 40)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_opens_its_own_connections(url: str) -> None:
    """Wrong: a forked child corrupts the file that its parent has open."""
    check_fork(url)
