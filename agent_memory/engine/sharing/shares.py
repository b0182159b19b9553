"""`Share`, a namespace for several agents, and `SharedMemory`, one agent's access to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from agent_memory.core.idempotency import WriteKey, key_of_message
from agent_memory.core.limits import (
    Access,
    OwnId,
    check_id,
    how_many,
    marker,
    quoted,
    share_of,
    shared_session,
    shared_user,
    visible_id,
)
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head, Recall, Span
from agent_memory.engine.paging import listed_heads
from agent_memory.engine.sharing.grants import signed
from agent_memory.errors import AccessDenied, InvalidInput, ToolRefused

if TYPE_CHECKING:
    from datetime import date, datetime

    from pydantic import BaseModel

    from agent_memory.core.context import MemoryContext
    from agent_memory.core.turns import Turn
    from agent_memory.engine.assembly import Components
    from agent_memory.engine.loop.rounds import ToolLike
    from agent_memory.engine.loop.turns import Turns
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.recall.contexts import Pack
    from agent_memory.ltm_blocks.extractive.history.fact import Fact

T = TypeVar("T")

DENIED = (
    "This agent has no such access here, or there is nothing of that name. The "
    "application can grant it: memory.share(name).grant(agent_id, access)."
)


class Share:
    """A shared namespace, from `AgentMemory.share`. It grants and revokes the access of agents."""

    def __init__(self, memory: AgentMemory, name: str) -> None:
        self._memory = memory
        self._components = memory.components
        self._grants = memory.components.grants
        self.name = name

    def __repr__(self) -> str:
        return f"Share({self.name!r})"

    def grant(self, agent_id: str, access: Access = "read") -> None:
        """Grant an agent access. The grant is durable on return and holds in every process.

        Args:
            agent_id: The agent. `AgentMemory.delete_user` with this id deletes the agent's messages
                and grants.
            access: "read", or "write", which includes reading. The new access replaces the old
                access.

        Raises:
            InvalidId: The agent's id is not valid.
            InvalidInput: The access is neither "read" nor "write".
            StoreError: The store failed.
        """
        self._check(agent_id, access)
        for user_id in (agent_id, shared_user(self.name)):
            self._components.deletion.settle(user_id)  # a pending deletion would drop the grant
        self._grants.put(self.name, agent_id, access)

    def revoke(self, agent_id: str) -> None:
        """Revoke an agent's access. Calls of the agent that begin afterwards raise `AccessDenied`.

        The agent's messages stay. A grant in the configuration does not restore the access.
        Idempotent.
        """
        self._check(agent_id)
        self._grants.put(self.name, agent_id, None)

    def has_access(self, agent_id: str, access: Access = "read") -> bool:
        """Return whether an agent may read, or write, now.

        Raises:
            InvalidInput: The access is neither "read" nor "write".
        """
        self._check(agent_id, access)
        return self._grants.allows(self.name, agent_id, access)

    def agents(self) -> dict[str, Access]:
        """Return the agents with access, in order of their ids, each with its access."""
        self._components.guard.check(None, None)
        return self._grants.agents(self.name)

    def agent(self, agent_id: str) -> SharedMemory:
        """Return the namespace as an agent uses it. The agent need not have access yet.

        Raises:
            InvalidId: The agent's id is not valid.
        """
        self._check(agent_id)
        return SharedMemory(self._memory, self.name, agent_id)

    def sessions(self, *, limit: int = 100, after: str | None = None) -> list[Head]:
        """Return a page of the namespace's sessions after `after`, in order of their ids."""
        self._components.guard.check(None, None)
        return _sessions(self._components, self.name, limit, after)

    def delete(self) -> None:
        """Delete the namespace: first its grants, then its sessions and all derived records.

        Idempotent. An interrupted deletion is finished by a worker, `flush`, or the next call.
        Grants in the configuration are restored when a memory is opened.
        """
        self._components.guard.check(None, None)
        self._components.deletion.user(shared_user(self.name))

    def _check(self, agent_id: str, access: str = "read") -> None:
        self._components.guard.check(None, None)
        check_id("agent_id", agent_id)
        if access not in get_args(Access):
            raise InvalidInput(f'access is {quoted(access)}. Give "read" or "write".')


