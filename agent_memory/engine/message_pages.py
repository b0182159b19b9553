"""One message of a log, page by page: how a model reads on where it was shown a part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pydantic import Field

from agent_memory.core.ids import check_id
from agent_memory.core.long_texts import PART, part_of
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Entry, Head, Recall, Scope
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.core.tools import READ_MESSAGE, Arguments, Tool
from agent_memory.core.transcript import clip, speaker, told
from agent_memory.engine.paging import read_of
from agent_memory.errors import InvalidId, ToolRefused
from agent_memory.stores.base import SessionStore

_MOST = 2_000
_LEAST = 32
_SHARE = 6  # of a budget, so that a window need not cut the page, even beside a long question
_CHARS = 8  # of a token, at most, in what is looked at for a page
_TOLD = ("role", "content", "name", "tool_call_id")
_FARTHEST = 10**12


_TURN: ContextVar[tuple[str, int, Sequence[Message]]] = ContextVar("turn")
"""The session of a turn that is not stored yet, where it begins, and what was said in it."""


@contextmanager
def readable(session_id: str, head: Head | None, asked: Sequence[Message]) -> Iterator[None]:
    """Meanwhile a turn can be read as if it was stored already.

    Args:
        session_id: Its session.
        head: The session's head when the turn began.
        asked: The turn so far.
    """
    said = [message for message in asked if not message.is_system]
    token = _TURN.set((session_id, head.end if head is not None else 0, said))
    try:
        yield
    finally:
        _TURN.reset(token)


class ReadMessage(Arguments):
    """What `memory_read_message` takes."""

    seq: int = Field(ge=1, le=_FARTHEST, description="The message's number.")
    offset: int = Field(
        default=0, ge=0, le=_FARTHEST, description="From which character on to read."
    )
    session_id: str | None = Field(
        default=None,
        description="The conversation, another one of the same user; without it the one at hand.",
    )


class MessagePages:
    """Gives a message's text in pages that fit a context.

    Args:
        store: The log.
        counter: Counts tokens.
        budget: Tokens of a context.
    """

    def __init__(self, store: SessionStore, counter: TokenCounter, budget: int) -> None:
        self._store = store
        self._counter = counter
        self._room = max(_LEAST, min(_MOST, budget // _SHARE))

    def tool(self, arguments: type[ReadMessage] = ReadMessage) -> Tool:
        """The tool that reads on."""
        return Tool(
            READ_MESSAGE,
            "Read one message of a conversation page by page. Use it where a message is marked as "
            "cut, or a search gave a part of one (pass on its `read_on` as it is), and you need "
            "the rest. Each page says where the next one begins. Read one page at a time, and with "
            "each say all that you have found so far: by then the pages before it may be shown in "
            "part.",
            arguments,
            self.read,
            ("read",),
        )

    def read(self, scope: Scope, asked: ReadMessage) -> str:
        """A page as JSON, which says at which offset the next one begins.

        Raises:
            ToolRefused: There is no such message, or it ends before the offset.
        """
        entry = self._entry(scope, asked)
        text = _text(entry.message)
        if asked.offset >= max(1, len(text)):
            raise ToolRefused(
                f"Message {asked.seq} has {len(text)} characters. Give an offset below that."
            )
        shown = page(text, asked.offset, self._cost, self._room)
        end = asked.offset + len(shown)
        answer = {
            "seq": entry.seq,
            "from": speaker(entry.message),
            "date": f"{entry.created_at:%Y-%m-%d}",
            "offset": asked.offset,
            "of": len(text),
            "next": end if end < len(text) else None,
            "text": shown,
        }
        return compact_json(answer)

    def _entry(self, scope: Scope, asked: ReadMessage) -> Entry:
        if (drafted := _of_turn(scope, asked)) is not None:
            return drafted
        head = self._head(scope, asked.session_id)
        if head is None or head.end == 0:
            raise ToolRefused(f"There is no message {asked.seq}: this session has none yet.")
        for entry in read_of(self._store, head, after=asked.seq - 1, limit=1):
            if entry.seq == asked.seq:
                return entry
        raise ToolRefused(
            f"There is no message {asked.seq} in this session. It has {head.expired + 1} to "
            f"{head.end}."
        )

    def _head(self, scope: Scope, named: str | None) -> Head | None:
        """The session to read in: the one at hand, or another of the same user.

        Raises:
            ToolRefused: The other one is not the user's, or there is none of that name.
        """
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
        theirs = head is not None and scope.user_id is not None and head.user_id == scope.user_id
        if session_id != scope.session_id and not theirs:
            raise ToolRefused(f"There is no session {session_id[:64]!r} of this user.")
        return head

    def _cost(self, text: str) -> int:
        return self._counter.text(compact_json(text))


def _of_turn(scope: Scope, asked: ReadMessage) -> Entry | None:
    """A message of the turn that is under way, by the number that its context gives it."""
    session_id, end, said = _TURN.get(("", 0, ()))
    place = asked.seq - end - 1
    at_hand = scope.session_id == session_id and asked.session_id in (None, session_id)
    if not at_hand or not 0 <= place < len(said):
        return None
    return Entry(session_id, asked.seq, said[place], 0, 0, "", said[place].created_at)


def read_on(recall: Recall) -> dict[str, Any] | None:
    """What to give `memory_read_message` to read on from a passage; None for what is no passage."""
    if PART not in recall.metadata or not recall.sources:
        return None
    session_id, seq = recall.sources[0]
    return {"session_id": session_id, "seq": seq, "offset": part_of(recall.metadata).offset}


def _text(message: Message) -> str:
    """All that a message says, its content first: places in that are places in the whole."""
    others = (message.to_openai() or {}).items()
    more = [
        f"({key}: {text})" for key, text in others if key not in _TOLD and isinstance(text, str)
    ]
    return "\n".join(text for text in (told(message), *more) if text)


def page(text: str, offset: int, count: Callable[[str], int], room: int) -> str:
    """What of a text to give from an offset on: about `room` tokens, and never nothing."""
    rest = text[offset : offset + room * _CHARS]
    return clip(rest, count, room) or rest[:room]
