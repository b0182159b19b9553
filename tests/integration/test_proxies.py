"""Stores and blocks behind a user's proxy object that forwards calls."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from agent_memory import AgentMemory, FlushToLTM, Message
from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.errors import InvalidSetting
from agent_memory.stores import MemoryStore, open_store
from agent_memory.stores.base import Store


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
        memory.update(
            "s", [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]
        )
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
