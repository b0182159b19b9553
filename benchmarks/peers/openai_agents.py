"""The OpenAI Agents SDK's `SQLiteSession`, on a file: `openai_agents.py FOLDER`."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents import SQLiteSession

from benchmarks.messages import Chat
from benchmarks.speed.backend import AsyncBackend
from benchmarks.speed.serving import About, Server, serve

_WINDOW = 60  # about as many messages of 60 tokens as fit into 4,096


class OpenAIAgents(AsyncBackend):
    """One session object for each session, all on one file."""

    def __init__(self, folder: Path, budget: int | None) -> None:
        super().__init__(folder, budget)
        self._sessions: dict[str, Any] = {}

    async def fill(self, session: str, messages: Sequence[Chat]) -> None:
        await self._session(session).add_items(list(messages))

    async def append(self, session: str, message: Chat) -> None:
        await self._session(session).add_items([message])

    async def get(self, session: str) -> int:
        limit = None if self.budget is None else _WINDOW
        return len(await self._session(session).get_items(limit))

    async def read(self, session: str) -> list[str]:
        return [item["content"] for item in await self._session(session).get_items()]

    def close(self) -> None:
        super().close()
        for session in self._sessions.values():
            session.close()

    def _session(self, session: str) -> Any:
        if session not in self._sessions:
            self._sessions[session] = SQLiteSession(session, self.folder / "memory.db")
        return self._sessions[session]


def make(folder: Path) -> Server:
    """Serve it."""
    about = About(
        version("openai-agents"),
        "power (WAL, synchronous=FULL)",
        f"counts no tokens; for 4k it gives the last {_WINDOW} messages",
        budgets=True,
        tasks=True,
    )
    return Server(about, OpenAIAgents, folder)


if __name__ == "__main__":
    serve(make)
