"""The calls of `AgentMemory` about facts: what holds, what held, what is to be forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING

from pydantic import BaseModel

from agent_memory.core.records import Scope, Span
from agent_memory.engine.calls import Calls
from agent_memory.errors import ConfigError, InvalidInput
from agent_memory.ltm_blocks.base import FactBlock
from agent_memory.ltm_blocks.extractive.history.periods import check_moment

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.extractive.history.auditing import Change
    from agent_memory.ltm_blocks.extractive.history.fact import Fact
    from agent_memory.ltm_blocks.extractive.history.staleness import Stale


class FactCalls(Calls):
    """What a memory says of the facts that its blocks keep.

    All calls want a `user_id`, or the `session_id` of a session that belongs to nobody.
    """

    def facts(
        self,
        user_id: str | None = None,
        *,
        session_id: str | None = None,
        as_of: datetime | date | None = None,
        known_at: datetime | date | None = None,
    ) -> list[Fact]:
        """The facts of a user, in the order in which they were said.

        Args:
            user_id: The user.
            session_id: Only what comes from this session.
            as_of: What held at that moment (UTC for a date). None for what is current: what holds,
                and what is over or to come and was not superseded.
            known_at: By what had been said by then; None for all that was.

        Raises:
            InvalidInput: Neither user nor session is named, or a moment has no time zone.
        """
        moments = _moments(as_of, known_at)
        scope = self._scope(user_id, session_id)
        return [
            fact
            for block in self._fact_blocks()
            for fact in block.facts(scope, **moments)
            if session_id is None or any(one[0] == session_id for one in fact.sources)
        ]

    def profile(
        self,
        user_id: str | None = None,
        *,
        session_id: str | None = None,
        as_of: datetime | date | None = None,
        known_at: datetime | date | None = None,
    ) -> BaseModel:
        """The profile of a user, as it stands or stood: see `facts`.

        Fields of which nothing is known have their default.

        Raises:
            ConfigError: No block fills a profile.
            InvalidInput: As for `facts`.
            pydantic.ValidationError: What is known does not fit the profile, which has changed.
        """
        moments = _moments(as_of, known_at)
        scope = self._scope(user_id, session_id)
        for block in self._fact_blocks():
            filled = block.filled(scope, **moments)
            if filled is not None:
                return filled
        raise ConfigError(
            "No block fills a profile. Give one a pydantic model: "
            "ExtractiveMemory(profile=Profile)."
        )

    def stale(self, user_id: str | None = None, *, session_id: str | None = None) -> list[Stale]:
        """Current facts that are not worth recalling: said by others too, or too old.

        Raises:
            InvalidInput: Neither user nor session is named.
        """
        scope = self._scope(user_id, session_id)
        return [one for block in self._fact_blocks() for one in block.stale(scope)]

    def audit(self, user_id: str | None = None, *, session_id: str | None = None) -> list[Change]:
        """Every change to what is known of a user, oldest first, with the why.

        Raises:
            InvalidInput: Neither user nor session is named.
        """
        scope = self._scope(user_id, session_id)
        found = [change for block in self._fact_blocks() for change in block.audit(scope)]
        return sorted(found, key=lambda change: change.at)

    def forget(
        self,
        fact_id: str | None = None,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        source: str | tuple[str, int, int] | None = None,
        why: str = "",
    ) -> list[Fact]:
        """Forget a fact, or all facts that come from a session or a part of it; for good.

        What these had superseded holds again. The messages stay in the log, and in other blocks;
        absorbing them again brings nothing of it back. Idempotent.

        Args:
            fact_id: The fact; with the `user_id` or `session_id` that it belongs to.
            user_id: The user.
            session_id: The session, for facts of one that belongs to nobody.
            source: Instead of a fact: a session's id, or `(session_id, first_seq, last_seq)`. What
                is said there later counts again.
            why: What the audit is to say.

        Returns:
            The facts that are gone; one that other messages say too is not.

        Raises:
            InvalidInput: Not just one of fact and source is named, or no user for the fact.
            SessionOfAnotherUser: The session belongs to another user.
        """
        if (fact_id is None) == (source is None):
            raise InvalidInput("Name either a fact by its id, or a source; not both, nor neither.")
        what: str | Span
        if source is None:
            assert fact_id is not None
            what, scope = fact_id, self._scope(user_id, session_id)
        else:
            span = _span(source)
            self._check(span.session_id, user_id)
            head = self._owned(span.session_id, user_id)
            if head is None:
                return []
            what = span._replace(last=head.end) if isinstance(source, str) else span
            scope = Scope(head.user_id, span.session_id)
        return [fact for block in self._fact_blocks() for fact in block.forget(scope, what, why)]

    def _fact_blocks(self) -> Sequence[FactBlock]:
        return [block for block in self.blocks.values() if isinstance(block, FactBlock)]


def _span(source: object) -> Span:
    """The part of a session that a source names; a whole session has no end yet.

    Raises:
        InvalidInput: It names none.
    """
    if isinstance(source, str):
        return Span(source, 1, 0)
    if isinstance(source, tuple) and [type(part) for part in source] == [str, int, int]:
        span = Span(*source)
        if 1 <= span.first <= span.last:
            return span
    raise InvalidInput(
        f"The source is {source!r}. Give a session's id, or (session_id, first_seq, last_seq)."
    )


def _moments(
    as_of: datetime | date | None, known_at: datetime | date | None
) -> dict[str, datetime | None]:
    return {
        "as_of": check_moment("as_of", as_of),
        "known_at": check_moment("known_at", known_at),
    }
