"""Reads for the tools of a model: records as JSON data, and long messages in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from agent_memory.core.limits import check_id
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Entry, Head, Recall, Scope
from agent_memory.core.text import last_break
from agent_memory.core.tools import READ_MESSAGE, Arguments, Tool, tool, tools_of
from agent_memory.core.transcript import PART, clip, full_text, part_of, speaker
from agent_memory.engine.paging import picked_of
from agent_memory.engine.recall.merged_search import MOST_PENDING, NOBODY, Filter
from agent_memory.errors import InvalidId, ToolRefused
from agent_memory.ltm_blocks.base import FactBlock, NoteBlock

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

_MOST_OF_A_PAGE = 2_000
_LEAST = 32
_SHARE = 6  # a page takes at most a sixth of the budget, so that it fits together with a question
_CHARS = 8  # for each token of a page, at most this many characters of the text are considered
_STANDARD = ("role", "content", "name", "tool_call_id")
_FARTHEST = 10**12


_TURN: ContextVar[tuple[str, int, Sequence[Message]]] = ContextVar("turn")
"""The session of a turn that is not stored yet, the end of its log, and the turn's messages."""


@contextmanager
def readable(session_id: str, head: Head | None, turn: Sequence[Message]) -> Iterator[None]:
    """Let tool calls in the `with` block read messages of a turn that is not stored yet."""
    messages = [message for message in turn if not message.is_system]
    token = _TURN.set((session_id, head.end if head is not None else 0, messages))
    try:
        yield
    finally:
        _TURN.reset(token)


class ReadMessage(Arguments):
    """The arguments of `memory_read_message`."""

    seq: int = Field(ge=1, le=_FARTHEST, description="The message's number.")
    offset: int = Field(
        default=0, ge=0, le=_FARTHEST, description="From which character on to read."
    )
    session_id: str | None = Field(
        default=None,
        description="The id of another conversation of this user. By default, this conversation.",
    )


