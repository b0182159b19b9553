"""`CompositeMemory` combines several memories and blocks."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from itertools import islice
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from agent_memory.composite.members import (
    BlockLink,
    Members,
    Routing,
    Rule,
    all_done,
    memories_in,
    named,
    tools_of,
)
from agent_memory.core.context import BlockInfo, MemoryContext
from agent_memory.core.fusion import merge
from agent_memory.core.limits import how_many, marker, text_of
from agent_memory.core.messages import Message
from agent_memory.core.records import Absorbed, Head, Recall, Scope
from agent_memory.core.tools import Tool
from agent_memory.core.turns import Turn, check_turn
from agent_memory.engine.guard import scope_of
from agent_memory.engine.loop.turns import Turns, call_hooks
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.recall.contexts import (
    Pack,
    View,
    checked_budget,
    is_queried,
    query_of,
    to_add,
)
from agent_memory.engine.recall.fan_out import FanOut
from agent_memory.engine.recall.merged_search import SEARCHED, most_of
from agent_memory.engine.recall.runner import resolve
from agent_memory.engine.session import BoundSession, Session, bound
from agent_memory.engine.stats import Stats
from agent_memory.engine.tool_calls import run_tool
from agent_memory.errors import ConfigError
from agent_memory.ltm_blocks.base import Block, ManualBlock
from agent_memory.models.usage import Account, current_account

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def at_home(
    call: Callable[Concatenate[AgentMemory, P], T],
) -> Callable[Concatenate[CompositeMemory, P], T]:
    """Return a method that calls the same method of `AgentMemory` on the session's home."""

    @wraps(call)
    def method(
        self: CompositeMemory, session_id: str, *args: Any, user_id: str | None = None, **named: Any
    ) -> T:
        bound: Callable[..., T] = getattr(self.home(session_id, user_id), call.__name__)
        return bound(session_id, *args, user_id=user_id, **named)

    return cast("Callable[Concatenate[CompositeMemory, P], T]", method)


