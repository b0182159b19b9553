"""Binds the members of a composite, lists their tools, and finds the memory of each session."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from agent_memory.core.messages import Message
from agent_memory.core.records import Absorbed, Head, Recall, Scope
from agent_memory.core.tools import READ_MESSAGE, Tool
from agent_memory.engine.assembly import Components
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.recall.contexts import existing, with_pins
from agent_memory.engine.recall.fan_out import Target, ask_block
from agent_memory.errors import ConfigError, InvalidInput, StoreError
from agent_memory.ltm_blocks.base import Block, Resources

T = TypeVar("T")

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class BlockLink:
    """A bound block that `get` or `search` queries."""

    # the block's name in contexts: "<member>.<block>" for a block of a member memory, and the
    # member's name for a member block
    name: str
    member: str
    block: Block
    memory: AgentMemory | None  # the memory that has the block; None for a member block

    def is_in(self, home: str | None) -> bool:
        """Return whether queries name the session: for member blocks and blocks of `home`."""
        return self.memory is None or self.member == home

    def target(self, scope: Scope, home: str | None) -> Target:
        """Return the block to query. Blocks of other memories get the scope without its session."""
        if not self.is_in(home):
            scope = Scope(scope.user_id, floor=scope.floor)
        target = Target.of(self.block, self.name, scope)
        if self.memory is None:
            return target
        return target._replace(recall=partial(self._recall, self.memory.components, scope))

    def _recall(
        self, parts: Components, scope: Scope, message: Message | None, limit: int
    ) -> list[Recall]:
        """Return the block's recalls, without recalls from deleted sessions of the memory."""
        parts.guard.check(None, None)
        if scope.in_context:
            scope = replace(scope, pinned=parts.pins.of(scope))
        recalls = ask_block(self.block, self.name, scope, message, limit)
        return with_pins(existing(parts.store, {self.name: recalls}), scope)[self.name]


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a composite, and the blocks that `get` and `search` query, in order."""

    memories: dict[str, AgentMemory]
    blocks: dict[str, Block]
    recalled: list[BlockLink]
    searched: list[BlockLink]

    @classmethod
    def of(
        cls, members: Mapping[str, AgentMemory | Block], memories: dict[str, AgentMemory]
    ) -> Members:
        """Bind the member blocks to the first memory, and list the blocks to query."""
        blocks = {
            name: _named(name, member)
            for name, member in members.items()
            if isinstance(member, Block)
        }
        first, home = next(iter(memories.items()))
        _check_names(blocks, first, {*home.blocks, home.components.default_notes.name})
        bound = _bound(blocks, home.components.resources)
        recalled: list[BlockLink] = []
        searched: list[BlockLink] = []
        for name in members:
            if name in bound:
                alone = BlockLink(name, name, bound[name], None)
                recalled.append(alone)
                searched += [alone] if alone.block.searched else []
                continue
            memory = memories[name]
            for links, own in (
                (recalled, memory.components.contexts.blocks),
                (searched, memory.components.search.blocks),
            ):
                links += [BlockLink(f"{name}.{block.name}", name, block, memory) for block in own]
        return cls(memories, bound, recalled, searched)


def memories_in(members: Mapping[str, AgentMemory | Block]) -> dict[str, AgentMemory]:
    """Validate all members, and return the memories."""
    for name, member in members.items():
        _check(name, member)
    memories = {name: member for name, member in members.items() if isinstance(member, AgentMemory)}
    if not memories:
        raise ConfigError("A CompositeMemory needs an AgentMemory to store sessions. Add one.")
    return memories


def _check(name: str, member: object) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"A member is named {name!r}. Use lower-case letters, digits and underscores, starting "
            "with a letter: contexts have an element of that name."
        )
    if not isinstance(member, AgentMemory | Block):
        raise ConfigError(
            f"The member {name!r} is a {type(member).__name__}. Pass an AgentMemory or a block."
        )
    if isinstance(member, Block) and member.absorbs:
        raise ConfigError(
            f"The block {name!r} absorbs a log, but a member block has no log. Add the block to a "
            "memory: AgentMemory(blocks=[...]). If it only reads, set its `absorbs` to False."
        )


def _named(name: str, block: Block) -> Block:
    """Give a block its member's name by default, so that blocks of one kind stay separate."""
    return block.model_copy(update={"name": name}) if block.name == block.kind else block


def _check_names(blocks: Mapping[str, Block], first: str, taken: set[str]) -> None:
    for member, block in blocks.items():
        if block.name in taken:
            raise ConfigError(
                f"The block {member!r} stores its records under {block.name!r} in the store of "
                f"{first!r}, which has another block of that name. Give the block another "
                f"name, such as {type(block).__name__}(name={member + '_own'!r})."
            )
        taken = {*taken, block.name}


def _bound(blocks: Mapping[str, Block], resources: Resources) -> dict[str, Block]:
    bound: dict[str, Block] = {}
    with ExitStack() as opened:  # if one block cannot be bound, the others are closed
        for name, block in blocks.items():
            bound[name] = bound_block = block.bind(resources)
            opened.callback(bound_block.close)
        opened.pop_all()
    return bound


