"""Contract tests for stores. Subclass them, define a `store` fixture and run pytest.

    class TestMyStore(SessionStoreContract, RecordStoreContract, VectorStoreContract):
        @pytest.fixture
        def store(self):
            store = MyStore(...)
            yield store
            store.close()

Also define `other`, a second handle on the same data, if several processes may share it, and
`elsewhere`, a handle on another namespace of the same database.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Head, Record
from agent_memory.stores.base import SessionStore, Store

DAY = datetime(2024, 2, 29, 12, 30, 15, 123457, tzinfo=UTC)


def draft(content: Any, tokens: int = 3, role: str = "user", **fields: Any) -> Draft:
    """Return a draft of a chat message."""
    return Draft(Message(role=role, content=content, **fields), tokens, "test")


def record(name: str, owner: str = "user:a", session_id: str = "s", **fields: Any) -> Record:
    """Return a record; by default it derives from entry 1 of a session."""
    given: dict[str, Any] = {"first": 1, "last": 1, "text": f"text of {name}", "sources": (1,)}
    given |= {"created_at": DAY, **fields}
    return Record(id=name, owner=owner, session_id=session_id, **given)


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run calls at the same time, each on its own thread. Return their results or raise the first
    error.
    """
    gate = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(place: int, call: Callable[[], Any]) -> None:
        try:
            gate.wait()
            results[place] = call()
        except BaseException as error:  # noqa: BLE001 (raised again on the test's thread)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place, call)) for place, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def stored(store: SessionStore, session_id: str = "s") -> Head:
    """Return the head of a session that must exist."""
    head = store.head(session_id)
    assert head is not None
    return head


class Contract:
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """The store under test. Subclasses define it."""
        pytest.fail("Define a `store` fixture in the subclass of the contract.")

    @pytest.fixture
    def other(self, store: Store) -> Store:
        """A second handle on the same data."""
        return store

    @pytest.fixture
    def elsewhere(self) -> Store:
        """A handle on another namespace of the same database."""
        pytest.skip("this store has no second namespace")
