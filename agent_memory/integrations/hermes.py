"""A memory provider for Hermes Agent that stores in an `AgentMemory`.

In ~/.hermes/plugins/agent_memory/__init__.py:

    from agent_memory.integrations.hermes import AgentMemoryProvider

    def register(ctx):
        ctx.register_memory_provider(AgentMemoryProvider())
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import takewhile
from threading import RLock
from typing import Any

from agent_memory.core.context import render_memory
from agent_memory.core.messages import compact_json
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import InvalidInput, MissingExtra
from agent_memory.integrations.adapting import joined

try:
    from agent.memory_provider import MemoryProvider
    from hermes_constants import get_hermes_home
except ImportError as error:
    raise MissingExtra("Hermes Agent's memory provider", "hermes") from error

__all__ = ["AgentMemoryProvider"]

_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id")
_ROLES = ("user", "assistant", "tool")
_LOOKED_AT = 500
_PRIMARY = "primary"
_CONTINUES = ("hermes", "continues")
_PROMPT = (
    "Long-term memory of earlier conversations is attached. Memories relevant to a message come "
    "with the message. memory_read finds more, memory_write stores a note, memory_forget deletes a "
    "note or a fact."
)
_NOTE = "Every message up to here is stored verbatim in long-term memory. memory_read finds it."
Json = dict[str, Any]


class AgentMemoryProvider(MemoryProvider):
    """Stores Hermes' conversations, and recalls messages from all conversations of a user.

    Each conversation is a session of the memory with the id "USER/SESSION". The session continues
    after Hermes compresses the conversation. A run of cron or of a subagent is stored without a
    user, and only if Hermes compresses it.

    Args:
        memory: The memory, which `shutdown` leaves open. By default, the provider opens a memory
            with the settings of the `AGENT_MEMORY_...` variables. Its default store is the file
            "agent_memory.db" in the home of Hermes' profile.
        user_id: The user; by default "PLATFORM:USER" from Hermes' gateway, or "hermes".
    """

    pre_compress_checkpoint_api_version = 2

    def __init__(self, memory: AgentMemory | None = None, *, user_id: str | None = None) -> None:
        self._passed = memory
        self._own: AgentMemory | None = None
        self._bound = user_id
        self._user_id: str | None = user_id
        self._context = _PRIMARY
        self._log = ""
        self._lock = RLock()

    @property
    def name(self) -> str:
        """The provider's name in Hermes' setting `memory.provider`."""
        return "agent_memory"

    def is_available(self) -> bool:
        """Return True: the memory needs only a file."""
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self._context = kwargs.get("agent_context") or _PRIMARY
        user = kwargs.get("user_id")
        text = f"{kwargs.get('platform') or 'hermes'}:{user}" if user else "hermes"
        self._user_id = (self._bound or text) if self._context == _PRIMARY else None
        self._log = self._log_of(session_id)

    def system_prompt_block(self) -> str:
        return _PROMPT

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return memories relevant to a message, within the memory's budget; "" if there are none.

        The session's window is left out, because Hermes' transcript contains it.
        """
        if not query.strip() or self._user_id is None:
            return ""
        context = self._memory.get(self._at(session_id), query, user_id=self._user_id)
        return render_memory(context.recalls, list(context.blocks))

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Store the transcript's new messages. Without a transcript, store question and answer."""
        if self._user_id is None:
            return
        if messages is not None:
            self._store(self._at(session_id), messages)
            return
        pair = [
            {"role": "user", "content": user_content},
            {"role": "assistant", "content": assistant_content},
        ]
        self._memory.update(self._at(session_id), pair, user_id=self._user_id)

    def get_tool_schemas(self) -> list[Json]:
        """Return the schemas of the memory's tools, including the tools of blocks."""
        tools = self._memory.tools(self._log or "hermes", user_id=self._user_id)
        return [tool["function"] for tool in tools]

    def handle_tool_call(self, tool_name: str, args: Json, **kwargs: Any) -> str:
        """Run a model's tool call. Errors are returned as text."""
        result = self._memory.call_tool(self._log, tool_name, args, user_id=self._user_id)
        return compact_json({"result": result})

    def on_pre_compress(
        self, messages: Sequence[Mapping[str, Any]], *, require_checkpoint: bool = False
    ) -> str:
        """Store all messages that will be compressed. Return a confirmation for the compressor.

        Raises:
            StoreError: The messages may not be durable. Do not compress them.
            AgentMemoryError: The messages could not be stored. Do not compress them.
        """
        if not self._log:
            raise InvalidInput("The provider has no session yet. Call `initialize` first.")
        self._store(self._log, messages)
        if self._memory.head(self._log, user_id=self._user_id) is None:
            return ""  # nothing to store
        self._memory.checkpoint(self._log, user_id=self._user_id)
        return _NOTE

    def on_session_end(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Store new messages, and let blocks absorb all pending messages."""
        if self._user_id is not None and self._log:
            self._store(self._log, messages)
            self._memory.end(self._log, user_id=self._user_id)

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """Switch to another session. After a compression, the new session continues the old log."""
        if kwargs.get("reason") == "compression" and new_session_id != parent_session_id:
            self._memory.values(self._user_id).put(_CONTINUES, new_session_id, self._log)
        self._log = self._log_of(new_session_id)

    def shutdown(self) -> None:
        """Close the memory if the provider opened it."""
        with self._lock:
            if self._own is not None:
                self._own.close()
                self._own = None

    @property
    def _memory(self) -> AgentMemory:
        with self._lock:
            if self._passed is not None:
                return self._passed
            if self._own is None and "AGENT_MEMORY_STORE" in os.environ:
                self._own = AgentMemory()
            elif self._own is None:
                self._own = AgentMemory(store=f"sqlite:///{get_hermes_home() / 'agent_memory.db'}")
            return self._own

    def _at(self, session_id: str) -> str:
        return self._log_of(session_id) if session_id else self._log

    def _log_of(self, session_id: str) -> str:
        """Return the id of the memory's session for a session of Hermes."""
        item = self._memory.values(self._user_id).get(_CONTINUES, session_id)
        if item is not None:
            return str(item.value)
        return joined(self._user_id or self._context, session_id)

    def _store(self, log: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Append the messages of a transcript that are not in the log yet."""
        turns = [
            {name: message[name] for name in _FIELDS if message.get(name) is not None}
            for message in messages
            if message.get("role") in _ROLES
        ]
        with self._lock:  # Hermes stores turns and checkpoints on different threads
            entries = self._memory.history(log, user_id=self._user_id, last=_LOOKED_AT)
            marks = [_mark(entry.message.to_dict()) for entry in entries]
            fresh = turns[_stored_count([_mark(turn) for turn in turns], marks) :]
            if fresh:
                self._memory.update(log, fresh, user_id=self._user_id)


def _mark(message: Mapping[str, Any]) -> str:
    return compact_json([message.get(name) or None for name in _FIELDS])


def _stored_count(transcript: Sequence[str], log: Sequence[str]) -> int:
    """Return the number of messages at the start of a transcript that the log already has.

    The last of these messages is the newest message of the log that the transcript contains. If the
    transcript contains that message several times, the occurrence with the longest equal history
    counts. In doubt, messages count as new: storing a message twice is better than losing it.
    """
    for end in range(len(log), 0, -1):
        ends = [at + 1 for at, mark in enumerate(transcript) if mark == log[end - 1]]
        if ends:
            return max(ends, key=lambda upto: (_shared(transcript[:upto], log[:end]), -upto))
    return 0


def _shared(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the number of messages at the ends of two lists that are equal."""
    pairs = zip(reversed(first), reversed(second), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
