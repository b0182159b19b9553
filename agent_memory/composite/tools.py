"""The tools of all members, named so that none hides another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agent_memory.composite.members import Members
from agent_memory.core.records import Scope
from agent_memory.core.tools import READ_MESSAGE, Tool
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import ConfigError

_LONGEST = 64  # what chat APIs take


def tools_of(members: Members, home: str, user_id: str | None) -> dict[str, Tool]:
    """What a model may ask of all members, by name.

    Tools of the session's home, and of blocks alone, have their own names. Those of another memory
    begin with its name, "company_memory_read", and are for the user's memory there: none without a
    user, and none that needs a session at hand.

    Raises:
        ConfigError: Two have the same name, or one has too long a name.
    """
    found = {**members.memories[home]._toolbox.tools()}
    for tool in _others(members, home, user_id):
        if tool.name in found:
            raise ConfigError(
                f"Two tools are named {tool.name!r}. Give the member or the block that offers one "
                "of them another name."
            )
        if len(tool.name) > _LONGEST:
            raise ConfigError(
                f"The tool {tool.name!r} has a name of more than {_LONGEST} characters. Give its "
                "member a shorter name."
            )
        found[tool.name] = tool
    return found


def _others(members: Members, home: str, user_id: str | None) -> Iterator[Tool]:
    for block in members.blocks.values():
        yield from block.tools()
    for name, memory in members.memories.items():
        if name != home and user_id is not None:
            yield from (_of(name, tool) for tool in _lasting(memory))


def _lasting(memory: AgentMemory) -> Iterator[Tool]:
    """The tools of a memory that need no session of its own at hand."""
    bound = {
        tool.name
        for block in memory.components.all_blocks.values()
        if block.of_session
        for tool in block.tools()
    }
    for tool in memory._toolbox.tools().values():
        if tool.name not in bound and tool.name != READ_MESSAGE:
            yield tool


def _of(member: str, tool: Tool) -> Tool:
    def run(scope: Scope, asked: Any) -> str:
        return tool.run(Scope(scope.user_id, key=scope.key), asked)  # its session is not there

    told = f"In the memory {member!r}: {tool.description}"
    return replace(tool, name=f"{member}_{tool.name}", description=told, run=run)
