"""`User`: the memory of one user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from agent_memory.core.limits import how_many, marker, quoted, text_of
from agent_memory.core.notices import with_call_errors
from agent_memory.core.receipts import Receipt
from agent_memory.core.records import Entry, Head, Recall, Scope, Span, Surplus
from agent_memory.core.timestamps import check_moment, duration_of
from agent_memory.core.tracing import of_id, traced
from agent_memory.core.window import units
from agent_memory.engine.listing import recalls_in, surplus
from agent_memory.errors import ConfigError, InvalidInput
from agent_memory.ltm_blocks.base import FactBlock

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.values.key_values import KeyValues
    from agent_memory.ltm_blocks.extractive.history.fact import Fact, Stale
    from agent_memory.ltm_blocks.extractive.history.history import Change
    from agent_memory.ltm_blocks.files.block import Files
    from agent_memory.ltm_blocks.notes import Notes
    from agent_memory.ltm_blocks.skills.block import Skills
    from agent_memory.ltm_blocks.spatial.handle import SpatialHandle


@with_call_errors
class User:
    """One user's memory, from `AgentMemory.user`, or from `Session.owner` for a session's user.

    A session without a user has its own memory, which `Session.owner` returns as a `User`.

    Args:
        memory: The memory.
        user_id: The user. None means the memory of a session without a user.
        session_id: The session from which calls are made, if any. This session is the source of the
            records that these calls store.

    Attributes:
        user_id: The user, or None.
    """

    def __init__(
        self, memory: AgentMemory, user_id: str | None, session_id: str | None = None
    ) -> None:
        self._memory = memory
        self._session_id = session_id
        self.user_id = user_id

    @property
    def _parts(self) -> Components:
        return self._memory.components  # `RemoteMemory` has no components

    def __repr__(self) -> str:
        session = "" if self._session_id is None else f", session_id={self._session_id!r}"
        return f"User({self.user_id!r}{session})"

    def facts(
        self,
        *,
        session_id: str | None = None,
        as_of: datetime | date | None = None,
        known_at: datetime | date | None = None,
        superseded: bool = False,
    ) -> list[Fact]:
        """Return the user's facts, in the order of their messages.

        Args:
            session_id: Only facts from this session.
            as_of: Only facts that were true at this time. A date means its start (UTC). None means
                all facts that are not superseded, whether their time is past, present or future.
            known_at: The facts as the memory knew them at this time. None means now.
            superseded: Include superseded facts: the whole history, regardless of `as_of`.

        Raises:
            ConfigError: No block stores facts.
            InvalidInput: A time has no time zone.
            SessionOfAnotherUser: The session belongs to another user.
        """
        times = _timestamps(as_of, known_at)
        scope = self._scope()
        self._parts.guard.admit(session_id, scope.user_id)
        return [
            fact
            for block in self._parts.needed_fact_blocks()
            for fact in block.facts(scope, **times, superseded=superseded)
            if session_id is None or any(source[0] == session_id for source in fact.sources)
        ]

    def profile(
        self, *, as_of: datetime | date | None = None, known_at: datetime | date | None = None
    ) -> BaseModel:
        """Return the user's profile: the pydantic model of a block, filled from the user's facts.

        Fields without a fact have their default.

        Args:
            as_of: As for `facts`.
            known_at: As for `facts`.

        Raises:
            ConfigError: No block fills a profile.
            InvalidInput: A time has no time zone.
            pydantic.ValidationError: The model was changed, and stored facts do not fit it.
        """
        times = _timestamps(as_of, known_at)
        scope = self._scope()
        for block in self._parts.fact_blocks:
            filled = block.filled(scope, **times)
            if filled is not None:
                return filled
        raise ConfigError(
            "No block fills a profile. Give one a pydantic model: "
            "ExtractiveMemory(profile=Profile)."
        )

    def stale(self) -> list[Stale]:
        """Return the current facts that are near-duplicates, or too old for their category.

        Raises:
            ConfigError: No block stores facts.
        """
        scope = self._scope()
        return [stale for block in self._parts.needed_fact_blocks() for stale in block.stale(scope)]

    def audit(self) -> list[Change]:
        """Return every change of the user's facts, oldest first, with the reason.

        Raises:
            ConfigError: No block stores facts.
        """
        scope, blocks = self._scope(), self._parts.needed_fact_blocks()
        changes = [change for block in blocks for change in block.audit(scope)]
        return sorted(changes, key=lambda change: change.at)

    @traced("delete_memory", lambda user: user._memory.config.namespace, of_id)
    def forget(
        self,
        fact_id: str | None = None,
        *,
        source: str | tuple[str, int, int] | None = None,
        why: str = "",
    ) -> list[Fact]:
        """Forget a fact, or all facts from a session or a part of it, permanently.

        If a forgotten fact had superseded another fact, that fact is current again. The messages
        stay in the log and in other blocks. If the messages are absorbed again, the facts stay
        forgotten. Idempotent.

        Args:
            fact_id: The fact.
            source: In place of a fact: a session's id, or `(session_id, first_seq, last_seq)`.
                Facts from later messages of the session are stored as usual.
            why: The reason, which `audit` reports.

        Returns:
            The forgotten facts. With `source`, facts that other messages also state are kept.

        Raises:
            ConfigError: No block stores facts.
            InvalidInput: `fact_id` and `source` are both set, or neither is. Or this is the memory
                of a session without a user, and the source is another session.
            SessionOfAnotherUser: The session belongs to another user.
        """
        if (fact_id is None) == (source is None):
            raise InvalidInput("Name either a fact by its id, or a source, but not both.")
        if fact_id is not None:
            text_of("fact_id", fact_id)
        text_of("why", why)
        scope, target = self._scope(), cast("str | Span | None", fact_id)
        if source is not None:
            span = span_of(source)
            head = self._head(span.session_id, scope)
            if head is None:
                return []
            target = span._replace(last=head.end) if isinstance(source, str) else span
            scope = Scope(head.user_id, span.session_id)
        assert target is not None
        blocks = self._parts.needed_fact_blocks()
        return [fact for block in blocks for fact in block.forget(scope, target, why)]

    def surplus(
        self, *, older_than: float | timedelta | None = None, messages: bool = False
    ) -> list[Surplus]:
        """Return a report of near-duplicates and old records. Nothing is changed.

        The report covers notes, facts, files, skills, places and custom blocks. Pass its items to
        `forget_all` to delete them.

        Args:
            older_than: The age from which a record is old, as a timedelta or in seconds. With None,
                only facts can be old, by the settings of their block.
            messages: Whether to include the messages of all sessions of the user.
        """
        scope = self._scope()
        if older_than is not None and not isinstance(older_than, timedelta):
            older_than = duration_of("older_than", older_than)
        return surplus(self._parts, scope, older_than, messages)

    def forget_all(
        self, found: Iterable[Recall | Surplus], *, messages: bool = False, why: str = ""
    ) -> list[Recall]:
        """Delete the records that a search or a report found, permanently. Idempotent.

        The results of the search show beforehand which records will be deleted.

        Args:
            found: Results of `search` or `surplus`, or `recalls` of a context.
            messages: Whether to remove found messages from their logs, with their tool calls and
                results, and the records derived from them. By default, messages stay.
            why: The reason, which `audit` reports for facts.

        Returns:
            The deleted records. A record is missing if it was deleted before, or if its block
            cannot forget single records.

        Raises:
            InvalidInput: An item is neither a recall nor an item of a report.
            SessionOfAnotherUser: A message is in another user's session. By then, all records that
                are not messages are deleted, and perhaps messages of other sessions.
        """
        scope, recalls = self._scope(), recalls_in(found)
        text_of("why", why)
        gone, places = list[Recall](), dict[str, dict[int, list[Recall]]]()
        for recall in recalls:
            block = self._parts.all_blocks.get(recall.block)
            if block is not None and block.forget(scope, recall.id, why):
                gone.append(recall)
            elif messages and not isinstance(block, FactBlock):
                for session_id, seq in recall.sources:
                    places.setdefault(session_id, {}).setdefault(seq, []).append(recall)
        for session_id, seqs in places.items():
            if self._head(session_id, scope) is not None:  # an edit would create a missing session
                gone += self._remove_messages(session_id, seqs)
        return gone

    def _remove_messages(self, session_id: str, seqs: Mapping[int, list[Recall]]) -> list[Recall]:
        stored: set[int] = set()

        def without(log: list[Entry]) -> list[Entry]:
            stored.update(entry.seq for entry in log if entry.seq in seqs)
            lost = {
                entry.seq for unit in units(log) if any(each.seq in seqs for each in unit)
                for entry in unit
            }  # fmt: skip
            return [entry for entry in log if entry.seq not in lost]

        self._memory.edit(session_id, without, user_id=self.user_id)
        every = [recall for seq in sorted(stored) for recall in seqs[seq]]
        return list({id(record): record for record in every}.values())

    def pin(self, id: str) -> None:
        """Recall a note or a fact first for every question, within the budget. Idempotent.

        If a newer fact supersedes a pinned fact, the newer fact is recalled first. A pinned record
        of another kind comes first only if a question recalls it.
        """
        self._parts.pins.pin(self._scope(), id)

    def unpin(self, id: str) -> None:
        """Undo `pin` of a record, and of all facts that it superseded. Idempotent."""
        self._parts.pins.pin(self._scope(), id, pinned=False)

    def notes(self) -> Notes:
        """Return a handle on the user's notes. `get` recalls them if any block is configured."""
        return cast("Notes", self.open("notes"))

    def files(self) -> Files:
        """Return a handle on the files that a model stores under /memories.

        Raises:
            ConfigError: No `FileMemory` is configured.
        """
        return cast("Files", self.open("files"))

    def skills(self) -> Skills:
        """Return a handle on skills: procedures in Markdown, shared ones and the user's own.

        Raises:
            ConfigError: No `SkillMemory` is configured.
        """
        return cast("Skills", self.open("skills"))

    def spatial(self) -> SpatialHandle:
        """Return a handle on observations and their places.

        Raises:
            ConfigError: No `SpatialMemory` is configured.
        """
        return cast("SpatialHandle", self.open("spatial"))

    def values(self) -> KeyValues:
        """Return a store of the user's values by namespace and key. No model reads these values."""
        return self._parts.values_of(self._scope())

    def open(self, kind: str) -> Any:
        """Return a block's handle on the user's data.

        Args:
            kind: The block's `kind`, or its name if there are several blocks of that kind.

        Raises:
            ConfigError: No such block is configured, or it has no handle.
        """
        return self._parts.open(kind, self._scope())

    def sessions(self, *, limit: int = 100, after: str | None = None) -> list[Head]:
        """Return the heads of the user's sessions with ids above `after`, in order of their ids."""
        scope = self._scope()
        if scope.user_id is not None:
            return self._memory.sessions(user_id=scope.user_id, limit=limit, after=after)
        assert scope.session_id is not None
        limit, after = how_many("limit", limit), marker(after)
        head = self._memory.head(scope.session_id)
        is_past = after is not None and scope.session_id <= after
        return [] if head is None or is_past or limit < 1 else [head]

    def delete(self) -> Receipt:
        """Delete all of the user's sessions and records, as `AgentMemory.delete_user`.

        For the memory of a session without a user, delete the session.
        """
        scope = self._scope()
        if scope.user_id is not None:
            return self._memory.delete_user(scope.user_id)
        assert scope.session_id is not None
        return self._memory.delete(scope.session_id)

    def _scope(self) -> Scope:
        """Return the current scope. The session may have got a user since this handle was made."""
        return self._parts.guard.scope(self.user_id, self._session_id)

    def _head(self, session_id: str, scope: Scope) -> Head | None:
        guard = self._parts.guard
        guard.check(session_id, None)
        if scope.user_id is None and session_id != scope.session_id:
            raise InvalidInput(
                f"This is the memory of the session {scope.session_id!r} alone. Pass this session "
                "as the source. For another session, use its user's memory: memory.user(user_id)."
            )
        return guard.owned(session_id, scope.user_id)


def span_of(source: object) -> Span:
    """Return the part of a session that a source names. For a whole session, `last` is 0."""
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


def _timestamps(
    as_of: datetime | date | None, known_at: datetime | date | None
) -> dict[str, datetime | None]:
    return {"as_of": check_moment("as_of", as_of), "known_at": check_moment("known_at", known_at)}