class CompositeMemory:
    """Reads several memories and blocks in parallel, and writes each session to one memory.

    The members are memories and single blocks. Each session has one memory as its home, which
    stores the session and provides its window, budget, model and tools. `get` and `search` query
    all members, each within a time limit. If members fail or time out, `get` names them in the
    context's `warnings`, and `search` logs them. The recalls are merged and packed into the home's
    budget. Each member isolates its users. `contexts` returns the home's prompt log, without
    recalls of the other members.

    Args:
        members: Open memories, and blocks that do not absorb logs, by names of lower-case letters,
            digits and underscores. The blocks use the first memory's store, models and embedder.
        route: The name of the home of all sessions, or a function of `(session_id, user_id)` that
            returns the name of a session's home. For a session, the function must always return the
            same name. None means the first memory.
        timeouts: The seconds that `get` and `search` wait for a member, by its name.
        timeout: The seconds that `get` and `search` wait for every other member.

    Attributes:
        memories: The member memories, by name.
        blocks: The member blocks, by name.

    Raises:
        ConfigError: There is no memory, a member block absorbs logs, a name is invalid or unknown,
            or a time limit is not above 0.
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
            raise ConfigError("A time limit is not above 0. Set it to the seconds to wait.")
        self._route = Routing(memories, next(iter(memories)) if route is None else route)
        self._members = Members.of(members, memories)
        self.memories, self.blocks = self._members.memories, self._members.blocks
        queried = (*self._members.recalled, *self._members.searched)
        own_limits = {link.name: limits[link.member] for link in queried if link.member in limits}
        self._fan_out = FanOut(timeout, own_limits)
        self._infos = {
            link.name: BlockInfo(link.block.kind, link.block.max_tokens, link.block.selective)
            for link in self._members.recalled
        }

    def __repr__(self) -> str:
        return f"CompositeMemory({[*self.memories, *self.blocks]})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def home(self, session_id: str, user_id: str | None = None) -> AgentMemory:
        """Return a session's home: the memory that stores it.

        Raises:
            ConfigError: `route` returned a name that no member memory has.
        """
        return self.memories[self._route.home(session_id, user_id)]

    update = at_home(AgentMemory.update)
    history = at_home(AgentMemory.history)
    contexts = at_home(AgentMemory.contexts)
    pop = at_home(AgentMemory.pop)

    def get(
        self,
        session_id: str,
        message: Any = None,
        *,
        user_id: str | None = None,
        max_tokens: int | None = None,
    ) -> MemoryContext:
        """Return the home's window and the recalls of all members, within the home's budget.

        Args:
            session_id: The session. If it does not exist yet, the context has only recalls.
            message: The question, a text or a message. It is not stored. If it is a user message,
                `to_messages()` ends with it. None uses the window's newest user message as the
                question.
            user_id: The user, required if the session does not exist yet.
            max_tokens: A smaller budget than the home's, for this call.

        Raises:
            InvalidInput: An id or the message is invalid.
            SessionOfAnotherUser: The session belongs to another user.
            StoreError: The home's session store failed. Other failures are named in `warnings`.
        """
        query = query_of(message)
        messages = to_add(query)
        view = self._view(session_id, messages, user_id, query, max_tokens, dedupe=True)
        return self._pack(session_id, user_id, view)(messages)

    def _pack(self, session_id: str, user_id: str | None, view: View) -> Pack:
        return self.home(session_id, user_id).components.contexts.sending(session_id, view)

    def _view(
        self,
        session_id: str,
        turn: Sequence[Message],
        user_id: str | None,
        query: Message | None = None,
        max_tokens: int | None = None,
        *,
        dedupe: bool = False,
        reads_turn: bool = False,
    ) -> View:
        name = self._route.home(session_id, user_id)
        home = self.memories[name]
        contexts = home.components.contexts
        packer = contexts.packer.lowered(checked_budget(max_tokens))
        packer = replace(packer, blocks=self._infos, reads_turn=reads_turn)
        session = contexts.see(session_id, turn, user_id, packer=packer, query=query, dedupe=dedupe)
        scope, head = session.scope, session.head
        message = session.search_message()
        blocks = [link for link in self._members.recalled if is_queried(link.block, message)]
        with Account("other", scope.user_id, within=current_account()).charged() as account:
            by_block, warnings = self._recall(blocks, name, scope, message, packer.candidates)
        for other, memory in self.memories.items():
            problems = memory.components.warnings(head if memory is home else None)
            if memory is home:
                problems += contexts.waiting(scope, head)
            warnings += [f"{other}: {problem}" for problem in problems]
        here = {link.name for link in blocks if link.is_in(name)}
        return View(session, by_block, warnings, here, account.usage)

    def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        limit: int = 10,
    ) -> list[Recall]:
        """Search all members, best first. See `AgentMemory.search`.

        With a `session_id`, the results are records of that session in its home, and records of all
        members that come from no session.
        """
        name = self._route.home(session_id, user_id) if session_id is not None else None
        home = (self.memories[name] if name is not None else self._first).components
        home.guard.check(session_id, user_id)
        query, limit = text_of("query", query), how_many("limit", limit)
        head = home.guard.owned(session_id, user_id) if session_id is not None else None
        scope = replace(
            scope_of(head, user_id, session_id), only_session=session_id is not None, floor=SEARCHED
        )
        message = Message(role="user", content=query)
        blocks, most = self._members.searched, most_of(limit, scope, len(self.memories))
        by_block, warnings = self._recall(blocks, name, scope, message, most)
        for warning in warnings:
            logger.warning("a search is incomplete: %s", warning)
        if session_id is not None:  # other memories were searched without the session
            here = {block.name for block in blocks if block.is_in(name)}
            by_block = {
                block: [
                    hit
                    for hit in recalls
                    if not hit.sources or (block in here and scope.wants(hit.sources))
                ]
                for block, recalls in by_block.items()
            }
        return home.search.priced(merge(by_block)[:limit])

    def end(self, session_id: str, *, user_id: str | None = None) -> list[Absorbed]:
        """End the session in its home and in the member blocks. See `AgentMemory.end`."""
        name = self._route.home(session_id, user_id)
        scope = self.memories[name].components.guard.scope(user_id, session_id)
        absorbed = self.memories[name].end(session_id, user_id=user_id)
        for block in self.blocks.values():
            block.end(scope)
        return named(name, absorbed)

    def flush(self, session_id: str | None = None, *, user_id: str | None = None) -> list[Absorbed]:
        """Absorb the pending messages of one session, of a user's sessions, or of all sessions.

        Returns:
            One result for each session and block with pending messages. A block is named
            "<member>.<block>".

        Raises:
            StoreError: Some memories failed. All were tried, and the error names the failed ones.
        """
        if session_id is not None:
            name = self._route.home(session_id, user_id)
            return named(name, self.memories[name].flush(session_id, user_id=user_id))
        self._check(None, user_id)
        calls = {name: partial(each.flush, user_id=user_id) for name, each in self.memories.items()}
        done = all_done("flush", calls)
        return [result for name, absorbed in done.items() for result in named(name, absorbed)]

    def delete(self, session_id: str, *, user_id: str | None = None) -> None:
        """Erase a session and its derived records from its home and from member blocks.

        Idempotent. Repeat an interrupted call to complete it.

        Raises:
            StoreError: Some members failed. All were tried, and the error names the failed ones.
        """
        name = self._route.home(session_id, user_id)
        home = self.memories[name]
        scope = home.components.guard.scope(user_id, session_id)
        calls: dict[str, Callable[[], object]] = {name: partial(home.delete, session_id)}
        all_done("delete", {**calls, **self._forgotten(scope)})

    def delete_user(self, user_id: str) -> None:
        """Erase all of a user's sessions and their derived records from every member.

        Raises:
            StoreError: Some members failed. All were tried, and the error names the failed ones.
                Call `delete_user` again.
        """
        self._check(None, user_id)
        calls: dict[str, Callable[[], object]] = {
            name: partial(memory.delete_user, user_id) for name, memory in self.memories.items()
        }
        all_done("delete_user", {**calls, **self._forgotten(Scope(user_id))})

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """Return a page of all sessions after the id `after`, in order of their ids."""
        self._check(None, user_id)
        limit, after = how_many("limit", limit), marker(after)
        pages = [self._route.homed(name, user_id, after, max(1, limit)) for name in self.memories]
        heads = heapq.merge(*pages, key=lambda head: head.session_id)
        return list(islice(heads, limit))

    def before_turn(self, session_id: str, message: Any, *, user_id: str | None = None) -> Turn:
        """Begin a turn, with the recalls of all members. See `AgentMemory.before_turn`."""
        return self._turns(session_id, user_id).before(session_id, message, user_id)

    def after_turn(
        self, turn: Turn, answer: Any, *, key: str | None = None, expected_end: int | None = None
    ) -> Head:
        """Store a turn with its answer, in the session's home. See `AgentMemory.after_turn`."""
        check_turn(turn)
        turns = self._turns(turn.session_id, turn.user_id)
        return turns.after(turn, answer, key, expected_end)

    def completion(
        self, session_id: str, message: Any, *, user_id: str | None = None, **options: Any
    ) -> Any:
        """Let the home's model answer, with the recalls of all members, and store the turn.

        Args:
            session_id: The session.
            message: The question, as for `before_turn`.
            user_id: The user, required if the session does not exist yet.
            **options: `model`, `tools`, `stream`, `max_rounds`, `key`, `expected_end`, and options
                for litellm. See `AgentMemory.completion`.
        """
        turns = self._turns(session_id, user_id)
        return turns.complete(session_id, message, user_id=user_id, **options)

    def tools(
        self, session_id: str, *, user_id: str | None = None, format: str = "openai.chat"
    ) -> list[dict[str, Any]]:
        """Return the schemas of all members' tools. See `AgentMemory.tools`.

        Tools of the session's home and of member blocks keep their names. Tools of other memories
        need a user. Their names begin with the member's name, as in "company_memory_read".

        Raises:
            ConfigError: Two tools have the same name, or a name is too long.
        """
        self.home(session_id, user_id).components.guard.scope(user_id, session_id)
        return [tool.schema(format) for tool in self._tools(session_id, user_id).values()]

    def call_tool(
        self,
        session_id: str,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        user_id: str | None = None,
        key: str | None = None,
    ) -> str:
        """Call a tool of a member. See `AgentMemory.call_tool`."""
        guard = self.home(session_id, user_id).components.guard
        tools = self._tools(session_id, user_id)
        return run_tool(tools, guard, session_id, name, arguments, user_id, key)

    def _tools(self, session_id: str, user_id: str | None) -> dict[str, Tool]:
        return tools_of(self._members, self._route.home(session_id, user_id), user_id)

    def session(self, session_id: str, user_id: str | None = None) -> CompositeSession:
        """Return a handle with the same methods, bound to the session and the user."""
        self._check(session_id, user_id)
        return CompositeSession(self, session_id, user_id)

    def stats(self) -> dict[str, Stats]:
        """Return the statistics of each memory, by name. See `AgentMemory.stats`."""
        return {name: memory.stats() for name, memory in self.memories.items()}

    def warm_up(self, user_id: str | None = None) -> None:
        """Load models and indexes of all members in advance. See `AgentMemory.warm_up`."""
        for memory in self.memories.values():
            memory.warm_up(user_id)
        for block in self.blocks.values():
            block.load()

    def close(self) -> None:
        """Close every member. Idempotent.

        Raises:
            StoreError: Some members could not be closed. The others were closed.
        """
        members: dict[str, Block | AgentMemory] = {**self.blocks, **self.memories}
        all_done("close", {name: member.close for name, member in members.items()})

    @property
    def _first(self) -> AgentMemory:
        return next(iter(self.memories.values()))

    def _check(self, session_id: str | None, user_id: str | None) -> None:
        self._first.components.guard.check(session_id, user_id)

    def _turns(self, session_id: str, user_id: str | None) -> Turns:
        """Return the turn methods of a session, with the home's model and all members' tools."""
        home = self.home(session_id, user_id)

        def begin(
            session_id: str,
            messages: Sequence[Message],
            *,
            user_id: str | None,
            reads_turn: bool = False,
        ) -> Pack:
            view = self._view(session_id, messages, user_id, reads_turn=reads_turn)
            return self._pack(session_id, user_id, view)

        def notify(turn: Turn, messages: Sequence[Message] | None) -> None:
            home.turns.notify(turn, messages)
            call_hooks(self.blocks.values(), home.components.guard.scope, turn, messages)

        return replace(
            home.turns,
            notify=notify,
            begin=begin,
            update=self.update,
            call_tool=self.call_tool,
            toolbox=partial(self._tools, session_id, user_id),
        )

    def _recall(
        self,
        blocks: list[BlockLink],
        home: str | None,
        scope: Scope,
        message: Message | None,
        limit: int,
    ) -> tuple[dict[str, list[Recall]], list[str]]:
        """Return each block's recalls, and a warning for each block that failed or timed out."""
        targets = [link.target(scope, home) for link in blocks]
        by_block, warnings = self._fan_out.recall(scope, targets, message, limit)
        for name in self.memories:
            pairs = zip(blocks, targets, strict=True)
            own = [target for link, target in pairs if link.member == name]
            here = {target.name: by_block[target.name] for target in own if target.name in by_block}
            by_block |= self._fan_out.marked(own, here)
        return by_block, warnings

    def _forgotten(self, scope: Scope) -> dict[str, Callable[[], object]]:
        """Return for each manual member block a call that erases the block's data of a scope."""

        def forget(block: Block) -> None:
            resolve(block.delete(scope))
            self._first.components.deletion.scrub()

        return {
            name: partial(forget, block)
            for name, block in self.blocks.items()
            if isinstance(block, ManualBlock)
        }


class CompositeSession(BoundSession):
    """A session of a user, from `CompositeMemory.session`."""

    _memory: CompositeMemory

    get = bound(CompositeMemory.get)
    delete = bound(CompositeMemory.delete)

    @property
    def home(self) -> Session:
        """The session in its home, for the session's scratchpad and its user's memory."""
        home = self._memory.home(self.session_id, self.user_id)
        return home.session(self.session_id, self.user_id)