class MessagePages:
    """Reads a message's text in pages that fit a context."""

    def __init__(self, parts: Components) -> None:
        self._store, self._counter = parts.store, parts.resources.counter
        self._room = max(_LEAST, min(_MOST_OF_A_PAGE, parts.config.max_tokens // _SHARE))

    @tool(
        READ_MESSAGE,
        "Read one message of a conversation page by page. Use it if a message is marked as cut, "
        "or a search gave a part of a message (then pass its `read_on` unchanged), and you need "
        "the rest. Each page says where the next page begins. Read one page at a time, and after "
        "each page say all that you have found so far: the earlier pages may be cut by then.",
        ("read",),
    )
    def read(self, scope: Scope, request: ReadMessage) -> str:
        """Return a page as JSON, with the offset of the next page."""
        entry = self._entry(scope, request)
        text = _text(entry.message)
        if request.offset >= max(1, len(text)):
            raise ToolRefused(
                f"Message {request.seq} has {len(text)} characters. Give a smaller offset."
            )
        count = self._counter.text
        shown = page(text, request.offset, lambda part: count(compact_json(part)), self._room)
        end = request.offset + len(shown)
        answer = {
            "seq": entry.seq,
            "from": speaker(entry.message),
            "date": f"{entry.local_time:%Y-%m-%d}",
            "offset": request.offset,
            "of": len(text),
            "next": end if end < len(text) else None,
            "text": shown,
        }
        return compact_json(answer)

    def tool(self, arguments: type[ReadMessage] = ReadMessage) -> Tool:
        (tool,) = tools_of(self)
        return replace(tool, arguments=arguments)

    def _entry(self, scope: Scope, request: ReadMessage) -> Entry:
        if (drafted := _of_turn(scope, request)) is not None:
            return drafted
        head = self._head(scope, request.session_id)
        if head is None or head.end == 0:
            raise ToolRefused(f"There is no message {request.seq}: this session has none yet.")
        for entry in picked_of(self._store, head, [request.seq]):
            return entry
        raise ToolRefused(
            f"There is no message {request.seq} in this session. It has {head.expired + 1} to "
            f"{head.end}."
        )

    def _head(self, scope: Scope, named: str | None) -> Head | None:
        """Return the head of the session to read: the current, or another of the same user."""
        session_id = scope.session_id if named is None else named
        if session_id is None:
            raise ToolRefused("Say which session: give a session_id.")
        try:
            check_id("session_id", session_id)
            head = self._store.head(session_id)
        except InvalidId:
            head = None
        if head is not None and head.deleting:
            head = None
        same_user = head is not None and scope.user_id is not None and head.user_id == scope.user_id
        if session_id != scope.session_id and not same_user:
            raise ToolRefused(f"There is no session {session_id[:64]!r} of this user.")
        return head


def _of_turn(scope: Scope, request: ReadMessage) -> Entry | None:
    """Return a message of the turn of `readable`. None if the request is for another message."""
    session_id, end, messages = _TURN.get(("", 0, ()))
    index = request.seq - end - 1
    at_hand = scope.session_id == session_id and request.session_id in (None, session_id)
    if not at_hand or not 0 <= index < len(messages):
        return None
    return Entry(session_id, request.seq, messages[index], 0, 0, "", messages[index].created_at)


def read_on(recall: Recall) -> dict[str, Any] | None:
    """Return arguments for `memory_read_message` that read a message from its recalled part on.

    None if the recall is not a part of a message.
    """
    if PART not in recall.metadata or not recall.sources:
        return None
    session_id, seq = recall.sources[0]
    return {"session_id": session_id, "seq": seq, "offset": part_of(recall.metadata).offset}


def _text(message: Message) -> str:
    """Return the whole text of a message: its content, then its other text fields."""
    others = (message.to_openai() or {}).items()
    texts = {key: text for key, text in others if isinstance(text, str)}
    more = [f"({key}: {text})" for key, text in texts.items() if key not in _STANDARD]
    return "\n".join(text for text in (full_text(message), *more) if text)


def page(text: str, offset: int, count: Callable[[str], int], room: int) -> str:
    """Return the text from an offset on, cut to about `room` tokens. Never empty."""
    rest = text[offset : offset + room * _CHARS]
    return clip(rest, count, room) or rest[:room]


Kind = Literal["note", "fact", "message", "other"]

_SHOWN = 600  # maximum characters of a message in a list


class Query(Arguments):
    """The arguments of a search by a model."""

    query: str = Field(
        default="",
        max_length=2_000,
        description="What to look for, in words. Empty: all notes and facts, newest first, or all "
        "messages between `since` and `until`.",
    )
    since: date | None = Field(
        default=None, description="Only what was said on this day or later, such as 2025-03-01."
    )
    until: date | None = Field(
        default=None, description="Only what was said up to this day, such as 2025-03-31."
    )

    @property
    def has_days(self) -> bool:
        return (self.since, self.until) != (None, None)

    def covers(self, day: date) -> bool:
        return (self.since or date.min) <= day <= (self.until or date.max)


class Finding:
    """Searches and lists records for a model."""

    def __init__(self, parts: Components) -> None:
        self._parts = parts

    def search(
        self, scope: Scope, query: Query, limit: int
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the best records for a query, and a warning for each block that failed."""
        session_id = None if scope.user_id is not None else scope.session_id
        only = Filter(days=query.covers, least=0.0) if query.has_days else Filter()
        search = self._parts.search.run
        recalls, warnings = search(query.query, scope.user_id, session_id, limit, only)
        return [self._recalled(recall) for recall in recalls], warnings

    def all_of(self, scope: Scope, query: Query) -> list[dict[str, Any]]:
        """Return the results of a query without words: notes and facts, or a period's messages."""
        self._parts.guard.check(scope.session_id, scope.user_id)
        return self._in_period(scope, query) if query.has_days else self._listed(scope)

    def _listed(self, scope: Scope) -> list[dict[str, Any]]:
        """Return the notes and then the facts, each newest first."""
        local = partial(self._parts.resources.local, scope)
        notes = [
            {
                "id": row.id,
                "kind": "note",
                "date": f"{local(row.created_at):%Y-%m-%d}",
                "text": row.text,
            }
            for row in reversed(self._parts.open("notes", scope).all())
        ]
        facts = [
            {"id": fact.id, "kind": "fact", "date": fact.time or "unknown", "text": fact.text}
            for block in self._parts.fact_blocks
            for fact in reversed(block.facts(scope))
        ]
        return [*notes, *facts]

    def _in_period(self, scope: Scope, query: Query) -> list[dict[str, Any]]:
        """Return the messages of a period, oldest first. Only the 5,000 newest messages count."""
        pending = self._parts.resources.pending
        tails = pending.of(NOBODY, scope, MOST_PENDING).read
        entries = (entry for tail in tails for entry in tail.entries[tail.since :])
        matching = [
            entry
            for entry in entries
            if query.covers(entry.local_time.date())
            and entry.message.role in ("user", "assistant")
            and entry.message.text().strip()
        ]
        return [_entry(entry) for entry in sorted(matching, key=lambda entry: entry.created_at)]

    def _recalled(self, recall: Recall) -> dict[str, Any]:
        """Return a recall as JSON data. A message has its session and seq instead of an id."""
        block = self._parts.all_blocks.get(recall.block)
        # None means the word search in the log
        kind: Kind = "note" if block is None or isinstance(block, NoteBlock) else "other"
        if isinstance(block, FactBlock):
            kind = "fact"
        elif recall.sources:
            kind = "message"
        identity: dict[str, Any] = {"id": recall.id}
        if kind == "message":
            identity = dict(zip(("session_id", "seq"), recall.sources[0], strict=True))
        day = {"date": recall.display_time} if recall.display_time else {}
        place = read_on(recall)
        on = {"read_on": place} if place is not None else {}
        return {**identity, "kind": kind, **day, "text": recall.text, **on}


def _entry(entry: Entry) -> dict[str, Any]:
    text, place = full_text(entry.message), {"session_id": entry.session_id, "seq": entry.seq}
    shown = text if len(text) <= _SHOWN else text[: last_break(text, _SHOWN)]
    on = {"read_on": {**place, "offset": len(shown)}} if len(shown) < len(text) else {}
    day, line = f"{entry.local_time:%Y-%m-%d}", f"{speaker(entry.message)}: {shown}"
    return {**place, "kind": "message", "date": day, "text": line, **on}
