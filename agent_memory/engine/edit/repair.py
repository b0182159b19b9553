"""Repair: find damaged records in a store, and restore them from the log if possible."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from agent_memory.core.damage import Damage
from agent_memory.core.limits import readable
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head, Lease
from agent_memory.core.text import runs
from agent_memory.core.window import ruled
from agent_memory.engine.paging import all_heads
from agent_memory.errors import Damaged, StoreUnavailable, Undecryptable, UnsupportedOperation
from agent_memory.stores.base import Store
from agent_memory.stores.damage import head_or_rest, noted, read_around

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

LOST = "[This message was damaged in the store and is lost.]"

_PAGE = 200
_NOTHING_DONE = "Nothing was repaired; try again."
_WINDOW = {"expired", "start", "start_total", "pinned", "pinned_tokens", "summary"}
_SYSTEM = {"system", "system_tokens"}
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Looked:
    """The result of a check: the damaged records, and the number of sessions that were read."""

    damaged: list[Damaged]
    sessions: int
    is_complete: bool  # whether all records were read before the time ran out


def look(store: Store, seconds: float = inf) -> Looked:
    """Read the records of a store for about `seconds`, and return the damaged records."""
    deadline, sessions, is_complete = monotonic() + seconds, 0, True
    with noted() as damaged:
        for _ in _steps(store, damaged):
            sessions += 1
            if monotonic() > deadline:
                is_complete = False
                break
    unique = {str(error): error for error in damaged}
    return Looked(list(unique.values()), sessions, is_complete)


def _steps(store: Store, damaged: list[Damaged]) -> Iterator[None]:
    """Read a store, and yield after each session. The last step reads everything else."""
    for head in all_heads(store):
        _read(damaged, _pages(store, head.session_id, head.expired))
        yield
    for head in [error.damage.head for error in damaged if error.damage and error.damage.head]:
        _read(damaged, _pages(store, head.session_id, head.expired))
        yield
    _read(damaged, store.all_records())
    for block in store.vector_blocks():
        with suppress(UnsupportedOperation):  # the vectors are encrypted
            _read(damaged, store.all_vectors(block))


def _read(damaged: list[Damaged], data: Iterator[object]) -> None:
    try:
        deque(data, maxlen=0)
    except Damaged as error:
        damaged.append(error)


def _pages(store: Store, session_id: str, after: int) -> Iterator[list[Entry]]:
    while True:
        entries, reached = read_around(store, session_id, after, _PAGE)
        yield entries
        if reached == after:
            return
        after = reached


class Repair:
    def __init__(self, parts: Components) -> None:
        self._parts, self._store = parts, parts.store
        self._leases, self._absorber = parts.leases, parts.absorber

    def plan(self, error: Damaged) -> tuple[str, Callable[[], object]] | None:
        """Return a sentence that describes the repair, and a function that does it.

        Return None if no repair is possible. The function is safe to repeat.
        """
        damage = error.damage
        if damage is None or damage.kind == "file" or isinstance(error, Undecryptable):
            return None
        session_id = damage.session_id
        if damage.kind == "message":
            text = "A placeholder will replace the lost message. Records derived from it stay."
            return text, partial(self._under_lease, session_id, self._replace)
        if damage.kind == "session":
            if damage.head is None:  # damaged file pages need a backup
                return None
            if damage.is_usable:
                text = f"The head will be restored from the log: {', '.join(damage.broken)}."
                return text, partial(self._under_lease, session_id, self._rebuild)
            text = (
                "IT WILL BE DELETED with all its messages and derived records: neither its owner "
                "nor its end is known."
            )
            return text, partial(self._parts.deletion.session, session_id)
        if damage.block not in self._absorber.blocks and self._follows(damage):
            return None
        drop = partial(self._drop, damage)
        if damage.owner:
            text = "The catalog will be restored from the records that it listed."
            return text, partial(self._search, damage)
        if self._absorbed(damage):
            return f"{damage.block} will absorb session {readable(session_id)!r} again.", drop
        if damage.kind == "vector" and not session_id:
            return None
        return "IT WILL BE DELETED: it cannot be derived again from a log.", drop

    def _absorbed(self, damage: Damage) -> bool:
        if damage.block not in self._absorber.blocks or not damage.session_id:
            return False
        head = head_or_rest(self._store, damage.session_id)
        return head is not None and damage.seq > head.expired

    def _follows(self, damage: Damage) -> bool:
        """Return whether a record derives from a log that its block has absorbed."""
        head = head_or_rest(self._store, damage.session_id) if damage.session_id else None
        return head is not None and damage.block in head.cursors

    def _drop(self, damage: Damage) -> None:
        """Remove a record. For a vector, also remove the session's later vectors.

        An absorbing block derives the removed data again. The block's cursor is reset first, so
        that a crash before the removal loses nothing.
        """
        session_id = damage.session_id
        if damage.block not in self._absorber.blocks or not session_id:
            self._remove(damage, None)
            return
        with self._leases.hold(session_id, consequence=_NOTHING_DONE) as lease:
            if lease is not None:
                self._absorber.rewind(damage.block, lease, session_id)
            self._remove(damage, lease)

    def _remove(self, damage: Damage, lease: Lease | None) -> None:
        if damage.kind == "fact":
            self._store.delete_records(damage.block, record_id=damage.record_id, lease=lease)
        else:
            name, after = damage.session_id, max(damage.seq - 1, 0)
            self._store.delete_vectors(damage.block, session_id=name, after=after, lease=lease)

    def _search(self, damage: Damage) -> None:
        """Run a search: the store then restores its unreadable catalog of the owner's vectors."""
        from agent_memory.retrieval.query import Query

        self._store.search_vectors(damage.block, damage.owner, Query(), 1)

    def _under_lease(self, session_id: str, change: Callable[[str], Head | None]) -> None:
        with self._leases.hold(session_id, consequence=_NOTHING_DONE) as lease:
            for _ in range(_TRIES if lease is not None else 0):
                changed = change(session_id)
                if changed is not None:
                    self._store.schedule(changed, 0)
                    self._parts.windows.forget(session_id)
                    return
        if head_or_rest(self._store, session_id) is not None:
            raise StoreUnavailable(f"Session {session_id!r} changes too often. {_NOTHING_DONE}")

    def _rebuild(self, session_id: str) -> Head | None:
        """Restore the damaged fields of a head. None if another writer changed the head first."""
        try:
            return self._store.head(session_id)  # another call has repaired it
        except Damaged as error:
            if error.damage is None or error.damage.head is None:
                raise
            head, broken = error.damage.head, {*error.damage.broken}
        if broken & _WINDOW:
            first = next(iter(read_around(self._store, session_id, 0, 1)[0]), None)
            expired = max(head.expired, first.seq - 1) if first else head.expired
            total = first.before if first else head.total
            head = replace(head, expired=expired, start=expired, start_total=total)
            head = replace(head, pinned=(), pinned_tokens=0, summary=None)
        if broken & _SYSTEM:
            run: list[Entry] = []  # the last adjacent system messages
            for entry in chain.from_iterable(_pages(self._store, session_id, head.expired)):
                if entry.message.is_system:
                    run = [*run, entry] if run and run[-1].seq == entry.seq - 1 else [entry]
            head = ruled(head, run)
        return self._store.move(head)

    def _replace(self, session_id: str) -> Head | None:
        """Replace damaged messages in a log. None if another writer changed the log first."""
        head = head_or_rest(self._store, session_id)
        if head is None:
            return None
        entries = self._mended(head)
        return self._store.rewrite(head, entries[0].seq - 1, entries) if entries else head

    def _mended(self, head: Head) -> list[Entry]:
        """Return the log from its first damaged message on, with placeholders."""
        entries: dict[int, Entry] = {}
        at = head.expired
        while at < head.end:
            with noted() as damaged:
                page, reached = read_around(self._store, head.session_id, at, _PAGE)
            for error in damaged:
                if isinstance(error, Undecryptable):  # not lost: only its key is missing
                    raise error
            if reached == at:
                break
            entries.update((entry.seq, entry) for entry in page)
            at = reached
        lost = [seq for seq in range(head.expired + 1, at + 1) if seq not in entries]
        for first, last in runs(lost):
            before, after = entries.get(first - 1), entries.get(last + 1)
            notes = _notes(range(first, last + 1), before, after, head)
            entries.update((note.seq, note) for note in notes)
        return [entries[seq] for seq in range(lost[0], at + 1)] if lost else []


def _notes(
    seqs: Sequence[int], before: Entry | None, after: Entry | None, head: Head
) -> list[Entry]:
    """Return a placeholder for each lost message. The first has the tokens of all lost messages."""
    nearest = before or after
    since = before.total if before else head.start_total if head.start == head.expired else 0
    total = after.before if after else since
    tokens = max(0, total - since)
    created_at = nearest.created_at if nearest else head.created_at
    message = Message(role="assistant", content=LOST, created_at=created_at)
    encoding = nearest.encoding if nearest else ""
    return [
        Entry(head.session_id, seq, message, 0 if at else tokens, total, encoding, created_at)
        for at, seq in enumerate(seqs)
    ]
