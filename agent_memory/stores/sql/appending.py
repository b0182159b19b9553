"""Appending to a log: one statement where the session is as it was seen last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from agent_memory.core.once import Append, Appended
from agent_memory.core.records import Draft, Entry, Head, empty_head
from agent_memory.errors import (
    AccessDenied,
    Damaged,
    InvalidInput,
    SessionDeleting,
    SessionOfAnotherUser,
)
from agent_memory.stores.coding import micros_of, now_micros, to_micros
from agent_memory.stores.log import copy_for_caller, extend, with_tail
from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.keys import read_keys, write_keys
from agent_memory.stores.sql.pieces import is_large, write_entries
from agent_memory.stores.sql.rows import entry_values, head_of, head_values, message_values

_MOST_KNOWN = 8_192
_TEXT = 2_000
"""Characters of what stands in a head that weigh as much as another head."""
_REFUSALS = (AccessDenied, Damaged, InvalidInput, SessionDeleting)


class _CachedHead(NamedTuple):
    """A session as it was seen last.

    Attributes:
        key: Of its row.
        head: Its head, which is no caller's; of before the appends that changed only its tail.
        tail: The log's end and total.
    """

    key: int
    head: Head
    tail: tuple[int, int]

    @classmethod
    def of(cls, key: int, head: Head) -> _CachedHead:
        """As it stands in the database."""
        return cls(key, head, (head.end, head.total))

    def whole(self) -> Head:
        """The head now, for a caller."""
        return with_tail(self.head, *self.tail)


class Appender:
    """Appends, and remembers the heads it saw last.

    What it remembers may be of before: other processes write too. So a remembered head serves only
    where the statement that relies on it finds its version, and the place after its end still free.

    Many threads may append at the same time: what it remembers is read and replaced whole. Of two
    generations the older one goes once the newer one is full.

    Args:
        namespace: Of the sessions.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._newer: dict[str, _CachedHead] = {}
        self._older: dict[str, _CachedHead] = {}
        self._weight = 0

    def append(self, connection: SQLConnection, one: Append) -> Appended:
        """See `SessionStore.append` and `SessionStore.append_once`."""
        known = self._known(one.session_id)
        if known is not None:
            after = _follow(connection, known, one)
            if after is not None:
                self._remember(after)
                return _done(after.whole(), one)
        (done,) = self.append_all(connection, [one])
        if isinstance(done, Exception):
            raise done
        return done

    def append_all(
        self, connection: SQLConnection, appends: Sequence[Append]
    ) -> list[Appended | Exception]:
        """See `GroupingStore.append_all`."""

        def work(within: SQLConnection) -> tuple[list[Appended | Exception], Iterable[_CachedHead]]:
            fresh: dict[str, _CachedHead] = {}
            done: list[Appended | Exception] = []
            for one in appends:
                try:
                    done.append(self._append(within, one, fresh))
                except _REFUSALS as error:  # before anything of it was written
                    done.append(error)
            return done, fresh.values()

        done, fresh = connection.transaction(work)
        for one in fresh:  # to be remembered once it is in the database
            self._remember(one)
        return done

    def _append(
        self, within: SQLConnection, one: Append, fresh: dict[str, _CachedHead]
    ) -> Appended:
        """Append in a transaction.

        Args:
            within: The transaction.
            one: What to append.
            fresh: The sessions as they are once it is committed.
        """
        known = fresh.get(one.session_id) or self._known(one.session_id)
        if known is not None:
            after = _follow_within(within, known, one, self._at(one.session_id))
            if after is not None:
                fresh[one.session_id] = after
                return _done(after.whole(), one)
        row, before = self._look(within, one.session_id)
        if one.own and row is not None and before.user_id is None:
            raise SessionOfAnotherUser(f"Session {one.session_id!r} was begun for no user.")
        drafts, once = one.drafts, one.once
        if once is None:
            written, _ = self._extend(within, row, before, one, drafts)
            fresh[one.session_id] = written
            return _done(written.whole(), one)
        extend(before, (), one.user_id)  # who is refused learns nothing of keys
        names = once.names
        found = read_keys(within, self._at(one.session_id), names) if row and names else []
        chosen = once.chosen(len(drafts), before.end, {key.name: key for key in found})
        if not chosen.places:
            return Appended(before, (), chosen.before)
        some = [drafts[place] for place in chosen.places]
        written, entries = self._extend(within, row, before, one, some)
        if once.since is not None:
            within.run("prune_keys", {"of_key": written.key, "since": to_micros(once.since)})
        write_keys(within, written.key, once.kept(chosen.places, entries, written.head))
        fresh[one.session_id] = written
        return Appended(written.whole(), chosen.places)

    def begin(self, connection: SQLConnection, head: Head, due_at: int) -> None:
        """Write the head of a session that is not there, due at a time, without its log."""
        begun = to_micros(head.created_at)
        new = {"namespace": self._namespace, "session_id": head.session_id, "created_at": begun}
        lease = {"lease_owner": None, "lease_until": 0, "due_at": due_at}
        connection.run("begin", {**new, **lease, **head_values(head)})

    def moved(self, head: Head) -> None:
        """A head was moved, by this process: the next append need not look at the session."""
        known = self._known(head.session_id)
        if known is None or head.deleting or known.head.created_at != head.created_at:
            self.forget(head.session_id)
        else:
            self._remember(_CachedHead.of(known.key, copy_for_caller(head)))

    def forget(self, session_id: str) -> None:
        """Drop what is remembered of a session."""
        self._newer.pop(session_id, None)
        self._older.pop(session_id, None)

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
        one: Append,
        drafts: Sequence[Draft],
    ) -> tuple[_CachedHead, Sequence[Entry]]:
        """Append some of the drafts to a session as it was looked at."""
        at = self._at(before.session_id)
        head, entries = extend(before, drafts, one.user_id)
        by = _by(one)
        if row is None:
            self.begin(connection, head, by)
            row = connection.row("head", at)
        else:
            if head.version != before.version:
                connection.run("move", {**at, **swap(before, head)})
            if row.due_at is None or row.due_at > by:
                connection.run("fall_due", {**at, "by": by})
        if entries:
            write_entries(connection, row.key, entries)
        return _CachedHead.of(row.key, head), entries

    def _remember(self, one: _CachedHead) -> None:
        name = one.head.session_id
        if name not in self._newer:
            self._weight += _weight(one.head)
            if self._weight > _MOST_KNOWN:
                self._newer, self._older, self._weight = {}, self._newer, _weight(one.head)
        self._newer[name] = one

    def _known(self, session_id: str) -> _CachedHead | None:
        return self._newer.get(session_id) or self._older.get(session_id)


