"""Appending to a log: one write where the session is as it was seen last."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from agent_memory.core.cache import Cache
from agent_memory.core.idempotency import Appended, Once
from agent_memory.core.processes import begin_anew_in_child
from agent_memory.core.records import Draft, Entry, Head, empty_head
from agent_memory.errors import StoreError
from agent_memory.stores.coding import micros_of, now_micros, to_micros
from agent_memory.stores.log import copy_for_caller, extend
from agent_memory.stores.mongodb.connection import Table
from agent_memory.stores.mongodb.documents import (
    NO_TAIL,
    entry_values,
    head_of,
    head_values,
    key_of,
    tail_key,
    token,
    weight,
)
from agent_memory.stores.mongodb.keys import MOST_KEYS, SessionKeys, fields_of
from agent_memory.stores.mongodb.log import HEAVY, Log

Doc = dict[str, Any]

_MOST_KNOWN = 4096
_TURNS = 64
_TURN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _CachedHead:
    """A session as it was seen last: its log's name, its head (no caller's), its tail's size."""

    log: str
    head: Head
    weight: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """A write under way: the head after it, its entries, what its tail takes of them, and when the
    session is to be looked at, at the latest."""

    log: str
    head: Head
    rows: list[Doc]
    tail: list[Doc]
    due_at: int

    @property
    def added(self) -> int:
        """By how much the tail grows."""
        return sum(map(weight, self.tail))

    @property
    def is_staged(self) -> bool:
        """Whether its entries were written on their own before."""
        return self.tail is not self.rows


class Keyed(NamedTuple):
    """What becomes of a session's keys with a write: those to keep, the names of those to remove,
    and whether there are many then."""

    keys: Doc
    old: Sequence[str]
    crowded: bool


