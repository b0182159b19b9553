"""What a model finds in a memory: records as data, in which no text can pass for another's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.core.text import last_break
from agent_memory.core.tools import Arguments
from agent_memory.core.transcript import speaker, told
from agent_memory.engine.guard import Guard
from agent_memory.engine.message_pages import read_on
from agent_memory.engine.recall.filtering import Filter
from agent_memory.engine.recall.merged import Search
from agent_memory.ltm_blocks.base import FactBlock, NoteBlock
from agent_memory.stores.pending import Pending

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.base import Block

Kind = Literal["note", "fact", "message", "other"]

_NOBODY = "_"  # no block can be named so: all of the log waits for it
_MOST = 5_000
_SHOWN = 600  # characters of a message in a list of what was said


class Query(Arguments):
    """What a search of a memory takes."""

    query: str = Field(
        default="",
        max_length=2_000,
        description="What to look for, in words. Empty: all notes and facts, the newest first; "
        "with `since` or `until` all that was said then.",
    )
    since: date | None = Field(
        default=None, description="Only what was said on this day or later, such as 2025-03-01."
    )
    until: date | None = Field(
        default=None, description="Only what was said up to this day, such as 2025-03-31."
    )

    @property
    def times(self) -> tuple[datetime | None, datetime | None]:
        """From when on, and before when."""
        first = None if self.since is None else datetime.combine(self.since, time(), UTC)
        if self.until in (None, date.max):
            return first, None
        return first, datetime.combine(self.until + timedelta(1), time(), UTC)


class Finding:
    """Finds what a model asks for.

    Args:
        guard: Says whether the memory is open, and whose a session is.
        search: Asks the blocks.
        pending: The log.
        blocks: The configured blocks, by name.
        opened: Opens the handle of a kind of block, for a scope.
    """

    def __init__(
        self,
        guard: Guard,
        search: Search,
        pending: Pending,
        blocks: Mapping[str, Block],
        opened: Callable[[str, Scope], Any],
    ) -> None:
        self._guard = guard
        self._search = search
        self._pending = pending
        self._blocks = blocks
        self._opened = opened

    def found(
        self, scope: Scope, asked: Query, limit: int
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """What bears on a query, best first, with a warning for each block that was not asked."""
        since, until = asked.times
        least = None if since is until is None else 0.0
        session_id = None if scope.user_id is not None else scope.session_id
        only = Filter(since=since, until=until, least=least)
        recalls, warnings = self._search.run(asked.query, scope.user_id, session_id, limit, only)
        return [self._recalled(one) for one in recalls], warnings

    def all_of(self, scope: Scope, asked: Query) -> list[dict[str, Any]]:
        """What is listed without a query: notes and facts, or of some days what was said."""
        self._guard.check(scope.session_id, scope.user_id)
        since, until = asked.times
        return self._listed(scope) if since is until is None else self._said(scope, since, until)

    def _listed(self, scope: Scope) -> list[dict[str, Any]]:
        """Notes, then facts, each the newest first."""
        notes = [
            {"id": one.id, "kind": "note", "date": f"{one.created_at:%Y-%m-%d}", "text": one.text}
            for one in reversed(self._opened("notes", scope).all())
        ]
        facts = [
            {"id": one.id, "kind": "fact", "date": one.time or "unknown", "text": one.text}
            for block in self._blocks.values()
            if isinstance(block, FactBlock)
            for one in reversed(block.facts(scope))
        ]
        return [*notes, *facts]

    def _said(
        self, scope: Scope, since: datetime | None, until: datetime | None
    ) -> list[dict[str, Any]]:
        """What was said in a time, oldest first, as far as it is among the newest messages."""
        tails = self._pending.of(_NOBODY, scope, _MOST).read
        entries = (entry for tail in tails for entry in tail.entries[tail.since :])
        said = [
            one
            for one in entries
            if (since is None or one.created_at >= since)
            and (until is None or one.created_at < until)
            and one.message.role in ("user", "assistant")
            and one.message.text().strip()
        ]
        return [_entry(one) for one in sorted(said, key=lambda one: one.created_at)]

    def _recalled(self, recall: Recall) -> dict[str, Any]:
        """A recall. A message tells its place instead of an id, by which nothing could be done."""
        block = self._blocks.get(recall.block)
        kind: Kind = "other"
        if block is None or isinstance(block, NoteBlock):  # notes and the log need no block
            kind = "message" if recall.sources else "note"
        elif isinstance(block, FactBlock):
            kind = "fact"
        elif recall.sources:
            kind = "message"
        told: dict[str, Any] = {"id": recall.id}
        if kind == "message":
            told = dict(zip(("session_id", "seq"), recall.sources[0], strict=True))
        day = {"date": recall.told_time} if recall.told_time else {}
        place = read_on(recall)
        on = {"read_on": place} if place is not None else {}
        return {**told, "kind": kind, **day, "text": recall.text, **on}


def _entry(entry: Entry) -> dict[str, Any]:
    text, place = told(entry.message), {"session_id": entry.session_id, "seq": entry.seq}
    shown = text if len(text) <= _SHOWN else text[: last_break(text, _SHOWN)]
    on = {"read_on": {**place, "offset": len(shown)}} if len(shown) < len(text) else {}
    day, said = f"{entry.created_at:%Y-%m-%d}", f"{speaker(entry.message)}: {shown}"
    return {**place, "kind": "message", "date": day, "text": said, **on}