def all_done(what: str, calls: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """Make all calls. Return the results by name, or raise `StoreError` if some calls failed."""
    done: dict[str, T] = {}
    failed: dict[str, Exception] = {}
    for name, call in calls.items():
        try:
            done[name] = call()
        except Exception as error:  # noqa: BLE001 - raised after the other calls
            failed[name] = error
    if failed:
        errors = "; ".join(f"{name!r}: {type(e).__name__}: {e}" for name, e in failed.items())
        raise StoreError(f"{what}() failed in {errors}. Call {what}() again.") from next(
            iter(failed.values())
        )
    return done


def named(name: str, absorbed: Iterable[Absorbed]) -> list[Absorbed]:
    """Rename blocks to "<member>.<block>" in the results of absorbing."""
    return [replace(result, block=f"{name}.{result.block}") for result in absorbed]


_LONGEST = 64  # the limit of chat APIs


def tools_of(members: Members, home: str, user_id: str | None) -> dict[str, Tool]:
    """Return the tools of all members, by name.

    A tool of another memory than the home works on the user's data in that memory. If the tool
    needs a session, it is left out.
    """
    tools = {**members.memories[home].components.toolbox.tools()}
    others = [tool for block in members.blocks.values() for tool in block.tools()]
    if user_id is not None:
        away = {name: memory for name, memory in members.memories.items() if name != home}
        others += [_of(name, tool) for name, memory in away.items() for tool in _lasting(memory)]
    for tool in others:
        if tool.name in tools:
            raise ConfigError(
                f"Two tools are named {tool.name!r}. Rename the member or the block of one of them."
            )
        if len(tool.name) > _LONGEST:
            raise ConfigError(
                f"The tool name {tool.name!r} has more than {_LONGEST} characters. Give its "
                "member a shorter name."
            )
        tools[tool.name] = tool
    return tools


def _lasting(memory: AgentMemory) -> Iterator[Tool]:
    """Yield the tools of a memory that need no session."""
    bound = {
        tool.name
        for block in memory.components.all_blocks.values()
        if block.of_session
        for tool in block.tools()
    }
    for tool in memory.components.toolbox.tools().values():
        if tool.name not in bound and tool.name != READ_MESSAGE:
            yield tool


def _of(member: str, tool: Tool) -> Tool:
    def run(scope: Scope, request: Any) -> str:
        # only the home has the session
        return tool.run(Scope(scope.user_id, key=scope.key), request)

    description = f"In the memory {member!r}: {tool.description}"
    return replace(tool, name=f"{member}_{tool.name}", description=description, run=run)


Rule = Callable[[str, str | None], str]
"""Returns the name of a session's memory, from its id and its user."""


class Routing:
    """Finds the home of a session: the memory that stores it. A rule or a fixed name decides."""

    def __init__(self, memories: Mapping[str, AgentMemory], rule: str | Rule) -> None:
        self._memories = memories
        self._rule: Rule = rule if callable(rule) else lambda session_id, user_id: rule
        self._same = None if callable(rule) else self._checked(rule)

    def home(self, session_id: str, user_id: str | None) -> str:
        """Return the name of a session's home.

        Without a `user_id`, the rule is called with None, then with the session's owner in each
        memory. A rule that depends on the user thus finds the home.
        """
        next(iter(self._memories.values())).components.guard.check(session_id, user_id)
        if self._same is not None:
            return self._same
        if user_id is None:
            return self._of_nobody(session_id)
        return self._ruled(session_id, user_id)

    def homed(self, name: str, user_id: str | None, after: str | None, page: int) -> Iterator[Head]:
        """Yield, in order of ids, the sessions after the id `after` whose home is `name`."""
        memory = self._memories[name]
        while heads := memory.sessions(user_id=user_id, after=after, limit=page):
            for head in heads:
                if self._ruled(head.session_id, head.user_id) == name:
                    yield head
            after = heads[-1].session_id

    def _of_nobody(self, session_id: str) -> str:
        first = self._ruled(session_id, None)
        homes: dict[str, str | None] = {}
        for name in dict.fromkeys([first, *self._memories]):
            head = self._memories[name].components.guard.owned(session_id, None)
            if head is not None and self._ruled(session_id, head.user_id) == name:
                homes[name] = head.user_id
                if name == first:
                    break
        if len(homes) > 1:
            raise InvalidInput(
                f"Sessions of {len(homes)} users have the id {session_id!r}. Pass user_id, or give "
                "each session a unique id."
            )
        return next(iter(homes), first)

    def _ruled(self, session_id: str, user_id: str | None) -> str:
        return self._checked(self._rule(session_id, user_id))

    def _checked(self, name: str) -> str:
        if not isinstance(name, str) or name not in self._memories:
            raise ConfigError(
                f"`route` names {name!r}, which is not a memory of this composite. Use one of "
                f"these names: {', '.join(self._memories)}. Nothing was stored."
            )
        return name