class SharedMemory:
    """A shared namespace as one agent uses it, from `Share.agent`.

    The methods are those of `AgentMemory`. Each call reads the agent's grant from the store. A call
    that reads data checks the grant again before it returns. An agent without access gets the same
    `AccessDenied` from each call, whether or not the namespace or the session exists. Session ids
    are local to the namespace. The agent's messages have its id as `metadata["agent"]`.
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
        messages = [signed(new, self.agent_id) for each in values for new in Message.all_of(each)]
        authors = self._components.authors
        recorded = authors.knows(self.agent_id, session)
        # this call may be a retry, and the head before the first attempt is unknown
        retries = key is not None or any(map(key_of_message, messages))
        before = None if recorded or retries else self._components.store.head(session)
        head = self._memory.update(
            session, messages, user_id=self._user, key=key, expected_end=expected_end
        )
        if messages and head.end:
            authors.wrote(self.agent_id, before, head)
            if not self._allowed("write"):
                self._components.deletion.settle(self.agent_id)  # the agent may have been deleted
                self._components.redaction.late(self.agent_id, session)
        return _visible_head(head)

    def get(
        self,
        session_id: str,
        message: Any = None,
        *,
        max_tokens: int | None = None,
        format: str | None = None,
    ) -> MemoryContext:
        """Return the context. See `AgentMemory.get`."""
        options: Any = {"user_id": self._user, "max_tokens": max_tokens, "format": format}
        return _visible_context(
            self._reading(lambda: self._memory.get(self._session(session_id), message, **options))
        )

    def history(
        self, session_id: str, *, after: int = 0, limit: int | None = None, last: int | None = None
    ) -> list[Entry]:
        """Return the log's entries. See `AgentMemory.history`."""
        options: Any = {"user_id": self._user, "after": after, "limit": limit, "last": last}
        log = self._reading(lambda: self._memory.history(self._session(session_id), **options))
        return [replace(entry, session_id=visible_id(entry.session_id)) for entry in log]

    def search(self, query: str, *, session_id: str | None = None, limit: int = 10) -> list[Recall]:
        """Search the namespace, or one of its sessions. See `AgentMemory.search`."""

        def read() -> list[Recall]:
            session = self._maybe(session_id)
            return self._memory.search(query, user_id=self._user, session_id=session, limit=limit)

        return [_visible_recall(recall) for recall in self._reading(read)]

    def sessions(self, *, limit: int = 100, after: str | None = None) -> list[Head]:
        """Return a page of the namespace's sessions after `after`, in order of their ids."""
        return self._reading(lambda: _sessions(self._components, self.share, limit, after))

    def pop(self, session_id: str, count: int = 1) -> list[Message]:
        """Remove the newest messages of all authors. See `AgentMemory.pop`. Needs write access.

        Raises:
            AccessDenied: The agent may not write. Nothing was removed, unless access was revoked
                during the call.
        """
        return self._reading(
            lambda: self._memory.pop(self._session(session_id), count, user_id=self._user), "write"
        )

    def facts(
        self,
        *,
        session_id: str | None = None,
        as_of: datetime | date | None = None,
        known_at: datetime | date | None = None,
    ) -> list[Fact]:
        """Return the namespace's facts. See `User.facts`."""

        def read() -> list[Fact]:
            user, session = self._memory.user(self._user), self._maybe(session_id)
            return user.facts(session_id=session, as_of=as_of, known_at=known_at)

        return [_visible_fact(fact) for fact in self._reading(read)]

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
        self, turn: Turn, answer: Any, *, key: str | None = None, expected_end: int | None = None
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
        tools: Sequence[ToolLike] | None = None,
        max_rounds: int = 8,
        key: str | None = None,
        expected_end: int | None = None,
        **options: Any,
    ) -> Any:
        """Run a whole turn with a model. See `AgentMemory.completion`.

        `stream` and the memory's own tools are not available. Write access is checked before the
        model is called and when the turn is stored.
        """
        self._require("write")
        if "stream" in options:
            raise InvalidInput(
                "A shared namespace has no streams, because they could be read after access was "
                "revoked. Leave `stream` out, or stream between before_turn and after_turn."
            )
        arguments = {"model": model, "tools": tools, "max_rounds": max_rounds, **options}
        arguments |= {"key": key, "expected_end": expected_end}
        return self._turns.complete(session_id, message, user_id=None, **arguments)

    @property
    def _turns(self) -> Turns:
        """The turn methods, which read and store with access checks."""

        def begin(session_id: str, messages: Sequence[Message], **_: Any) -> Pack:
            session = self._session(session_id)
            turns = self._memory.turns
            pack = self._reading(lambda: turns.begin(session, messages, user_id=self._user))
            return lambda more: _visible_context(pack(more))

        def update(
            session_id: str, message: Any, *, user_id: str | None = None, **terms: Any
        ) -> Head:
            return self.update(session_id, message, **terms)

        def stored(session_id: str, key: WriteKey, **_: Any) -> Sequence[Message] | None:
            return self._reading(
                lambda: self._memory._stored(self._session(session_id), key, user_id=self._user)
            )

        def notify(turn: Turn, messages: Sequence[Message] | None) -> None:
            own = replace(turn, session_id=self._session(turn.session_id), user_id=self._user)
            self._memory.turns.notify(own, messages)

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
        self._components.guard.check(None, None)
        if not self._allowed(access):
            raise AccessDenied(DENIED)

    def _allowed(self, access: Access) -> bool:
        return self._components.grants.allows(self.share, self.agent_id, access)

    def _reading(self, read: Callable[[], T], access: Access = "read") -> T:
        self._require(access)
        result = read()
        self._require(access)  # access may have been revoked during the read
        return result

    def _session(self, session_id: str) -> OwnId:
        return shared_session(self.share, session_id)

    def _maybe(self, session_id: str | None) -> OwnId | None:
        return None if session_id is None else self._session(session_id)


