"""A session is deleted while it is read, and another user begins one under its id."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pytest

from agent_memory import AgentMemory, Trim
from agent_memory.core.records import Entry
from agent_memory.stores.memory import MemoryStore

SECRET = "Ben's safe opens with 4711."


class Raced(MemoryStore):
    """Right before a log is read, once, something else happens."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Callable[[], object] = lambda: None

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> Any:
        self._before()
        return super().read(session_id, after=after, limit=limit)

    def pick(self, session_id: str, seqs: Sequence[int]) -> Any:
        self._before()
        return super().pick(session_id, seqs)

    def tails(
        self, block: str, session_ids: Collection[str], *, before: int, limit: int
    ) -> list[Entry]:
        self._before()
        return super().tails(block, session_ids, before=before, limit=limit)

    def _before(self) -> None:
        first, self.first = self.first, lambda: None
        first()


@pytest.fixture
def store() -> Raced:
    return Raced()


@pytest.fixture
def memory(store: Raced) -> Iterator[AgentMemory]:
    settings: dict[str, Any] = {"overflow": Trim(), "blocks": [], "max_tokens": 4_000}
    with (
        AgentMemory(store=store, **settings) as there,
        AgentMemory(store=store, **settings) as memory,
    ):
        there.update("s", {"role": "user", "content": "I am Ana."}, user_id="ana")
        there.update("s", {"role": "assistant", "content": "Hello."}, user_id="ana")

        def taken_over() -> None:
            there.delete("s", user_id="ana")
            for _ in range(3):
                there.update("s", {"role": "user", "content": SECRET}, user_id="ben")

        store.first = taken_over
        yield memory


CALLS: dict[str, Callable[[AgentMemory], Any]] = {
    "get": lambda memory: memory.get("s", user_id="ana").to_messages(),
    "get for a question": lambda memory: memory.get("s", "Who am I?", user_id="ana").to_messages(),
    "history": lambda memory: memory.history("s", user_id="ana"),
    "the newest": lambda memory: memory.history("s", user_id="ana", last=1),
    "a search": lambda memory: memory.search("Ana's safe", user_id="ana", least=0, entries=True),
    "a turn": lambda memory: memory.before_turn("s", "Who am I?", user_id="ana").messages,
}


@pytest.mark.parametrize("call", CALLS)
def test_nobody_reads_what_the_next_one_said(memory: AgentMemory, call: str) -> None:
    """Wrong: a log is read by its id alone, and whoever has the id by then is read."""
    assert "4711" not in str(CALLS[call](memory))
    assert "4711" in str(memory.history("s", user_id="ben"))
