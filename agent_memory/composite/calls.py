"""Calls on several members: recalls in parallel, writes, and tools under unique names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from agent_memory.composite.members import Asked, Members
from agent_memory.core.messages import Message
from agent_memory.core.records import Absorbed, Recall, Scope
from agent_memory.core.tools import READ_MESSAGE, Tool
from agent_memory.core.tracing import operation, tell_search
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.recall.contexts import existing
from agent_memory.engine.recall.fan_out import FanOut, ask_block, concerns
from agent_memory.errors import ConfigError, StoreError

T = TypeVar("T")


def all_done(what: str, calls: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """Make all calls, one after the other, and return their results by name.

    Raises:
        StoreError: Some calls failed. The error names their members.
    """
    done: dict[str, T] = {}
    failed: dict[str, Exception] = {}
    for name, call in calls.items():
        try:
            done[name] = call()
        except Exception as error:  # noqa: BLE001 - raised after the other calls
            failed[name] = error
    if failed:
        told = "; ".join(f"{name!r}: {type(e).__name__}: {e}" for name, e in failed.items())
        raise StoreError(
            f"{what}() failed in {told}. The other members succeeded. Call it again."
        ) from next(iter(failed.values()))
    return done


def named(name: str, absorbed: Iterable[Absorbed]) -> list[Absorbed]:
    """Rename blocks to "<member>.<block>" in the results of absorbing."""
    return [replace(one, block=f"{name}.{one.block}") for one in absorbed]


Found = tuple[dict[str, list[Recall]], list[str]]


@dataclass(frozen=True, slots=True)
class Question:
    """A question to all members.

    Attributes:
        message: The message to recall for; None if there is none.
        limit: The maximum number of recalls of each block.
        scope: The user, and the session if there is one.
        home: The memory that has the session. In other memories the same id is another session.
    """

    message: Message | None
    limit: int
    scope: Scope
    home: str | None

    def is_in(self, name: str) -> bool:
        """Whether the session exists for a block: a block of its home, or a member block."""
        member, _, block = name.partition(".")
        return not block or member == self.home

    def scope_in(self, name: str) -> Scope:
        """Return the scope for a block: the session's, or the user's without the session."""
        return self.scope if self.is_in(name) else Scope(self.scope.user_id, floor=self.scope.floor)


class Asking:
    """Asks the blocks of all members, each within the time limit of its member.

    Args:
        members: The members.
        timeout: The default time limit in seconds.
        timeouts: Other time limits in seconds, by the member's name.
    """

    def __init__(self, members: Members, timeout: float, timeouts: Mapping[str, float]) -> None:
        self._members = members
        limits = {
            asked.name: timeouts[asked.member]
            for asked in (*members.recalled, *members.searched)
            if asked.member in timeouts
        }
        self._fan_out = FanOut(timeout, limits)

    def recall(self, question: Question) -> Found:
        """Return each block's recalls, and a warning for each block that failed or timed out."""
        return self._ask(self._members.recalled, question)

    def search(self, question: Question) -> Found:
        """Return each block's results, and warnings. With a session, other sessions' records are
        left out.
        """
        found, warnings = self._ask(self._members.searched, question)
        session_id = question.scope.session_id
        if session_id is not None:
            found = {
                name: [one for one in recalls if _comes(one, session_id, question.is_in(name))]
                for name, recalls in found.items()
            }
        return found, warnings

    def shown(self, question: Question) -> set[str]:
        """Return the blocks with recalls that the session's window may already show."""
        return {asked.name for asked in self._members.recalled if question.is_in(asked.name)}

    def _ask(self, all_asked: list[Asked], question: Question) -> Found:
        calls: dict[str, Callable[[], list[Recall]]] = {}
        for asked in all_asked:
            scope = question.scope_in(asked.name)
            if concerns(asked.block, scope):
                if question.message is not None:
                    self._fan_out.load(asked.name, asked.block)
                calls[asked.name] = partial(_recalled, asked, scope, question)
        with operation("search_memory", None, question.scope.session_id) as span:
            found, warnings = self._fan_out.ask(calls)
            recalls = [one for each in found.values() for one in each]
            tell_search(span, question.message, recalls)
        return found, warnings


def _recalled(asked: Asked, scope: Scope, question: Question) -> list[Recall]:
    parts = asked.memory.components if asked.memory is not None else None
    if parts is not None:
        parts.guard.check(None, None)
    recalls = ask_block(asked.block, asked.name, scope, question.message, question.limit)
    if parts is None:
        return recalls
    return existing(parts.store, {asked.name: recalls})[asked.name]


def _comes(recall: Recall, session_id: str, here: bool) -> bool:
    return not recall.sources or (here and any(name == session_id for name, _ in recall.sources))


_LONGEST = 64  # the limit of chat APIs


def tools_of(members: Members, home: str, user_id: str | None) -> dict[str, Tool]:
    """Return the tools of all members, by name.

    Tools of the session's home and of member blocks keep their names. Tools of another memory are
    prefixed with its name, such as "company_memory_read". They work on the user's memory there:
    they need a user, and tools that need a session are left out.

    Raises:
        ConfigError: Two tools have the same name, or a name is too long.
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
        return tool.run(Scope(scope.user_id, key=scope.key), asked)  # the session is not in it

    told = f"In the memory {member!r}: {tool.description}"
    return replace(tool, name=f"{member}_{tool.name}", description=told, run=run)