def _sessions(parts: Components, share: str, limit: int, after: str | None) -> list[Head]:
    limit, first = how_many("limit", limit), marker(after)
    since = None if first is None else shared_session(share, first)
    heads = listed_heads(parts.store, shared_user(share), since, limit, shared=True)
    return [_visible_head(head) for head in islice(heads, limit)]


def _refuse_to_replace(turn: Turn, part: Span, messages: Sequence[Message]) -> Head:
    raise InvalidInput("This turn was not begun in a shared namespace. Nothing was stored.")


def _refuse_to_call(session_id: str, name: str, *_: object, **__: object) -> str:
    raise ToolRefused(f"{name} cannot be called in a shared namespace.")


def _visible_head(head: Head) -> Head:
    """Return a head with the session id that agents use, and the namespace as its user."""
    session_id = visible_id(head.session_id)
    return replace(head, session_id=session_id, user_id=share_of(head.session_id))


def _visible_recall(recall: Recall) -> Recall:
    sources = tuple((visible_id(session_id), seq) for session_id, seq in recall.sources)
    return replace(recall, id=visible_id(recall.id), sources=sources)


def _visible_fact(fact: Fact) -> Fact:
    evidence = (replace(item, session_id=visible_id(item.session_id)) for item in fact.evidence)
    return replace(fact, evidence=tuple(evidence))


def _visible_context(context: MemoryContext) -> MemoryContext:
    recalls = [_visible_recall(recall) for recall in context.recalls]
    head = None if context.head is None else _visible_head(context.head)
    return replace(context, recalls=recalls, head=head)
