"""Asking all members at once for what they recall."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from agent_memory.composite.members import Asked, Members
from agent_memory.core.memory_spans import operation, tell_search
from agent_memory.core.messages import Message
from agent_memory.core.records import Recall, Scope
from agent_memory.engine.recall.contexts import existing
from agent_memory.engine.recall.fan_out import FanOut, ask_block, concerns

Found = tuple[dict[str, list[Recall]], list[str]]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        message: What recalls are to bear on.
        limit: So much of each block at most.
        scope: Whose memory it is about, and which session, if one.
        home: The memory in which the session is that session; in the others one of the same id is
            another.
    """

    message: Message | None
    limit: int
    scope: Scope
    home: str | None

    def is_in(self, name: str) -> bool:
        """Whether the session is that session for a block: one of its home's, or one alone."""
        member, _, block = name.partition(".")
        return not block or member == self.home

    def scope_in(self, name: str) -> Scope:
        """Whose memory it is about for a block: the session's, or all of its user's."""
        return self.scope if self.is_in(name) else Scope(self.scope.user_id)


class Asking:
    """Asks blocks, of memories and alone, each within the time limit of its member.

    Args:
        members: The members.
        timeout: Seconds to wait for them.
        timeouts: By the member's name, the seconds of those that have their own.
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
        """What each block recalls, and a warning for each that failed or was too slow."""
        return self._ask(self._members.recalled, question)

    def search(self, question: Question) -> Found:
        """What each block finds; of a session only what comes from it, and what from none."""
        found, warnings = self._ask(self._members.searched, question)
        session_id = question.scope.session_id
        if session_id is not None:
            found = {
                name: [one for one in recalls if _comes(one, session_id, question.is_in(name))]
                for name, recalls in found.items()
            }
        return found, warnings

    def shown(self, question: Question) -> set[str]:
        """The blocks whose recalls the session's window may show already."""
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
