"""Appending to a log: one statement where the session is as it was seen last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agent_memory.core.once import Appended, Once
from agent_memory.core.records import Draft, Entry, Head, empty_head
from agent_memory.stores.coding import now_micros, to_micros
from agent_memory.stores.log import copy_for_caller, extend
from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.keys import read_keys, write_keys
from agent_memory.stores.sql.pieces import is_large, write_entries
from agent_memory.stores.sql.rows import entry_values, head_of, head_values

_MOST_KNOWN = 4096


@dataclass(frozen=True, slots=True)
class _CachedHead:
    """A session as it was seen last: its row's key, and its head, which is no caller's."""

    key: int
    head: Head


class Appender:
    """Appends, and remembers the heads it saw last.

    What it remembers may be of before: other processes write too. So a remembered head serves only
    where the statement that relies on it finds its version, and the place after its end still free.

    Many threads may append at the same time: what it remembers is read and replaced whole.

    Args:
        namespace: Of the sessions.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._known: dict[str, _CachedHead] = {}

    def append(
        self,
        connection: SQLConnection,
        session_id: str,
        drafts: Sequence[Draft],
        user_id: str | None,
    ) -> Head:
        """See `SessionStore.append`."""
        known = self._known.get(session_id)
        if known is not None and drafts and (user_id is None or user_id == known.head.user_id):
            head, entries = extend(known.head, drafts, user_id)
            if head.version == known.head.version and _follow(connection, known, entries):
                return self._remembered(known.key, head)

        def work(within: SQLConnection) -> _CachedHead:
            row, before = self._look(within, session_id)
            return self._extend(within, row, before, drafts, user_id)[0]

        known = connection.transaction(work)
        return self._remembered(known.key, known.head)

    def append_once(
        self,
        connection: SQLConnection,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None,
    ) -> Appended:
        """See `SessionStore.append_once`."""
        names = once.names
        known = None if names or not drafts else self._known.get(session_id)
        if (
            known is not None
            and known.head.end == once.expected_end
            and (user_id is None or user_id == known.head.user_id)
        ):
            # as in `append`: where another has come first the place after this end is taken
            head, entries = extend(known.head, drafts, user_id)
            if head.version == known.head.version and _follow(connection, known, entries):
                return Appended(self._remembered(known.key, head), tuple(range(len(drafts))))

        def work(within: SQLConnection) -> tuple[_CachedHead | None, Appended]:
            row, before = self._look(within, session_id)
            extend(before, (), user_id)  # who is refused learns nothing of keys
            found = read_keys(within, self._at(session_id), names) if row and names else []
            chosen = once.chosen(len(drafts), before.end, {one.name: one for one in found})
            if not chosen.places:
                return None, Appended(before, (), chosen.before)
            some = [drafts[place] for place in chosen.places]
            written, entries = self._extend(within, row, before, some, user_id)
            if once.since is not None:
                pruned = {"of_key": written.key, "since": to_micros(once.since)}
                within.run("prune_keys", pruned)
            write_keys(within, written.key, once.kept(chosen.places, entries, written.head))
            return written, Appended(written.head, chosen.places)

        after, appended = connection.transaction(work)
        if after is None:
            return appended
        return appended._replace(head=self._remembered(after.key, after.head))

    def begin(self, connection: SQLConnection, head: Head, now: int) -> None:
        """Write the head of a session that is not there, due at a time, without its log."""
        begun = to_micros(head.created_at)
        new = {"namespace": self._namespace, "session_id": head.session_id, "created_at": begun}
        lease = {"lease_owner": None, "lease_until": 0, "due_at": now}
        connection.run("begin", {**new, **lease, **head_values(head)})

    def forget(self, session_id: str) -> None:
        """Drop what is remembered of a session."""
        self._known.pop(session_id, None)

    def _at(self, session_id: str) -> dict[str, Any]:
        return {"ns": self._namespace, "sid": session_id}

    def _look(self, connection: SQLConnection, session_id: str) -> tuple[Any, Head]:
        """A session's row, if it is there, and its head; nobody else changes it from now on."""
        at = self._at(session_id)
        row = connection.row("head", at) if connection.lock(at) else None
        if row is None:
            return None, empty_head(session_id, None, datetime.now(UTC))
        return row, head_of(row)

    def _extend(
        self,
        connection: SQLConnection,
        row: Any,
        before: Head,
        drafts: Sequence[Draft],
        user_id: str | None,
    ) -> tuple[_CachedHead, Sequence[Entry]]:
        """Append to a session as it was looked at."""
        at = self._at(before.session_id)
        head, entries = extend(before, drafts, user_id)
        now = now_micros()
        if row is None:
            self.begin(connection, head, now)
            row = connection.row("head", at)
        else:
            if head.version != before.version:
                connection.run("move", {**at, **swap(before, head)})
            if row.due_at is None or row.due_at > now:
                connection.run("fall_due", {**at, "now": now})
        if entries:
            write_entries(connection, row.key, entries)
        # to be remembered once it is in the database
        return _CachedHead(row.key, head), entries

    def _remembered(self, key: int, head: Head) -> Head:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[head.session_id] = _CachedHead(key, head)
        return copy_for_caller(head)


def swap(before: Head, after: Head) -> dict[str, Any]:
    """The values of a compare-and-swap of heads."""
    new = {f"new_{name}": value for name, value in head_values(after).items()}
    return {"was": before.version, "begun": to_micros(before.created_at), **new}


def _follow(connection: SQLConnection, known: _CachedHead, entries: Sequence[Entry]) -> bool:
    """Write entries after the end of a session that is as it is known; whether it was."""
    facts = {"of_key": known.key, "was": known.head.version, "now": now_micros()}
    first = {**entry_values(entries[0]), **facts}
    if is_large(connection, first):
        return False
    if len(entries) == 1:
        return connection.run("append", first) == 1

    def write(within: SQLConnection) -> bool:
        # where the first fits all do: no other writer can come between them
        if not within.run("append", first):
            return False
        write_entries(within, known.key, entries[1:])
        return True

    return connection.transaction(write)
