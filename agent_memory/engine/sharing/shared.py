"""`SharedMemory`: the calls of one agent on a shared namespace, within its grants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from agent_memory.core.idempotency import WriteKey, key_of_message
from agent_memory.core.ids import (
    Access,
    OwnId,
    marker,
    share_of,
    shared_session,
    shared_user,
    visible_id,
)
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head, Recall, Span
from agent_memory.engine.paging import page_of
from agent_memory.engine.sharing.authorship import signed
from agent_memory.errors import AccessDenied, InvalidInput, ToolRefused

if TYPE_CHECKING:
    from datetime import date, datetime

    from pydantic import BaseModel

    from agent_memory.core.context import MemoryContext
    from agent_memory.core.turns import Turn
    from agent_memory.engine.loop.rounds import GivenTool
    from agent_memory.engine.loop.turns import Turns
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.recall.contexts import Pack
    from agent_memory.ltm_blocks.extractive.history.fact import Fact


def visible_head(head: Head) -> Head:
    """Return a head with the id of the namespace, which stands in for its user."""
    session_id = visible_id(head.session_id)
    return replace(head, session_id=session_id, user_id=share_of(head.session_id))


def visible_entry(entry: Entry) -> Entry:
    """Return an entry with the id that agents use for its session."""
    return replace(entry, session_id=visible_id(entry.session_id))


def visible_recall(recall: Recall) -> Recall:
    """Return a recall with the ids that agents use for sessions, also within its own id."""
    sources = tuple((visible_id(session_id), seq) for session_id, seq in recall.sources)
    return replace(recall, id=visible_id(recall.id), sources=sources)


def visible_fact(fact: Fact) -> Fact:
    """Return a fact with the ids that agents use for sessions."""
    evidence = (replace(one, session_id=visible_id(one.session_id)) for one in fact.evidence)
    return replace(fact, evidence=tuple(evidence))


def visible_context(context: MemoryContext) -> MemoryContext:
    """Return a context with the ids that agents use for sessions."""
    recalls = [visible_recall(recall) for recall in context.recalls]
    head = None if context.head is None else visible_head(context.head)
    return replace(context, recalls=recalls, head=head)


T = TypeVar("T")

DENIED = (
    "This agent has no such access here, or there is nothing of that name. The "
    "application can grant it: memory.share(name).grant(agent_id, access)."
)


class SharedMemory:
    """The calls of `AgentMemory` on one shared namespace, for one agent. Made by `Share.agent`.

    Each call reads the agent's grant from the store. A call that reads checks it again before it
    returns. An agent without access learns nothing: each call raises the same `AccessDenied`,
    whether or not the namespace or session exists. Session ids are local to the namespace.

    Args:
        memory: The memory.
        share: The namespace's name, checked.
        agent_id: The agent's id, checked. Its messages have it as `metadata["agent"]`.
    """

    def __init__(self, memory: AgentMemory, share: str, agent_id: str) -> None:
        self._memory = memory
        self._components = memory.components
        self._user = shared_user(share)
        self.share = share
        self.agent_id = agent_id

    def __repr__(self) -> str:
        return f"SharedMemory({self.share!r}, agent_id={self.agent_id!r})"

    def update(
        self,
        session_id: str,
        message: Any,
        *,
        key: str | None = None,
        expected_end: int | None = None,
    ) -> Head:
        """Append messages with the agent's id. See `AgentMemory.update`. Needs write access.

        Raises:
            AccessDenied: The agent may not write. Nothing was stored.
        """
        self._require("write")
        session = self._session(session_id)
        values = message if isinstance(message, list | tuple) else [message]
        messages = [signed(one, self.agent_id) for each in values for one in Message.all_of(each)]
        authors = self._components.authors
        known = authors.knows(self.agent_id, session)
        # for a retry, the head before the first call is unknown
        retries = key is not None or any(map(key_of_message, messages))
        before = None if known or retries else self._components.store.head(session)
        head = self._memory.update(
            session, messages, user_id=self._user, key=key, expected_end=expected_end
        )
        if messages and head.end:
            authors.wrote(self.agent_id, before, head)
            if not self._allowed("write"):
                self._components.deletion.settle(self.agent_id)  # the agent may be deleted
                self._components.redaction.late(self.agent_id, session)
        return visible_head(head)

    def get(
        self,
        session_id: str,
        message: Any = None,
        *,
        max_tokens: int | None = None,
        format: str | None = None,
    ) -> MemoryContext:
        """Return the context. See `AgentMemory.get`."""

        def read() -> MemoryContext:
            context = self._memory.get(
                self._session(session_id),
                message,
                user_id=self._user,
                max_tokens=max_tokens,
                format=format,
            )
            return visible_context(context)

        return self._reading(read)

    def history(
        self, session_id: str, *, after: int = 0, limit: int | None = None, last: int | None = None
    ) -> list[Entry]:
        """Return the log's entries. See `AgentMemory.history`."""

        def read() -> list[Entry]:
            log = self._memory.history(
                self._session(session_id),
                user_id=self._user,
                after=after,
                limit=limit,
                last=last,
            )
            return [visible_entry(entry) for entry in log]

        return self._reading(read)

    def search(self, query: str, *, session_id: str | None = None, limit: int = 10) -> list[Recall]:
        """Search the namespace, or one of its sessions. See `AgentMemory.search`."""

        def read() -> list[Recall]:
            found = self._memory.search(
                query, user_id=self._user, session_id=self._maybe(session_id), limit=limit
            )
            return [visible_recall(one) for one in found]

        return self._reading(read)

    def sessions(self, *, limit: int = 100, after: str | None = None) -> list[Head]:
        """Return a page of the namespace's sessions after `after`, in order of their ids."""

        def read() -> list[Head]:
            page = page_of(
                self._components.store,
                self._user,
                limit=limit,
                after=self._maybe(marker(after)),
                shared=True,
            )
            return [visible_head(head) for head in page]

        return self._reading(read)

    def pop(self, session_id: str, count: int = 1) -> list[Message]:
        """Remove the newest messages of all authors. See `AgentMemory.pop`. Needs write access.

        Raises:
            AccessDenied: The agent may not write. Nothing was removed, unless access was revoked
                during the call.
        """

        def take() -> list[Message]:
            return self._memory.pop(self._session(session_id), count, user_id=self._user)

        return self._reading(take, "write")

    def facts(
        self,
        *,
        session_id: str | None = None,
        as_of: datetime | date | None = None,
        known_at: datetime | date | None = None,
    ) -> list[Fact]:
        """Return the namespace's facts. See `User.facts`."""

        def read() -> list[Fact]:
            found = self._memory.user(self._user).facts(
                session_id=self._maybe(session_id), as_of=as_of, known_at=known_at
            )
            return [visible_fact(one) for one in found]

        return self._reading(read)

    def profile(
        self, *, as_of: datetime | date | None = None, known_at: datetime | date | None = None
    ) -> BaseModel:
        """Return the namespace's profile. See `User.profile`."""
        user = self._memory.user(self._user)
        return self._reading(lambda: user.profile(as_of=as_of, known_at=known_at))

    def before_turn(self, session_id: str, message: Any) -> Turn:
        """Return the context for a turn. See `AgentMemory.before_turn`."""
        return self._reading(lambda: self._turns.before(session_id, message, None))

    def after_turn(
        self,
        turn: Turn,
        answer: Any,
        *,
        key: str | None = None,
        expected_end: int | None = None,
    ) -> Head:
        """Store a turn with its answer. See `AgentMemory.after_turn`. Needs write access."""
        self._require("write")
        return self._turns.after(turn, answer, key, expected_end)

    def completion(
        self,
        session_id: str,
        message: Any,
        *,
        model: str | None = None,
        tools: Sequence[GivenTool] | None = None,
        max_rounds: int = 8,
        key: str | None = None,
        expected_end: int | None = None,
        **options: Any,
    ) -> Any:
        """Run a whole turn with a model. See `AgentMemory.completion`.

        There is neither `stream` nor a tool of the memory. Needs write access, before the model is
        called and when the turn is stored.
        """
        self._require("write")
        if "stream" in options:
            raise InvalidInput(
                "A shared namespace has no streams: one could be read after access was revoked. "
                "Leave `stream` out, or use before_turn and after_turn around a stream of your own."
            )
        arguments = {"model": model, "tools": tools, "max_rounds": max_rounds, **options}
        arguments |= {"key": key, "expected_end": expected_end}
        return self._turns.complete(session_id, message, user_id=None, **arguments)

    @property
    def _turns(self) -> Turns:
        """The calls about a turn, which read and store through the checked calls."""

        def begin(
            session_id: str,
            asked: Sequence[Message],
            *,
            user_id: str | None,
            reads_turn: bool = False,
        ) -> Pack:
            session = self._session(session_id)
            turns = self._memory.turns
            pack = self._reading(lambda: turns.begin(session, asked, user_id=self._user))
            return lambda more: visible_context(pack(more))

        def update(
            session_id: str, message: Any, *, user_id: str | None = None, **terms: Any
        ) -> Head:
            return self.update(session_id, message, **terms)

        def stored(
            session_id: str, key: WriteKey, *, user_id: str | None = None
        ) -> Sequence[Message] | None:
            return self._reading(
                lambda: self._memory._stored(self._session(session_id), key, user_id=self._user)
            )

        def notify(turn: Turn, messages: Sequence[Message] | None) -> None:
            session = self._session(turn.session_id)
            self._memory.turns.notify(
                replace(turn, session_id=session, user_id=self._user), messages
            )

        return replace(
            self._memory.turns,
            notify=notify,
            begin=begin,
            update=update,
            stored=stored,
            replaced=_refuse_to_replace,
            call_tool=_refuse_to_call,
            toolbox=dict,
        )

    def _require(self, access: Access) -> None:
        """Refuse a call without a grant.

        Raises:
            AccessDenied: The agent does not have this access.
        """
        self._components.guard.check(None, None)
        if not self._allowed(access):
            raise AccessDenied(DENIED)

    def _allowed(self, access: Access) -> bool:
        return self._components.grants.allows(self.share, self.agent_id, access)

    def _reading(self, read: Callable[[], T], access: Access = "read") -> T:
        self._require(access)
        found = read()
        self._require(access)  # access may have been revoked during the read
        return found

    def _session(self, session_id: str) -> OwnId:
        return shared_session(self.share, session_id)

    def _maybe(self, session_id: str | None) -> OwnId | None:
        return None if session_id is None else self._session(session_id)


def _refuse_to_replace(turn: Turn, part: Span, said: Sequence[Message]) -> Head:
    raise InvalidInput("This turn was not begun in a shared namespace. Nothing was stored.")


def _refuse_to_call(
    session_id: str,
    name: str,
    arguments: Mapping[str, Any] | str | None = None,
    *,
    user_id: str | None = None,
) -> str:
    raise ToolRefused(f"{name} cannot be called in a shared namespace.")
