"""A session manager and a repository for Strands that store in an `AgentMemory`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from agent_memory.core.formats.registry import CONVERSE
from agent_memory.core.records import Entry
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import AgentMemoryError, MissingExtra
from agent_memory.integrations.adapting import joined

try:
    from strands.middleware import InvokeModelContext, InvokeModelStage
    from strands.session.repository_session_manager import RepositorySessionManager
    from strands.session.session_repository import SessionRepository
    from strands.types.content import split_system_prompt
    from strands.types.exceptions import SessionException
    from strands.types.session import Session, SessionAgent, SessionMessage
except ImportError as error:
    raise MissingExtra("Strands' sessions", "strands") from error

if TYPE_CHECKING:
    from strands.multiagent import MultiAgentBase
    from strands.types.agent import LocalAgent

__all__ = ["AgentMemorySessionManager", "AgentMemorySessionRepository"]

_ROOT = "strands"
T = TypeVar("T")


class AgentMemorySessionRepository(SessionRepository):
    """Stores Strands' sessions and agents, and the messages of agents.

    The messages of each agent are a session of the memory with the id "SESSION/AGENT". The memory's
    blocks absorb the messages, and its `search` finds them. A method that would change or list the
    data of a missing session, agent or message raises `SessionException`.

    Args:
        user_id: The user of the sessions; `memory.delete_user` erases the sessions. None for no
            user.
    """

    def __init__(self, memory: AgentMemory, *, user_id: str | None = None) -> None:
        self._memory = memory
        self._user_id = user_id
        self._values = memory.values(user_id)

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """Store a new session. An existing id raises `SessionException`."""
        if self.read_session(session.session_id) is not None:
            raise SessionException(f"Session {session.session_id} already exists")
        self._values.put((_ROOT, session.session_id), "session", session.to_dict())
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        item = self._values.get((_ROOT, session_id), "session")
        return None if item is None else Session.from_dict(item.value)

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Delete a session with its agents and messages."""
        self._needed(self.read_session(session_id), f"Session {session_id}")
        for item in self._values.search((_ROOT, session_id, "agents"), limit=10**6):
            self._memory.delete(joined(session_id, item.key), user_id=self._user_id)
        self._values.clear((_ROOT, session_id))

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        place = (_ROOT, session_id, "agents")
        self._values.put(place, session_agent.agent_id, session_agent.to_dict())

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        item = self._values.get((_ROOT, session_id, "agents"), agent_id)
        return None if item is None else SessionAgent.from_dict(item.value)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        before = self._agent(session_id, session_agent.agent_id)
        session_agent.created_at = before.created_at
        self.create_agent(session_id, session_agent)

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """Append a message. A message that is already stored under its number is ignored.

        Raises:
            SessionException: Another message has the same number, or the agent does not exist.
        """
        self._agent(session_id, agent_id)
        fields = {**_storable(session_message), "id": str(session_message.message_id)}
        try:
            self._memory.update(joined(session_id, agent_id), fields, user_id=self._user_id)
        except AgentMemoryError as error:
            raise SessionException(str(error)) from error

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **kwargs: Any
    ) -> SessionMessage | None:
        hits = (item for item in self._log(session_id, agent_id) if item.message_id == message_id)
        return next(hits, None)

    def update_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """Replace a message. Blocks forget everything that they absorbed from the old message."""
        number = session_message.message_id
        before = self._needed(self.read_message(session_id, agent_id, number), f"Message {number}")
        session_message.created_at = before.created_at
        fields = {**_storable(session_message), "id": str(number)}

        def change(log: list[Entry]) -> list[Any]:
            return [fields if _number(entry) == number else entry for entry in log]

        self._memory.edit(joined(session_id, agent_id), change, user_id=self._user_id)

    def list_messages(
        self,
        session_id: str,
        agent_id: str,
        limit: int | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> list[SessionMessage]:
        self._agent(session_id, agent_id)
        return self._log(session_id, agent_id, offset, limit)

    def create_multi_agent(
        self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any
    ) -> None:
        place = (_ROOT, session_id, "multi_agents")
        self._values.put(place, multi_agent.id, multi_agent.serialize_state())

    def read_multi_agent(
        self, session_id: str, multi_agent_id: str, **kwargs: Any
    ) -> dict[str, Any] | None:
        item = self._values.get((_ROOT, session_id, "multi_agents"), multi_agent_id)
        return None if item is None else dict(item.value)

    def update_multi_agent(
        self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any
    ) -> None:
        before = self.read_multi_agent(session_id, multi_agent.id)
        self._needed(before, f"MultiAgent state {multi_agent.id} in session {session_id}")
        self.create_multi_agent(session_id, multi_agent)

    def _agent(self, session_id: str, agent_id: str) -> SessionAgent:
        what = f"Agent {agent_id} in session {session_id}"
        return self._needed(self.read_agent(session_id, agent_id), what)

    def _needed(self, value: T | None, what: str) -> T:
        if value is None:
            raise SessionException(f"{what} does not exist")
        return value

    def _log(
        self, session_id: str, agent_id: str, after: int = 0, limit: int | None = None
    ) -> list[SessionMessage]:
        log = joined(session_id, agent_id)
        entries = self._memory.history(log, user_id=self._user_id, after=after, limit=limit)
        return [message for entry in entries for message in _messages(entry)]


class AgentMemorySessionManager(RepositorySessionManager, AgentMemorySessionRepository):
    """A session of an agent, for `Agent(session_manager=...)`.

    Args:
        session_id: The session; created if needed.
        within_budget: Whether the model gets the session's context instead of the agent's messages.
            The context has a summary and recalls, and fits the memory's budget. The agent's own
            messages stay unchanged.
    """

    def __init__(
        self,
        session_id: str,
        memory: AgentMemory,
        *,
        user_id: str | None = None,
        within_budget: bool = False,
        **kwargs: Any,
    ) -> None:
        AgentMemorySessionRepository.__init__(self, memory, user_id=user_id)
        self._within_budget = within_budget
        RepositorySessionManager.__init__(
            self, session_id=session_id, session_repository=self, **kwargs
        )

    def initialize(self, agent: LocalAgent, **kwargs: Any) -> None:
        super().initialize(agent, **kwargs)
        if self._within_budget:
            agent.add_middleware(InvokeModelStage.Input, self._with_context)

    async def _with_context(self, call: InvokeModelContext) -> InvokeModelContext:
        context = await asyncio.to_thread(
            self._memory.get,
            joined(self.session_id, call.agent.agent_id),
            user_id=self._user_id,
            format=CONVERSE,
        )
        arguments = context.to_arguments()
        system = [*(split_system_prompt(call.system_prompt)[1] or ()), *arguments.get("system", ())]
        return call.replace(
            messages=arguments["messages"], system_prompt=system or None, dynamic_trailing_blocks=0
        )


def _storable(message: SessionMessage) -> dict[str, Any]:
    return {"raw": message.to_dict(), "format": CONVERSE, "created_at": message.created_at}


def _messages(entry: Entry) -> Sequence[SessionMessage]:
    """Return the entry's message in a tuple, or () if Strands did not store the message."""
    raw = entry.message.raw
    if entry.message.format != CONVERSE or raw is None or "message_id" not in raw:
        return ()
    return (SessionMessage.from_dict(raw),)


def _number(entry: Entry) -> int | None:
    return next((message.message_id for message in _messages(entry)), None)
