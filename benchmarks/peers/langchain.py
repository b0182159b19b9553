"""LangChain's `SQLChatMessageHistory`, and `trim_messages` for each get: `langchain.py FOLDER`."""

import threading
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from langchain_community.chat_message_histories import SQLChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, trim_messages
from sqlalchemy import create_engine

from benchmarks.messages import Chat
from benchmarks.peers.tokens import ENDLESS, tokens
from benchmarks.speed.backend import SyncBackend
from benchmarks.speed.serving import About, Server, serve

_PER_MESSAGE = 4


def count(messages: list[BaseMessage]) -> int:
    """Tokens of messages."""
    return sum(_PER_MESSAGE + len(tokens(str(message.content))) for message in messages)


class LangChain(SyncBackend):
    """All histories share one engine."""

    def __init__(self, folder: Path, budget: int | None) -> None:
        super().__init__(folder, budget)
        self._engine = create_engine(f"sqlite:///{folder}/memory.db")
        self._histories: dict[str, Any] = {}
        self._lock = threading.Lock()

    def prepare(self, message: Chat) -> Any:
        kind = HumanMessage if message["role"] == "user" else AIMessage
        return kind(content=message["content"])

    def fill(self, session: str, messages: Sequence[Any]) -> None:
        self._history(session).add_messages(messages)

    def append(self, session: str, message: Any) -> None:
        self._history(session).add_message(message)

    def get(self, session: str) -> int:
        kept = trim_messages(
            self._history(session).messages,
            max_tokens=self.budget or ENDLESS,
            token_counter=count,
            strategy="last",
            start_on="human",
        )
        return len(kept)

    def read(self, session: str) -> list[str]:
        return [str(message.content) for message in self._history(session).messages]

    def close(self) -> None:
        self._engine.dispose()

    def _history(self, session: str) -> Any:
        if session not in self._histories:
            with self._lock:  # the tables, once
                self._histories[session] = SQLChatMessageHistory(session, connection=self._engine)
        return self._histories[session]


def make(folder: Path) -> Server:
    """Serve it."""
    about = About(
        f"core {version('langchain-core')}, community {version('langchain-community')}",
        "power (rollback journal, synchronous=FULL)",
        "an append counts and trims nothing; each get reads all and trims",
        budgets=True,
    )
    return Server(about, LangChain, folder)


if __name__ == "__main__":
    serve(make)
