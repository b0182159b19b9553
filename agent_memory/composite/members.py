"""What a composite consists of: memories and blocks by name, checked and bound once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from agent_memory.core.context import BlockInfo
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import ConfigError
from agent_memory.ltm_blocks.base import Block, ManualBlock, Resources

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Asked:
    """A block that is asked for recalls.

    Attributes:
        name: What contexts call it: "<member>.<block>" in a memory, "<member>" alone.
        member: The member.
        block: The block, bound.
        memory: The memory that it belongs to, or None for a block alone.
    """

    name: str
    member: str
    block: Block
    memory: AgentMemory | None


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a composite, in order.

    Attributes:
        memories: Those that are memories.
        blocks: Those that are blocks, bound to the resources of the first memory.
        recalled: What `get` asks.
        searched: What `search` asks.
    """

    memories: dict[str, AgentMemory]
    blocks: dict[str, Block]
    recalled: list[Asked]
    searched: list[Asked]

    @classmethod
    def of(
        cls, given: Mapping[str, AgentMemory | Block], memories: dict[str, AgentMemory]
    ) -> Members:
        """Bind the blocks to the first memory, and list what there is to ask.

        Raises:
            ConfigError: They cannot work with it; no block stays open.
        """
        blocks = {name: _named(name, one) for name, one in given.items() if isinstance(one, Block)}
        first, home = next(iter(memories.items()))
        _check_names(blocks, first, {*home.blocks, home.components.default_notes.name})
        bound = _bound(blocks, home.components.services.resources)
        recalled: list[Asked] = []
        searched: list[Asked] = []
        for name in given:
            if name in bound:
                alone = Asked(name, name, bound[name], None)
                recalled.append(alone)
                searched += [alone] if alone.block.searched else []
                continue
            memory = memories[name]
            for asked, found in (
                (recalled, memory.components.contexts.blocks),
                (searched, memory.components.search.blocks),
            ):
                asked += [Asked(f"{name}.{one.name}", name, one, memory) for one in found]
        return cls(memories, bound, recalled, searched)

    @property
    def infos(self) -> dict[str, BlockInfo]:
        """What contexts have to know of each block, by its name there."""
        return {
            one.name: BlockInfo(one.block.kind, one.block.max_tokens, one.block.selective)
            for one in self.recalled
        }

    @property
    def manual_blocks(self) -> dict[str, ManualBlock]:
        """The blocks alone that keep something of somebody, by name."""
        return {
            name: block for name, block in self.blocks.items() if isinstance(block, ManualBlock)
        }


def memories_in(given: Mapping[str, AgentMemory | Block]) -> dict[str, AgentMemory]:
    """Check all members; those that are memories.

    Raises:
        ConfigError: One of them can be none; or none is a memory.
    """
    for name, one in given.items():
        _check(name, one)
    memories = {name: one for name, one in given.items() if isinstance(one, AgentMemory)}
    if not memories:
        raise ConfigError("A CompositeMemory needs an AgentMemory, where sessions are kept.")
    return memories


def _check(name: str, member: object) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"A member is named {name!r}. Use lower-case letters, digits and underscores, a letter "
            "first: contexts have an element of that name."
        )
    if not isinstance(member, AgentMemory | Block):
        raise ConfigError(
            f"The member {name!r} is a {type(member).__name__}. Give an AgentMemory, or a block."
        )
    if isinstance(member, Block) and member.absorbs:
        raise ConfigError(
            f"Nothing would feed the block {name!r}, which absorbs the log. Give it to a memory, "
            "as AgentMemory(blocks=[...]). If it only reads, have its `absorbs` return False."
        )


def _named(name: str, block: Block) -> Block:
    """The block under a name of its own: what two blocks keep must not get mixed up."""
    return block.model_copy(update={"name": name}) if block.name == block.kind else block


def _check_names(blocks: Mapping[str, Block], first: str, taken: set[str]) -> None:
    for member, block in blocks.items():
        if block.name in taken:
            raise ConfigError(
                f"The block {member!r} keeps its records under {block.name!r} in the store of "
                f"{first!r}, where another block does. Give it another name, such as "
                f"{type(block).__name__}(name={member + '_own'!r})."
            )
        taken = {*taken, block.name}


def _bound(blocks: Mapping[str, Block], resources: Resources) -> dict[str, Block]:
    bound: dict[str, Block] = {}
    with ExitStack() as opened:  # where one fails, none stays open
        for name, block in blocks.items():
            bound[name] = one = block.bind(resources)
            opened.callback(one.close)
        opened.pop_all()
    return bound
