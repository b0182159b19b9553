"""Calls on several members: writes, tools under unique names; a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from agent_memory.composite.members import Members
from agent_memory.core.records import Absorbed, Scope
from agent_memory.core.tools import READ_MESSAGE, Tool
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.session import BoundSession, Session
from agent_memory.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from agent_memory.composite.memory import CompositeMemory

T = TypeVar("T")


def all_done(what: str, calls: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """Make all calls, one after the other, and return their results by name.

    If some fail, the error names their members.
    """
    done: dict[str, T] = {}
    failed: dict[str, Exception] = {}
    for name, call in calls.items():
        try:
            done[name] = call()
        except Exception as error:  # noqa: BLE001 - raised after the other calls
            failed[name] = error
    if failed:
        errors = "; ".join(f"{name!r}: {type(e).__name__}: {e}" for name, e in failed.items())
        raise StoreError(f"{what}() failed in {errors}. Call it again.") from next(
            iter(failed.values())
        )
    return done


def named(name: str, absorbed: Iterable[Absorbed]) -> list[Absorbed]:
    """Rename blocks to "<member>.<block>" in the results of absorbing."""
    return [replace(one, block=f"{name}.{one.block}") for one in absorbed]


_LONGEST = 64  # the limit of chat APIs


def tools_of(members: Members, home: str, user_id: str | None) -> dict[str, Tool]:
    """Return the tools of all members, by name. See `CompositeMemory.tools`.

    Tools of another memory work on the user's memory there. Those that need a session are left out.
    """
    found = {**members.memories[home]._toolbox.tools()}
    for tool in _others(members, home, user_id):
        if tool.name in found:
            raise ConfigError(
                f"Two tools are named {tool.name!r}. Rename the member or the block of one of them."
            )
        if len(tool.name) > _LONGEST:
            raise ConfigError(
                f"The tool name {tool.name!r} has more than {_LONGEST} characters. Give its "
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
    """Yield the tools of a memory that need no session."""
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
        return tool.run(Scope(scope.user_id, key=scope.key), asked)  # the session is in the home

    description = f"In the memory {member!r}: {tool.description}"
    return replace(tool, name=f"{member}_{tool.name}", description=description, run=run)


class CompositeSession(BoundSession):
    """A session of a user, from `CompositeMemory.session`."""

    _memory: CompositeMemory

    @property
    def home(self) -> Session:
        """The session in its home, for its scratchpad and its owner's memory."""
        home = self._memory.home(self.session_id, self.user_id)
        return home.session(self.session_id, self.user_id)
