"""Stores and blocks behind a user's proxy object that forwards calls."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryConfig,
    FlushToLTM,
    Message,
    NullMemory,
    VectorMemory,
    WorkingMemory,
)
from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.errors import ConfigError, InvalidId, InvalidMessage, InvalidSetting
from agent_memory.stores import MemoryStore, open_store
from agent_memory.stores.base import Store
from agent_memory.testing import FakeLLM
from tests.kit import user


class Proxy:
    """Forward every method, without having one."""

    def __init__(self, inner: object, without: frozenset[str] = frozenset()) -> None:
        self._inner = inner
        self._without = without

    def __getattr__(self, name: str) -> Any:
        if name in self._without:
            raise AttributeError(name)
        return getattr(self._inner, name)


def proxied(store: Store, *without: str) -> Store:
    return cast("Store", Proxy(store, frozenset(without)))


@pytest.mark.parametrize("address", ["memory://", "sqlite:///{}/m.db"])
def test_a_store_behind_a_proxy(address: str, tmp_path: Path) -> None:
    """Wrong: a store wrapped in a proxy that counts or logs calls is refused."""
    store = open_store(address.format(tmp_path), "default", "process")
    with AgentMemory(store=proxied(store), system_store=proxied(MemoryStore())) as memory:
        memory.update("s", [{"role": "system", "content": "be kind"}, user("hello")])
        assert [one.text() for one in memory.get("s").messages] == ["be kind", "hello"]
    store.close()


def test_what_is_no_store_is_refused() -> None:
    """Wrong: an object that lacks a store's method is accepted, and fails at the first call."""
    with pytest.raises(InvalidSetting) as caught:
        AgentMemoryConfig(store=proxied(MemoryStore(), "rewrite"))
    assert "it has no `rewrite`" in str(caught.value)
    with pytest.raises(InvalidSetting, match="it has no `all_records`, `all_vectors`"):
        AgentMemoryConfig(system_store=cast("Store", object()))


class Diary:
    """An object with a block's methods that is not a `Block`."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return [Recall("diary", str(n), text) for n, text in enumerate(self.told)]

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.told += [entry.message.text() for entry in entries]

    def delete(self, scope: Scope) -> None:
        self.told.clear()


def test_a_block_behind_a_proxy() -> None:
    """Wrong: an object whose methods are proxied is not accepted as a block."""
    blocks: Any = [Proxy(Diary())]
    flush = FlushToLTM(blocks=blocks, absorb="every_update")
    with AgentMemory(store="memory://", overflow=flush) as memory:
        memory.update("s", {"role": "user", "content": "rain all day"}, user_id="ada")
        assert [found.text for found in memory.search("rain", user_id="ada")] == ["rain all day"]


# --- `NullMemory`: memory switched off ------------------------------------------------------------

HELLO = {"role": "user", "content": "I like tea."}


def test_nothing_is_remembered(tmp_path: Path) -> None:
    """Wrong: a message, a note or a value comes back, or a file is made."""
    url = f"sqlite:///{tmp_path}/memory.db"
    config = AgentMemoryConfig(store=url, blocks=[VectorMemory(), WorkingMemory()], max_tokens=900)
    with NullMemory(config) as memory:
        memory.update("s", HELLO, user_id="ada")
        memory.user("ada").notes().add("Likes tea.")
        memory.session("s").working().set("plan", 1)
        memory.user("ada").files().create("/memories/a.txt", "tea")
        memory.user("ada").spatial().observe("tea", (1, 2))
        assert memory.call_tool("s", "memory_write", {"text": "tea"}).startswith("Noted")
        memory.flush()
        context = memory.get("s", "tea")
        assert (context.messages, context.recalls, context.max_tokens) == ([], [], 900)
        assert memory.history("s") == memory.sessions() == memory.search("tea", user_id="ada") == []
        assert memory.user("ada").notes().all() == memory.user("ada").files().paths() == []
        assert memory.session("s").working().all() == {}
        assert memory.user("ada").spatial().all() == []
        assert "Nothing" in memory.call_tool("s", "memory_read", {"query": "tea"})
        assert memory.pop("s") == memory.user("ada").facts() == memory.end("s") == []
        memory.delete("s")
        memory.delete_user("ada")
        assert memory.stats().sessions == 0
    assert isinstance(memory, AgentMemory)
    assert list(tmp_path.iterdir()) == []


def test_what_memory_refuses_is_refused_and_the_model_asked() -> None:
    """Wrong: a call that succeeds with memory switched off fails when it is switched on."""
    with NullMemory() as memory:
        with pytest.raises(InvalidMessage):
            memory.update("s", {"role": "nobody", "content": "x"})
        with pytest.raises(InvalidId):
            memory.update("", HELLO)
        with pytest.raises(ConfigError, match="skills"):
            memory.open("skills")
    with (
        FakeLLM("Hello!") as fake,
        NullMemory(model="openai/any", api_base=fake.api_base, api_key="k") as memory,
    ):
        for _ in range(2):
            answer = memory.completion("s", "I like tea.")
            assert answer.choices[0].message.content == "Hello!"
            assert fake.requests[-1]["messages"] == [HELLO]
        assert memory.history("s") == []
