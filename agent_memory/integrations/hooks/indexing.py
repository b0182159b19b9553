"""Index the words of sessions, so that a prompt's hook need not read all messages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from time import monotonic

from agent_memory.core.records import Entry, Head, Record, Scope
from agent_memory.core.system_collections import WORDS
from agent_memory.engine.memory import AgentMemory
from agent_memory.integrations.hooks.word_places import MOST, WordPlaces, packed
from agent_memory.ltm_blocks.base import record_id

_LOOKED_AT = 500  # newest sessions; earlier ones were indexed when they were new
_SPOKEN = ("user", "assistant")


def note_words(memory: AgentMemory, user_id: str, until: float | None = None) -> None:
    """Index the words of a user's sessions where they are not indexed yet.

    A prompt reads messages that are not indexed, so ending early loses nothing.

    Args:
        memory: The memory.
        user_id: The user.
        until: The end on the clock of `time.monotonic`; None for no end.

    Raises:
        StoreError: The store failed.
    """
    for head in memory.sessions(user_id=user_id, newest=True, limit=_LOOKED_AT):
        for number in _behind(memory, head):
            _note(memory, head.session_id, number)
            if until is not None and monotonic() > until:
                return


def _behind(memory: AgentMemory, head: Head) -> Iterator[int]:
    """Yield the numbers of the groups of messages that are not fully indexed."""
    store, last = memory.components.store, (head.end - 1) // MOST
    newest = store.record(WORDS.name, _id(head.session_id, last))
    if head.end and not (newest and _covers(newest, head, last)):
        owner = Scope(None, head.session_id).owner
        noted = {one.id: one for one in store.records(WORDS.name, owner)}
        for number in range(head.expired // MOST, last + 1):
            one = noted.get(_id(head.session_id, number))
            if not (one and _covers(one, head, number)):
                yield number


def _covers(noted: Record, head: Head, number: int) -> bool:
    try:
        WordPlaces(noted.text)
    except ValueError:  # written by another release or machine
        return False
    return noted.last >= min(head.end, (number + 1) * MOST)


def _note(memory: AgentMemory, session_id: str, number: int) -> None:
    """Index a group of messages under the session's lock, so that none is removed meanwhile."""
    parts = memory.components
    with parts.leases.hold(session_id) as lease:
        entries = parts.store.read(session_id, after=number * MOST, limit=MOST) if lease else []
        if not entries:
            return  # deleted or locked; the next run indexes it
        first = number * MOST + 1
        said: list[str | None] = [None] * (entries[-1].seq - first + 1)
        for entry in entries:
            said[entry.seq - first] = _text(entry)
        owner, last, now = Scope(None, session_id).owner, entries[-1].seq, datetime.now(UTC)
        name = _id(session_id, number)
        record = Record(name, owner, session_id, first, last, packed(said), (), now)
        parts.store.put_records(WORDS.name, [record], lease=lease)


def _text(entry: Entry) -> str | None:
    return entry.message.text() if entry.message.role in _SPOKEN else None


def _id(session_id: str, number: int) -> str:
    return record_id("words", session_id, number)
