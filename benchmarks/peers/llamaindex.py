"""LlamaIndex's `Memory`, on a file or in memory: `llamaindex.py KIND FOLDER`."""

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

from benchmarks.messages import Chat
from benchmarks.peers.tokens import ENDLESS, tokens
from benchmarks.speed.backend import AsyncBackend
from benchmarks.speed.serving import About, Server, serve

_KEPT = 0.7  # the share of the budget that an overflow leaves, as in agent-memory


class LlamaIndex(AsyncBackend):
    """LlamaIndex without blocks. On a file, the sessions of an event loop share a chat store.

    In memory, each session has its own store, which is the default. A store in memory has one
    connection, on which the transactions of concurrent tasks would mix.
    """

    def __init__(self, folder: Path, budget: int | None, *, on_file: bool) -> None:
        super().__init__(folder, budget)
        self.chunk = 500 if budget is None else 20
        self._uri = f"sqlite+aiosqlite:///{folder}/memory.db" if on_file else None
        self._stores: dict[tuple[Any, str], asyncio.Task[Any]] = {}
        self._memories: dict[tuple[Any, str], Any] = {}
        self.runner.run(self._store(""))  # so that threads do not race to create the table

    def prepare(self, message: Chat) -> Any:
        return ChatMessage(role=message["role"], content=message["content"])

    async def fill(self, session: str, messages: Sequence[Any]) -> None:
        memory = await self._memory(session)
        await memory.aput_messages(list(messages))

    async def append(self, session: str, message: Any) -> None:
        memory = await self._memory(session)
        await memory.aput(message)

    async def get(self, session: str) -> int:
        memory = await self._memory(session)
        return len(await memory.aget())

    async def read(self, session: str) -> list[str]:
        memory = await self._memory(session)
        return [message.content for message in await memory.aget_all()]

    async def end_loop(self) -> None:
        loop = asyncio.get_running_loop()
        for key in [key for key in self._stores if key[0] is loop]:
            store = await self._stores.pop(key)
            await store._async_engine.dispose()

    async def _store(self, session: str) -> Any:
        """Return the store for a session in the running loop, after its table was created."""
        key = (asyncio.get_running_loop(), "" if self._uri else session)
        if key not in self._stores:
            store = SQLAlchemyChatStore(table_name="messages", async_database_uri=self._uri)
            self._stores[key] = asyncio.create_task(_ready(store))
        return await self._stores[key]

    async def _memory(self, session: str) -> Any:
        loop = asyncio.get_running_loop()
        if (loop, session) not in self._memories:
            budget = self.budget or ENDLESS
            self._memories[loop, session] = Memory.from_defaults(
                session_id=session,
                token_limit=budget,
                chat_history_token_ratio=1.0,
                token_flush_size=int(budget * (1 - _KEPT)),
                tokenizer_fn=tokens,
                chat_store=await self._store(session),
            )
        return self._memories[loop, session]


async def _ready(store: Any) -> Any:
    await store.get_messages("none")
    return store


def make(kind: str, folder: Path) -> Server:
    """Serve it on a "file" or in "memory"."""
    about = About(
        version("llama-index-core"),
        "power (rollback journal, synchronous=FULL)" if kind == "file" else "none",
        "its async calls, in one running loop; no blocks",
        budgets=True,
        tasks=True,
    )
    return Server(about, partial(LlamaIndex, on_file=kind == "file"), folder)


if __name__ == "__main__":
    which = sys.argv.pop(1)
    serve(lambda folder: make(which, folder))
