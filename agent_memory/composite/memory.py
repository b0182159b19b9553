"""`CompositeMemory`: several memories and blocks as one."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Self, TypeVar

from agent_memory.composite.asking import Asking, Question
from agent_memory.composite.done import all_done, named
from agent_memory.composite.members import Members, memories_in
from agent_memory.composite.routing import Routing, Rule
from agent_memory.composite.session import CompositeSession
from agent_memory.composite.tools import tools_of
from agent_memory.core.context import MemoryContext
from agent_memory.core.fusion import merge
from agent_memory.core.ids import marker
from agent_memory.core.limits import how_many, text_of
from agent_memory.core.messages import Message
from agent_memory.core.records import Absorbed, Entry, Head, Recall, Scope
from agent_memory.core.sent import SentContext
from agent_memory.core.tools import Tool
from agent_memory.core.turns import Turn, check_turn
from agent_memory.engine.guard import scope_of
from agent_memory.engine.loop.turns import Turns
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.recall.contexts import (
    Contexts,
    Pack,
    View,
    checked_budget,
    query_of,
    to_add,
)
from agent_memory.engine.recall.merged import most_of
from agent_memory.engine.recall.runner import resolve
from agent_memory.engine.stats import Stats
from agent_memory.engine.tool_calls import run_tool
from agent_memory.errors import ConfigError
from agent_memory.ltm_blocks.base import Block

T = TypeVar("T")

logger = logging.getLogger(__name__)


class CompositeMemory:
    """Reads several memories and blocks in parallel; writes each session where a rule says.

    A session has one home: the memory that its window, budget, model and tools are of. `get` and
    `search` ask all members, each within a time limit; who fails or is too slow is named in
    `warnings`. What they recall is merged, and packed into the home's budget. Whose memory is read
    is told apart by each member itself, as ever.

    Args:
        members: Open memories, and blocks that only read, by names of lower-case letters, digits
            and underscores. Blocks are bound to the first memory's store, models and embedder.
        route: The name of the memory that all sessions are written to; or a rule that gives it for
            `(session_id, user_id)`, always the same for the same. None: the first memory.
        timeouts: By the member's name, how many seconds `get` and `search` wait for it.
        timeout: How many seconds they wait for the others.

    Attributes:
        memories: The members that are memories.
        blocks: The members that are blocks, bound.

    Raises:
        ConfigError: There is no memory among them, a block would have to be fed, a name is not
            usable or unknown, or a time limit is not above 0.
    """

    def __init__(
        self,
        members: Mapping[str, AgentMemory | Block],
        *,
        route: str | Rule | None = None,
        timeouts: Mapping[str, float] | None = None,
        timeout: float = 2.0,
    ) -> None:
        memories = memories_in(members)
        limits = dict(timeouts or {})
        if unknown := limits.keys() - members.keys():
            raise ConfigError(f"`timeouts` names {sorted(unknown)}. Members: {', '.join(members)}.")
        if min([timeout, *limits.values()]) <= 0:
            raise ConfigError("A time limit is not above 0. Give the seconds to wait.")
        self._route = Routing(memories, next(iter(memories)) if route is None else route)
        self._members = Members.of(members, memories)
        self.memories, self.blocks = self._members.memories, self._members.blocks
        self._asking = Asking(self._members, timeout, limits)
        self._infos = self._members.infos

    def __repr__(self) -> str:
        return f"CompositeMemory({[*self.memories, *self.blocks]})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def home(self, session_id: str, user_id: str | None = None) -> AgentMemory:
        """The memory of a session's window: for its facts, notes, files, tools."""
        return self.memories[self._route.home(session_id, user_id)]

    def update(
        self,
        session_id: str,
        message: Any,
        *,
        user_id: str | None = None,
        key: str | None = None,
        expected_end: int | None = None,
    ) -> Head:
        """As `AgentMemory.update`, in the session's home.

        Raises:
            ConfigError: The rule names what is no memory; nothing was stored.
        """
        return self.home(session_id, user_id).update(
            session_id, message, user_id=user_id, key=key, expected_end=expected_end
        )

    def get(
        self,
        session_id: str,
        message: Any = None,
        *,
        user_id: str | None = None,
        max_tokens: int | None = None,
    ) -> MemoryContext:
        """The home's window, plus what all members recall for `message`, within the home's budget.

        Args:
            session_id: The conversation; one that does not exist yet gives recalls only.
            message: Text or a message to recall for. It is not stored; `to_messages()` ends with
                it, where a user says it. None recalls for the newest user message of the window.
            user_id: The user, needed where the session does not exist yet.
            max_tokens: A smaller budget than the home's, for this call.

        Raises:
            InvalidInput: An id or the message is not usable.
            SessionOfAnotherUser: The session belongs to another user.
            StoreError: The home's session store failed. What else fails is named in `warnings`.
        """
        query = query_of(message)
        asked = to_add(query)
        view = self._view(session_id, asked, user_id, query, max_tokens, once=True)
        return self._contexts(session_id, user_id).sending(session_id, view)(asked)

    def _contexts(self, session_id: str, user_id: str | None) -> Contexts:
        return self.memories[self._route.home(session_id, user_id)].components.contexts

    def _view(
        self,
        session_id: str,
        asked: Sequence[Message],
        user_id: str | None,
        query: Message | None = None,
        max_tokens: int | None = None,
        *,
        once: bool = False,
    ) -> View:
        name = self._route.home(session_id, user_id)
        home = self.memories[name]
        contexts = home.components.contexts
        packer = replace(contexts.packer.lowered(checked_budget(max_tokens)), blocks=self._infos)
        seen = contexts.see(session_id, asked, user_id, packer=packer, query=query, once=once)
        scope, head = seen.scope, seen.head
        question = Question(seen.query, packer.candidates, scope, name)
        found, warnings = self._asking.recall(question)
        for other, memory in self.memories.items():
            troubles = memory.components.contexts.troubles(head if memory is home else None)
            if memory is home:
                troubles += contexts.waiting(scope, head)
            warnings += [f"{other}: {trouble}" for trouble in troubles]
        return View(seen, found, warnings, self._asking.shown(question))

    def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        limit: int = 10,
    ) -> list[Recall]:
        """What all members find, merged best first; as `AgentMemory.search`.

        A session is that of its home; of the other members only what comes from no session is given
        then.
        """
        name = self._route.home(session_id, user_id) if session_id is not None else None
        home = (self.memories[name] if name is not None else self._first).components
        home.guard.check(session_id, user_id)
        query, limit = text_of("query", query), how_many("limit", limit)
        head = home.guard.owned(session_id, user_id) if session_id is not None else None
        scope = replace(scope_of(head, user_id, session_id), only_session=session_id is not None)
        asked = Message(role="user", content=query)
        question = Question(asked, most_of(limit, scope, len(self.memories)), scope, name)
        found, warnings = self._asking.search(question)
        for warning in warnings:
            logger.warning("search: %s", warning)
        return home.search.priced(merge(found)[:limit])

    def history(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        after: int = 0,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Entry]:
        """As `AgentMemory.history`, of the log that the home has."""
        home = self.home(session_id, user_id)
        return home.history(session_id, user_id=user_id, after=after, limit=limit, last=last)

    def contexts(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[SentContext]:
        """As `AgentMemory.contexts`, of what the home gave: without what the others added."""
        home = self.home(session_id, user_id)
        return home.contexts(session_id, user_id=user_id, after=after, limit=limit)

    def pop(self, session_id: str, count: int = 1, *, user_id: str | None = None) -> list[Message]:
        """As `AgentMemory.pop`, in the session's home."""
        return self.home(session_id, user_id).pop(session_id, count, user_id=user_id)

    def end(self, session_id: str, *, user_id: str | None = None) -> list[Absorbed]:
        """As `AgentMemory.end`, in the session's home, and for the blocks alone."""
        name = self._route.home(session_id, user_id)
        scope = self.memories[name].components.guard.scope(user_id, session_id)
        absorbed = self.memories[name].end(session_id, user_id=user_id)
        for block in self.blocks.values():
            block.end(scope)
        return named(name, absorbed)

    def flush(self, session_id: str | None = None, *, user_id: str | None = None) -> list[Absorbed]:
        """Absorb what is pending: of one session, of one user's, or of all.

        Returns:
            What was absorbed, under the names "<member>.<block>".

        Raises:
            StoreError: A memory failed; all were tried, and the error names those.
        """
        if session_id is not None:
            name = self._route.home(session_id, user_id)
            return named(name, self.memories[name].flush(session_id, user_id=user_id))
        self._check(None, user_id)
        calls = {name: partial(one.flush, user_id=user_id) for name, one in self.memories.items()}
        done = all_done("flush", calls)
        return [one for name, absorbed in done.items() for one in named(name, absorbed)]

    def delete(self, session_id: str, *, user_id: str | None = None) -> None:
        """Remove a session, and what derives from it, from its home, and what blocks alone keep of
        it. Idempotent, and resumed by the next call.

        Raises:
            StoreError: A member failed; all were tried, and the error names those.
        """
        name = self._route.home(session_id, user_id)
        home = self.memories[name]
        scope = home.components.guard.scope(user_id, session_id)
        calls: dict[str, Callable[[], object]] = {name: partial(home.delete, session_id)}
        all_done("delete", {**calls, **self._forgotten(scope)})

    def delete_user(self, user_id: str) -> None:
        """Remove all of a user's sessions, and what derives from them, from every member.

        Raises:
            StoreError: A member failed; all were tried, and the error names those. Call it again.
        """
        self._check(None, user_id)
        calls: dict[str, Callable[[], object]] = {
            name: partial(memory.delete_user, user_id) for name, memory in self.memories.items()
        }
        all_done("delete_user", {**calls, **self._forgotten(Scope(user_id))})

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """A page of sessions, of all homes, in order of their ids."""
        self._check(None, user_id)
        limit, after = how_many("limit", limit), marker(after)
        pages = [self._route.homed(name, user_id, after, max(1, limit)) for name in self.memories]
        heads = heapq.merge(*pages, key=lambda head: head.session_id)
        return list(islice(heads, limit))

    def before_turn(self, session_id: str, message: Any, *, user_id: str | None = None) -> Turn:
        """As `AgentMemory.before_turn`, with what all members recall."""
        return self._turns(session_id, user_id).before(session_id, message, user_id)

    def after_turn(
        self,
        turn: Turn,
        answer: Any,
        *,
        key: str | None = None,
        expected_end: int | None = None,
    ) -> Head:
        """As `AgentMemory.after_turn`, in the session's home."""
        check_turn(turn)
        turns = self._turns(turn.session_id, turn.user_id)
        return turns.after(turn, answer, key, expected_end)

    def completion(
        self, session_id: str, message: Any, *, user_id: str | None = None, **options: Any
    ) -> Any:
        """As `AgentMemory.completion`, with what all members recall, by the home's model.

        Args:
            session_id: The conversation.
            message: As for `before_turn`.
            user_id: The user, needed where the session does not exist yet.
            **options: `model`, `tools`, `stream`, `max_rounds`, `key`, `expected_end`, and what
                else litellm is to send. Tools of a memory are those of `tools`.
        """
        turns = self._turns(session_id, user_id)
        return turns.complete(session_id, message, user_id=user_id, **options)

    def tools(self, session_id: str, *, user_id: str | None = None) -> list[dict[str, Any]]:
        """What a model may ask of all members: tools of the session's home, and of blocks alone, by
        their own names; those of the other memories by names that begin with the member's, such as
        "company_memory_read", for a user. As `AgentMemory.tools`.

        Raises:
            ConfigError: Two tools have the same name, or one has too long a name.
        """
        self.home(session_id, user_id).components.guard.scope(user_id, session_id)
        return [tool.schema() for tool in self._tools(session_id, user_id).values()]

    def call_tool(
        self,
        session_id: str,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        user_id: str | None = None,
        key: str | None = None,
    ) -> str:
        """Do what a model asked for, in the member whose tool it is; as `AgentMemory.call_tool`."""
        guard = self.home(session_id, user_id).components.guard
        guard.check_session(session_id, user_id)

        def scope() -> Scope:
            return replace(guard.scope(user_id, session_id), key=key)

        return run_tool(self._tools(session_id, user_id), name, arguments, scope)

    def _tools(self, session_id: str, user_id: str | None) -> dict[str, Tool]:
        return tools_of(self._members, self._route.home(session_id, user_id), user_id)

    def session(self, session_id: str, user_id: str | None = None) -> CompositeSession:
        """The same calls with the ids bound."""
        self._check(session_id, user_id)
        return CompositeSession(self, session_id, user_id)

    def stats(self) -> dict[str, Stats]:
        """`AgentMemory.stats` of each memory, by its name."""
        return {name: memory.stats() for name, memory in self.memories.items()}

    def warm_up(self, user_id: str | None = None) -> None:
        """`AgentMemory.warm_up` of each memory; blocks that are members load too."""
        for memory in self.memories.values():
            memory.warm_up(user_id)
        for block in self.blocks.values():
            block.load()

    def close(self) -> None:
        """Close every member. Idempotent.

        Raises:
            StoreError: A member could not be closed; all were tried.
        """
        members: dict[str, Block | AgentMemory] = {**self.blocks, **self.memories}
        all_done("close", {name: one.close for name, one in members.items()})

    @property
    def _first(self) -> AgentMemory:
        return next(iter(self.memories.values()))

    def _check(self, session_id: str | None, user_id: str | None) -> None:
        self._first.components.guard.check(session_id, user_id)

    def _turns(self, session_id: str, user_id: str | None) -> Turns:
        """Turns that read and store here, with the home's model and all members' tools."""
        home = self.home(session_id, user_id)

        def begin(
            session_id: str,
            asked: Sequence[Message],
            *,
            user_id: str | None,
            reads_turn: bool = False,
        ) -> Pack:
            view = self._view(session_id, asked, user_id)
            return self._contexts(session_id, user_id).sending(session_id, view)

        def toolbox() -> dict[str, Tool]:
            return self._tools(session_id, user_id)

        return replace(
            home.turns,
            begin=begin,
            update=self.update,
            call_tool=self.call_tool,
            toolbox=toolbox,
        )

    def _forgotten(self, scope: Scope) -> dict[str, Callable[[], object]]:
        """For each block alone that keeps something: the call that has it forget."""

        def forget(block: Block) -> None:
            resolve(block.delete(scope))
            self._first.components.store.secure_erase()

        return {name: partial(forget, block) for name, block in self._members.manual_blocks.items()}
