"""The text that each system shows a reader for a question, within the same number of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from agent_memory import AgentMemory, TokenCounter, VectorMemory
from agent_memory.models.embedders.local import MiniLMEmbedder
from benchmarks.recall.formats import Conversation, Question

SYSTEMS = ("agent-memory", "newest messages", "dense search")

_ROOM = 1_000_000  # tokens of a context, so that only recalls reach their limit


@dataclass(frozen=True)
class Shown:
    """A context as text, and its tokens."""

    text: str
    tokens: int


@contextmanager
def systems(conversation: Conversation, tokens: int) -> Iterator[_Systems]:
    """Yield all systems over one conversation, each limited to `tokens` for a question."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'm.db').as_posix()}"
        limits = {"max_tokens": _ROOM, "max_recall_tokens": tokens, "recall_timeout": 60.0}
        with AgentMemory(url, blocks=[VectorMemory()], **limits) as memory:
            for session, said in conversation.sessions.items():
                memory.update(session, [one for _, one in said], user_id=conversation.name)
            if errors := [one.error for one in memory.flush() if one.error]:
                raise RuntimeError(f"Not all was absorbed: {errors[0]}.")
            yield _Systems(memory, conversation, tokens)


class _Systems:
    def __init__(self, memory: AgentMemory, conversation: Conversation, tokens: int) -> None:
        self._memory, self._name, self._tokens = memory, conversation.name, tokens
        self._counter, self._embedder = TokenCounter(), MiniLMEmbedder()
        said = [one for messages in conversation.sessions.values() for _, one in messages]
        said.sort(key=lambda one: one["created_at"])
        self._end: datetime = said[-1]["created_at"]
        self._lines = [_line(one) for one in said]
        self._costs = [self._counter.text(one) for one in self._lines]
        self._vectors = self._embedder.embed([str(one["content"]) for one in said])

    def shown(self, question: Question) -> Mapping[str, Shown]:
        """Return the context of each of `SYSTEMS`."""
        near = self._vectors @ self._embedder.embed([question.text])[0]
        return {
            "agent-memory": self._recalled(question),
            "newest messages": self._packed(range(len(self._lines) - 1, -1, -1)),
            "dense search": self._packed([int(one) for one in np.argsort(-near, kind="stable")]),
        }

    def asked_at(self, question: Question) -> datetime:
        """Return the time of a question, or of the last message if the question has no time."""
        return question.asked_at or self._end

    def _recalled(self, question: Question) -> Shown:
        at = self.asked_at(question)
        message = {"role": "user", "content": question.text, "created_at": at}
        context = self._memory.get("asking", message, user_id=self._name)
        text = unescape("\n".join(str(one["content"]) for one in context.to_messages()[:-1]))
        return Shown(text, self._counter.text(text))

    def _packed(self, order: Sequence[int]) -> Shown:
        """Return the first lines in `order` that fit, sorted by time."""
        left, kept = self._tokens, list[int]()
        for place in order:
            if self._costs[place] > left:
                break
            left -= self._costs[place]
            kept.append(place)
        return Shown("\n".join(self._lines[one] for one in sorted(kept)), self._tokens - left)


def _line(message: Mapping[str, Any]) -> str:
    who = message.get("name") or message["role"]
    return f"[{message['created_at']:%Y-%m-%d}] {who}: {message['content']}"