def _weight(head: Head) -> int:
    system = 0 if head.system is None else len(head.system.text())
    summary = 0 if head.summary is None else len(head.summary.text)
    return 1 + (system + summary) // _TEXT


def swap(before: Head, after: Head) -> dict[str, Any]:
    """The values of a compare-and-swap of heads."""
    new = {f"new_{name}": value for name, value in head_values(after).items()}
    return {"was": before.version, "begun": to_micros(before.created_at), **new}


def _done(head: Head, one: Append) -> Appended:
    return Appended(head, tuple(range(len(one.drafts))))


def _must_look(known: _CachedHead, one: Append) -> bool:
    """Whether the session has to be looked at before an append: for whose it is, or for keys."""
    if one.user_id not in (None, known.head.user_id):
        return True
    once = one.once
    return once is not None and (bool(once.names) or once.expected_end != known.tail[0])


def _next(known: _CachedHead, one: Append) -> tuple[_CachedHead, Sequence[Entry]] | None:
    """A session after an append, and what to write; None where it has to be looked at first."""
    head = known.head
    if not one.drafts or _must_look(known, one):
        return None
    after, entries = extend(head, one.drafts, one.user_id, known.tail)
    if after.version != head.version:
        return None
    return _CachedHead(known.key, head, (after.end, after.total)), entries


def _by(one: Append) -> int:
    """When the session is to be looked at, at the latest."""
    return now_micros() + micros_of(one.within)


def _first(known: _CachedHead, one: Append, values: dict[str, Any]) -> dict[str, Any]:
    """The values of an append: what is written first, and what the session has to be like."""
    values.update(of_key=known.key, was=known.head.version, by=_by(one))
    return values


def _row(known: _CachedHead, one: Append) -> tuple[dict[str, Any], _CachedHead] | None:
    """What to write for one message to a session as it is known, and the session then; None where
    more comes of it than the message. What `extend` does, in half the time."""
    head, (end, total) = known.head, known.tail
    if len(one.drafts) != 1 or head.deleting or not head.version or _must_look(known, one):
        return None
    draft = one.drafts[0]
    if draft.message.is_system:
        return None
    message = draft.message if draft.placed is None else draft.placed(end + 1)
    tail = end + 1, total + draft.tokens
    values = message_values(message, *tail, draft.tokens, draft.encoding)
    return _first(known, one, values), _CachedHead(known.key, head, tail)


def _follow(connection: SQLConnection, known: _CachedHead, one: Append) -> _CachedHead | None:
    """Append one message in one statement to a session that is as it is known, and due soon enough;
    None: it was not, or it takes more than that."""
    found = _row(known, one)
    if found is None or is_large(connection, found[0]) or connection.run("append", found[0]) != 1:
        return None
    return found[1]


def _follow_within(
    within: SQLConnection, known: _CachedHead, one: Append, at: Mapping[str, Any]
) -> _CachedHead | None:
    """The same in a transaction: several entries, and the session need not be due so far."""
    row, more = _row(known, one), list[Entry]()
    if row is None:
        found = _next(known, one)
        if found is None:
            return None
        after, (entry, *more) = found
        row = _first(known, one, entry_values(entry)), after
    first, after = row
    first.update(at, begun=to_micros(known.head.created_at))
    if is_large(within, first):
        return None
    if not within.run("append_alone", first):
        woken = within.run("fall_due", {**at, "by": first["by"]})
        if not woken or not within.run("append_alone", first):
            return None
    # where the first fits all do: no other writer can come between them
    if more:
        write_entries(within, known.key, more)
    return after
