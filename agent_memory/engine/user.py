"""`User`: what is known of a user, and what is kept for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from agent_memory.core.ids import marker
from agent_memory.core.limits import how_many, quoted, text_of
from agent_memory.core.memory_spans import of_id, traced
from agent_memory.core.moments import check_moment
from agent_memory.core.receipts import Receipt
from agent_memory.core.records import Entry, Head, Recall, Scope, Span, Surplus
from agent_memory.core.window import units
from agent_memory.engine.surplus import recalls_in, surplus
from agent_memory.errors import ConfigError, InvalidInput
from agent_memory.ltm_blocks.base import FactBlock

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.values.key_values import KeyValues
    from agent_memory.ltm_blocks.extractive.history.auditing import Change
    from agent_memory.ltm_blocks.extractive.history.fact import Fact
    from agent_memory.ltm_blocks.extractive.history.staleness import Stale
    from agent_memory.ltm_blocks.files.block import Files
    from agent_memory.ltm_blocks.notes import Notes
    from agent_memory.ltm_blocks.skills.block import Skills
    from agent_memory.ltm_blocks.spatial.block import SpatialHandle


class User:
    """One user's memory; `AgentMemory.user` gives it.

    `Session.owner` gives one with the session at hand: what is kept through it is told to come from
    that session. Where the session belongs to nobody, the memory is the session's own.

    Args:
        memory: The memory.
        user_id: The user; None for a session that belongs to nobody.
        session_id: The session at hand, if any.

    Attributes:
        user_id: As given.
    """

    def __init__(
        self, memory: AgentMemory, user_id: str | None, session_id: str | None = None
    ) -> None:
        self._memory = memory
        self._session_id = session_id
        self.user_id = user_id

    def __repr__(self) -> str:
        at_hand = "" if self._session_id is None else f", session_id={self._session_id!r}"
        return f"User({self.user_id!r}{at_hand})"

    def facts(
        self,
        *,
        session_id: str | None = None,
        as_of: datetime | date | None = None,
        known_at: datetime | date | None = None,
        superseded: bool = False,
    ) -> list[Fact]:
        """The user's facts, in the order in which they were said.

        Args:
            session_id: Only what comes from this session.
            as_of: What held at that moment (UTC for a date). None for what is current: what holds,
                and what is over or to come and was not superseded.
            known_at: By what had been said by then; None for all that was.
            superseded: Also those whose place another took: the whole history, whatever `as_of`.

        Raises:
            ConfigError: No block keeps facts.
            InvalidInput: A moment has no time zone.
            SessionOfAnotherUser: The session belongs to another user.
        """
        moments = _moments(as_of, known_at)
        scope = self._scope()
        self._memory.components.guard.admit(session_id, scope.user_id)
        return [
            fact
            for block in self._memory._fact_blocks()
            for fact in block.facts(scope, **moments, superseded=superseded)
            if session_id is None or any(one[0] == session_id for one in fact.sources)
        ]

    def profile(
        self,
        *,
        as_of: datetime | date | None = None,
        known_at: datetime | date | None = None,
    ) -> BaseModel:
        """The user's profile, as it stands or stood: see `facts`.

        Fields of which nothing is known have their default.

        Raises:
            ConfigError: No block fills a profile.
            InvalidInput: A moment has no time zone.
            pydantic.ValidationError: What is known does not fit the profile, which has changed.
        """
        moments = _moments(as_of, known_at)
        scope = self._scope()
        for block in self._memory.components.fact_blocks:
            filled = block.filled(scope, **moments)
            if filled is not None:
                return filled
        raise ConfigError(
            "No block fills a profile. Give one a pydantic model: "
            "ExtractiveMemory(profile=Profile)."
        )

    def stale(self) -> list[Stale]:
        """Current facts that are not worth recalling: said by others too, or too old.

        Raises:
            ConfigError: No block keeps facts.
        """
        scope = self._scope()
        return [one for block in self._memory._fact_blocks() for one in block.stale(scope)]

    def audit(self) -> list[Change]:
        """Every change to what is known of the user, oldest first, with the why.

        Raises:
            ConfigError: No block keeps facts.
        """
        scope = self._scope()
        found = [change for block in self._memory._fact_blocks() for change in block.audit(scope)]
        return sorted(found, key=lambda change: change.at)

    @traced("delete_memory", lambda user: user._memory.config.namespace, of_id)
    def forget(
        self,
        fact_id: str | None = None,
        *,
        source: str | tuple[str, int, int] | None = None,
        why: str = "",
    ) -> list[Fact]:
        """Forget a fact, or all facts that come from a session or a part of it; for good.

        What these had superseded holds again. The messages stay in the log, and in other blocks;
        absorbing them again brings nothing of it back. Idempotent.

        Args:
            fact_id: The fact.
            source: Instead of a fact: a session's id, or `(session_id, first_seq, last_seq)`. What
                is said there later counts again.
            why: What the audit is to say.

        Returns:
            The facts that are gone; one that other messages say too is not.

        Raises:
            ConfigError: No block keeps facts.
            InvalidInput: Not just one of fact and source is named; or the memory is a session's
                own, and the source is another session.
            SessionOfAnotherUser: The session belongs to another user.
        """
        if (fact_id is None) == (source is None):
            raise InvalidInput("Name either a fact by its id, or a source; not both, nor neither.")
        if fact_id is not None:
            text_of("fact_id", fact_id)
        text_of("why", why)
        scope, what = self._scope(), cast("str | Span | None", fact_id)
        if source is not None:
            span = _span(source)
            head = self._head(span.session_id, scope)
            if head is None:
                return []
            what = span._replace(last=head.end) if isinstance(source, str) else span
            scope = Scope(head.user_id, span.session_id)
        assert what is not None
        return [
            fact for block in self._memory._fact_blocks() for fact in block.forget(scope, what, why)
        ]

    def surplus(
        self, *, older_than: timedelta | None = None, messages: bool = False
    ) -> list[Surplus]:
        """What is kept twice or has grown old, of notes, facts, files, skills, places, and of what
        blocks of your own keep: a report. Nothing is changed; `forget_all` takes of it what it is
        given.

        Args:
            older_than: What is older is reported as old; None reports nothing for its age, but
                facts as their block is set.
            messages: Whether what was said is looked through too: all of the user's logs.
        """
        scope, parts = self._scope(), self._memory.components
        if older_than is not None and not isinstance(older_than, timedelta):
            raise InvalidInput(f"older_than is {quoted(older_than)}. Give a timedelta, or None.")
        return surplus(parts.store, parts.all_blocks.values(), scope, older_than, messages)

    def forget_all(
        self, found: Iterable[Recall | Surplus], *, messages: bool = False, why: str = ""
    ) -> list[Recall]:
        """Forget what a search or a report found, each thing as its block forgets it; for good.

        The preview is the search: `found = memory.search(...)` with its filters, `len(found)`; and
        what you saw is what goes. Idempotent.

        Args:
            found: What `search`, `get` or `surplus` gave.
            messages: Whether messages are taken out of their logs, with the calls and results that
                cannot stand without them, and what blocks derived from them. Otherwise they stay.
            why: What the audit is to say.

        Returns:
            What is gone. What is not among it was gone before, or is kept by a block that forgets
            nothing.

        Raises:
            InvalidInput: Something of it is neither.
            SessionOfAnotherUser: A message is in another user's session; all before it is gone.
        """
        scope, wanted = self._scope(), recalls_in(found)
        text_of("why", why)
        gone, places = list[Recall](), dict[str, dict[int, list[Recall]]]()
        for one in wanted:
            block = self._memory.components.all_blocks.get(one.block)
            if block is not None and block.forget(scope, one.id, why):
                gone.append(one)
            elif messages and not isinstance(block, FactBlock):
                for session_id, seq in one.sources:
                    places.setdefault(session_id, {}).setdefault(seq, []).append(one)
        for session_id, seqs in places.items():
            if self._head(session_id, scope) is not None:  # else an edit would begin it
                gone += self._take_out(session_id, seqs)
        return gone

    def _take_out(self, session_id: str, seqs: Mapping[int, list[Recall]]) -> list[Recall]:
        """Take messages out of a log, and what cannot stand without them."""
        there: set[int] = set()

        def without(log: list[Entry]) -> list[Entry]:
            there.update(one.seq for one in log if one.seq in seqs)
            lost = {
                one.seq for unit in units(log) if any(each.seq in seqs for each in unit)
                for one in unit
            }  # fmt: skip
            return [one for one in log if one.seq not in lost]

        self._memory.edit(session_id, without, user_id=self.user_id)
        every = [one for seq in sorted(there) for one in seqs[seq]]
        return list({id(one): one for one in every}.values())

    def pin(self, id: str) -> None:
        """Have something be recalled first with every question, within the budget, by the id of a
        note or a fact; of all else whenever it is recalled. Idempotent.
        """
        self._memory.components.pins.pin(self._scope(), id)

    def unpin(self, id: str) -> None:
        """Have it be recalled as all else is. Idempotent."""
        self._memory.components.pins.pin(self._scope(), id, pinned=False)

    def notes(self) -> Notes:
        """What was noted outright, by people or by a model. Needs no block; `get` recalls it where
        a `NoteMemory` is configured.
        """
        return cast("Notes", self.open("notes"))

    def files(self) -> Files:
        """The files that a model keeps under /memories.

        Raises:
            ConfigError: No `FileMemory` is configured.
        """
        return cast("Files", self.open("files"))

    def skills(self) -> Skills:
        """Procedures, as Markdown files: everybody's and the user's own.

        Raises:
            ConfigError: No `SkillMemory` is configured.
        """
        return cast("Skills", self.open("skills"))

    def spatial(self) -> SpatialHandle:
        """What was observed, and where.

        Raises:
            ConfigError: No `SpatialMemory` is configured.
        """
        return cast("SpatialHandle", self.open("spatial"))

    def values(self) -> KeyValues:
        """Values by namespace and key: the user's settings, states of an agent, whatever JSON gives
        back. No model reads them.
        """
        return self._memory._values(self._scope())

    def open(self, kind: str) -> Any:
        """The handle of any block on what it keeps for the user.

        Args:
            kind: The block's `kind`; or its name, where there are several of a kind.

        Raises:
            ConfigError: No such block is configured, or it offers no handle.
        """
        return self._memory._open(kind, self._scope())

    def sessions(self, *, limit: int = 100, after: str | None = None) -> list[Head]:
        """A page of the user's sessions in order of their ids: those after `after`."""
        scope = self._scope()
        if scope.user_id is not None:
            return self._memory.sessions(user_id=scope.user_id, limit=limit, after=after)
        assert scope.session_id is not None
        limit, after = how_many("limit", limit), marker(after)
        head = self._memory.components.guard.owned(scope.session_id, None)
        is_past = after is not None and scope.session_id <= after
        return [] if head is None or is_past or limit < 1 else [head]

    def delete(self) -> Receipt:
        """Remove all of the user's sessions and records, as `AgentMemory.delete_user`; or the
        session, where the memory is its own.
        """
        scope = self._scope()
        if scope.user_id is not None:
            return self._memory.delete_user(scope.user_id)
        assert scope.session_id is not None
        return self._memory.delete(scope.session_id)

    def _scope(self) -> Scope:
        """Whose memory it is, now: a session may have found its user since.

        Raises:
            SessionOfAnotherUser: The session at hand belongs to another user.
        """
        return self._memory.components.guard.scope(self.user_id, self._session_id)

    def _head(self, session_id: str, scope: Scope) -> Head | None:
        guard = self._memory.components.guard
        guard.check(session_id, None)
        if scope.user_id is None and session_id != scope.session_id:
            raise InvalidInput(
                f"This is the memory of the session {scope.session_id!r} alone. Name that one as "
                "the source, or ask the user of the other: memory.user(user_id)."
            )
        return guard.owned(session_id, scope.user_id)


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
        f"The source is {quoted(source)}. Give a session's id, or (session_id, first_seq, "
        "last_seq)."
    )


def _moments(
    as_of: datetime | date | None, known_at: datetime | date | None
) -> dict[str, datetime | None]:
    return {
        "as_of": check_moment("as_of", as_of),
        "known_at": check_moment("known_at", known_at),
    }
