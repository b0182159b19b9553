"""A session is deleted while it is read, and another user starts one under its id."""

import io
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryError, Message, Summarize, Trim, WorkingMemory
from agent_memory.core.idempotency import key_of
from agent_memory.core.records import Draft, Entry, Head, Scope
from agent_memory.mcp.server import read
from agent_memory.stores.sql.store import MemoryStore

SECRET = "Ben's safe opens with 4711."
HELLO = {"role": "assistant", "content": "Hello."}


class Raced(MemoryStore):
    """Calls `first` once, right before a certain read."""

    def __init__(self) -> None:
        super().__init__()
        self.moment, self.heads = "", 0
        self.first: Callable[[], object] = lambda: None

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> Any:
        self._before("log")
        return super().read(session_id, after=after, limit=limit)

    def pick(self, session_id: str, seqs: Sequence[int]) -> Any:
        self._before("log")
        return super().pick(session_id, seqs)

    def tails(self, block: str, session_ids: Collection[str], **where: int) -> Any:
        self._before("log")
        return super().tails(block, session_ids, **where)

    def head(self, session_id: str) -> Head | None:
        self.heads += 1
        if self.heads > 1:
            self._before("second look")
        return super().head(session_id)

    def lease(self, session_id: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        self._before("lease")
        return super().lease(session_id, owner, seconds, renew=renew)

    def keys(self, session_id: str, names: Collection[str] | None = None) -> Any:
        self._before("keys")
        return super().keys(session_id, names)

    def record(self, block: str, record_id: str) -> Any:
        self._before("record")
        return super().record(block, record_id)

    def records(self, block: str, owner: str) -> Any:
        self._before("records")
        return super().records(block, owner)

    def _before(self, moment: str) -> None:
        if moment == self.moment:
            first, self.first = self.first, lambda: None
            first()


@pytest.fixture
def store() -> Raced:
    return Raced()


@pytest.fixture
def memory(store: Raced) -> Iterator[AgentMemory]:
    settings: dict[str, Any] = {"store": store, "blocks": [WorkingMemory()], "max_tokens": 4_000}
    with AgentMemory(**settings) as there, AgentMemory(**settings) as memory:
        there.update("s", {"role": "user", "content": "I am Ana."}, user_id="ana")
        there.update("s", HELLO, user_id="ana", key="1")
        there.session("s", "ana").working().set("safe", "None.")

        def taken_over() -> None:
            there.delete("s", user_id="ana")
            for _ in range(3):
                there.update("s", {"role": "user", "content": SECRET}, user_id="ben")
            there.update("s", {"role": "user", "content": SECRET}, user_id="ben", key="1")
            there.update("s", {"role": "system", "content": SECRET}, user_id="ben")
            there.describe("s", {"title": SECRET}, user_id="ben")
            there.session("s", "ben").working().set("safe", SECRET)

        store.first = taken_over
        yield memory


def _stored(memory: AgentMemory) -> object:
    return memory._stored("s", key_of("1", [Message.of(HELLO)]), user_id="ana")


def _surplus(memory: AgentMemory) -> object:
    return memory.user("ana").surplus(older_than=timedelta(0), messages=True)


CALLS: dict[str, tuple[str, Callable[[AgentMemory], Any]]] = {
    "get": ("log", lambda memory: memory.get("s", user_id="ana").to_messages()),
    "get for a question": (
        "log", lambda memory: memory.get("s", "Who am I?", user_id="ana").to_messages()
    ),
    "history": ("log", lambda memory: memory.history("s", user_id="ana")),
    "the newest": ("log", lambda memory: memory.history("s", user_id="ana", last=1)),
    "a search": (
        "log", lambda memory: memory.search("Ana's safe", user_id="ana", least=0, entries=True)
    ),
    "a turn": ("log", lambda memory: memory.before_turn("s", "Who am I?", user_id="ana").messages),
    "a question again": ("log", lambda memory: memory.regenerate("s", user_id="ana").messages),
    "what is old": ("log", _surplus),
    "a stored turn": ("log", _stored),
    "its key": ("keys", _stored),
    "a session": ("record", lambda memory: memory.head("s", user_id="ana")),
    "sessions": ("record", lambda memory: memory.sessions(user_id="ana")),
    "a resource of MCP": (
        "second look", lambda memory: read(memory, Scope("ana"), "memory://sessions/s")
    ),
    "a scratchpad": ("records", lambda memory: memory.session("s", "ana").working().all()),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_no_call_returns_the_next_users_text(memory: AgentMemory, store: Raced, call: str) -> None:
    """Wrong: a call returns messages of another user, who took the session's id meanwhile."""
    store.moment, ask = CALLS[call]
    store.heads = 0
    told = _outcome(ask, memory)
    assert "4711" not in told
    assert "Conflict" not in told
    assert "4711" in str(memory.history("s", user_id="ben"))


def _edited(memory: AgentMemory) -> object:
    seen: list[Entry] = []

    def change(log: list[Entry]) -> list[Entry]:
        seen.extend(log)
        return log[:-1]

    return _outcome(lambda memory: memory.edit("s", change, user_id="ana"), memory), seen


def _exported(memory: AgentMemory) -> str:
    file = io.StringIO()
    told = _outcome(lambda memory: memory.session("s", "ana").export(file), memory)
    return file.getvalue() + told


CHANGES: list[tuple[str, str, Callable[[AgentMemory], Any]]] = [
    ("delete", "second look", lambda memory: memory.delete("s", user_id="ana")),
    ("pop", "log", lambda memory: memory.pop("s", 2, user_id="ana")),
    ("pop", "lease", lambda memory: memory.pop("s", 2, user_id="ana")),
    ("edit", "log", _edited),
    ("edit", "lease", _edited),
    ("edit nothing", "log", lambda memory: memory.edit("s", lambda log: log, user_id="ana")),
    ("prune", "lease", lambda memory: memory.prune("s", 1, user_id="ana")),
    ("flush", "lease", lambda memory: memory.flush("s", user_id="ana")),
    ("end", "lease", lambda memory: memory.end("s", user_id="ana")),
    ("export", "lease", _exported),
    ("pin", "log", lambda memory: memory.pin("s", 1, user_id="ana")),
    ("pin", "second look", lambda memory: memory.pin("s", 1, user_id="ana")),
]


@pytest.mark.parametrize(("name", "moment", "call"), CHANGES)
def test_no_call_changes_the_session_of_the_next_user_of_an_id(
    memory: AgentMemory, store: Raced, name: str, moment: str, call: Callable[[AgentMemory], Any]
) -> None:
    """Wrong: a call changes the session of another user, who took its id meanwhile."""
    store.moment, store.heads = moment, 0
    told = _outcome(call, memory)
    store.moment = ""
    assert "4711" not in told
    assert len(memory.history("s", user_id="ben")) == 5
    head = memory.head("s", user_id="ben")
    assert (head.start, head.pinned, head.metadata) == (0, (), {"title": SECRET})


@pytest.mark.parametrize("overflow", [Trim(), Summarize(max_summary_tokens=20)])
def test_an_update_does_not_return_the_head_of_the_next_user(store: Raced, overflow: Any) -> None:
    """Wrong: an update returns the head of another user's session, with its system message."""
    settings: dict[str, Any] = {"overflow": overflow, "blocks": [], "max_tokens": 100}
    with AgentMemory(store=store, **settings) as there:
        there.update("s", {"role": "user", "content": "word " * 60}, user_id="ana")
        head = store.append("s", [Draft(Message(role="user", content="word"), 90, "o200k_base")])
        there.delete("s", user_id="ana")
        there.update("s", {"role": "system", "content": SECRET}, user_id="ben")
        assert there.components.work.after_update(head).user_id == "ana"


def _outcome(call: Callable[[AgentMemory], Any], memory: AgentMemory) -> str:
    try:
        return str(call(memory))
    except AgentMemoryError as error:
        return repr(error)