class Appender:
    """Appends, and remembers the heads it saw last.

    What it remembers may be of before: other processes write too. So it serves only where the write
    that relies on it finds the version and the end it is about. Both together are never come back
    to: within a version logs only grow. That is why a write whose outcome is unknown may be tried
    again, and is recognised by its token if it was done.

    Args:
        namespace: Of the sessions.
        sessions: The collection of sessions.
        log: Their entries.
        keys: Their keys.
    """

    def __init__(self, namespace: str, sessions: Table, log: Log, keys: SessionKeys) -> None:
        self._namespace = namespace
        self._sessions = sessions
        self._log = log
        self._keys = keys
        self._known: Cache[str, _CachedHead] = Cache(_MOST_KNOWN)
        self._begin_anew()
        begin_anew_in_child(self, Appender._begin_anew)

    def _begin_anew(self) -> None:
        self._turns = [threading.Lock() for _ in range(_TURNS)]

    def append(
        self, session_id: str, drafts: Sequence[Draft], user_id: str | None, within: float
    ) -> Head:
        """See `SessionStore.append`."""
        with self._turn(session_id):
            return self._append(session_id, drafts, user_id, within)

    def append_once(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None,
        within: float,
    ) -> Appended:
        """See `SessionStore.append_once`."""
        with self._turn(session_id):
            return self._append_once(session_id, drafts, once, user_id, within)

    @contextmanager
    def _turn(self, session_id: str) -> Iterator[None]:
        """Threads that take turns don't undercut each other; one that lasts is not waited for."""
        turn = self._turns[hash(session_id) % _TURNS]
        taken = turn.acquire(timeout=_TURN_SECONDS)
        try:
            yield
        finally:
            if taken:
                turn.release()

    def _append(
        self, session_id: str, drafts: Sequence[Draft], user_id: str | None, within: float
    ) -> Head:
        key, write = key_of(self._namespace, session_id), token()
        done: Doc | None = None
        attempt: Attempt | None = None
        known = self._known.get(session_id)
        if known is not None and drafts and (user_id is None or user_id == known.head.user_id):
            head, entries = extend(known.head, drafts, user_id)
            if head.version == known.head.version:
                attempt = self.attempt(known.log, head, entries, write, within)
                done = self._follow(key, known, attempt)
        while done is None:
            session = self._sessions.one({"_id": key})
            if attempt is not None:
                if session is not None and self.holds(session, attempt):
                    return self._remembered(session)
                self.give_up(attempt)
            before = empty_head(session_id, None, datetime.now(UTC))
            known = _CachedHead(token(), before, 0) if session is None else _known(session)
            head, entries = extend(known.head, drafts, user_id)
            attempt = self.attempt(known.log, head, entries, write, within)
            if session is None:
                done = self.begin(key, attempt)
            else:
                done = self._follow(key, known, attempt)
        return self._remembered(done)

    def _append_once(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None,
        within: float,
    ) -> Appended:
        key, write = key_of(self._namespace, session_id), token()
        since = None if once.since is None else to_micros(once.since)
        attempt: Attempt | None = None
        places: tuple[int, ...] = ()
        while True:
            session = self._sessions.one({"_id": key})
            if attempt is not None:
                if session is not None and self.holds(session, attempt):
                    return Appended(self._remembered(session), places)
                self.give_up(attempt)
            before = empty_head(session_id, None, datetime.now(UTC))
            known = _CachedHead(token(), before, 0) if session is None else _known(session)
            extend(known.head, (), user_id)  # who is refused learns nothing of keys
            kept = self._keys.known(session, once.names) if session and once.keys else {}
            places, earlier = once.chosen(len(drafts), known.head.end, kept)
            if not places:
                return Appended(copy_for_caller(known.head), (), earlier)
            head, entries = extend(known.head, [drafts[place] for place in places], user_id)
            attempt = self.attempt(known.log, head, entries, write, within)
            keys = fields_of(once.kept(places, entries, head), head.version, write)
            if session is None:
                done = self.begin(key, attempt, keys)
            else:
                old = self._keys.old(session, since, keys)
                crowded = len(session.get("keys", {})) + len(keys) > MOST_KEYS
                done = self._follow(key, known, attempt, Keyed(keys, old, crowded))
            if done is not None:
                self._keys.tidy(done, since)
                return Appended(self._remembered(done), places)

    def forget(self, session_id: str) -> None:
        """Drop what is remembered of a session."""
        self._known.drop(session_id)

    def attempt(
        self, log: str, head: Head, entries: Sequence[Entry], write: str, within: float = 0.0
    ) -> Attempt:
        """A write of entries, named `write`; they are staged first where they are heavy."""
        rows = [entry_values(entry, head.version, write) for entry in entries]
        heavy = sum(map(weight, rows)) > HEAVY
        due_at = now_micros() + micros_of(within)
        return Attempt(log, head, rows, self._log.stage(log, rows) if heavy else rows, due_at)

    def begin(self, key: str, attempt: Attempt, keys: Doc | None = None) -> Doc | None:
        """Write a session that is not there yet, with its first keys; None where it is."""
        head = attempt.head
        session = {
            "_id": key,
            "ns": self._namespace,
            "sid": head.session_id,
            "log": attempt.log,
            "begun": to_micros(head.created_at),
            "end": head.end,
            "total": head.total,
            "spilled": 0,
            "weight": attempt.added,
            "tail": {tail_key(row["n"]): row for row in attempt.tail},
            "keys": keys or {},
            "lease_owner": None,
            "lease_until": 0,
            "due_at": attempt.due_at,
            "ops": {},
            "refused": {},
            **head_values(head),
        }
        if self._sessions.insert([session]):
            return None
        if attempt.added > HEAVY:
            self._spill(session)
        return session

    def _follow(
        self, key: str, known: _CachedHead, attempt: Attempt, keyed: Keyed | None = None
    ) -> Doc | None:
        """Write entries after the end of a session; None where it is not as it is known."""
        was, head = known.head, attempt.head
        new: Doc = {"end": head.end, "total": head.total}
        if head.version != was.version:
            new |= head_values(head)
        new |= {f"tail.{tail_key(row['n'])}": row for row in attempt.tail}
        which = {"_id": key, "log": known.log, "version": was.version, "end": was.end}
        change = {
            "$set": new,
            "$min": {"due_at": attempt.due_at},
            "$inc": {"weight": attempt.added},
        }
        if keyed is not None:
            new |= {f"keys.{name}": values for name, values in keyed.keys.items()}
            if keyed.old:
                change["$unset"] = {f"keys.{name}": "" for name in keyed.old}
        heavy = known.weight + attempt.added > HEAVY
        whole = heavy or (keyed is not None and keyed.crowded)
        session = self._sessions.swap(which, change, fields=None if whole else NO_TAIL)
        if session is not None and heavy:
            self._spill(session)
        return session

    def _spill(self, session: Doc) -> None:
        with suppress(StoreError):  # it is appended, and whoever is next will spill
            session["weight"] -= self._log.spill(session)

    def holds(self, session: Doc, attempt: Attempt) -> bool:
        """Whether it was done, by a write that was thought lost and sent again."""
        if session["log"] != attempt.log or not attempt.rows:
            return False
        first = attempt.rows[0]
        values = session["tail"].get(tail_key(first["n"]))
        if values is not None:
            return bool(values["w"] == first["w"])
        return session["spilled"] >= first["n"] and self._log.holds(attempt.log, first)

    def give_up(self, attempt: Attempt) -> None:
        """Remove what was staged for it."""
        if attempt.is_staged:
            self._log.unstage(attempt.log, attempt.rows)

    def _remembered(self, session: Doc) -> Head:
        return copy_for_caller(self._known.put(session["sid"], _known(session)).head)


def _known(session: Doc) -> _CachedHead:
    return _CachedHead(session["log"], head_of(session), session["weight"])
