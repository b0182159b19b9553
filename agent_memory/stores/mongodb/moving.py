"""Heads, and logs that are written anew from a place on: one swap of a session's document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from agent_memory.core.records import Entry, Head, Lease
from agent_memory.errors import LeaseLost, StoreError
from agent_memory.stores.coding import now_micros, to_micros
from agent_memory.stores.mongodb.appending import Appender, Attempt
from agent_memory.stores.mongodb.connection import Table
from agent_memory.stores.mongodb.documents import (
    NO_TAIL,
    head_of,
    head_values,
    is_away,
    key_of,
    tail_key,
    token,
    weight,
)
from agent_memory.stores.mongodb.log import HEAVY, MOST_AT_ONCE, Log

Doc = dict[str, Any]


class Mover:
    """Swaps the documents of sessions.

    What a log goes on with is written as an append is: in the tail, or staged before. It has the
    version after the swap, so of two entries in one place it is the later one, and what gave way,
    with a lower one, is removed after it (`cut`).

    Args:
        namespace: Of the sessions.
        sessions: The collection of sessions.
        log: Their entries.
        appender: Appends to them.
        guard: Raises `LeaseLost` where a lease is not held any more.
    """

    def __init__(
        self,
        namespace: str,
        sessions: Table,
        log: Log,
        appender: Appender,
        guard: Callable[[Lease | None], None],
    ) -> None:
        self._namespace = namespace
        self._sessions = sessions
        self._log = log
        self._appender = appender
        self._guard = guard

    def move(self, head: Head, lease: Lease | None) -> Head | None:
        """See `SessionStore.move`."""
        session = self._swap(head, lease, {}, {})
        return None if session is None else head_of(session)

    def rewrite(
        self, head: Head, after: int, entries: Sequence[Entry], lease: Lease | None
    ) -> Head | None:
        """See `SessionStore.rewrite`."""
        if head.version == 0:
            return self._begin(head, after, entries, lease)
        key, attempt = key_of(self._namespace, head.session_id), None
        after = min(after, head.end)
        while True:
            session = self._sessions.one({"_id": key})
            if session is None or not _same(session, head):
                if attempt is None:
                    self._guard(lease)
                    return None
                return self._given_up(key, attempt)
            if session.get("cut"):
                self._log.clear_cut(session)
            total = entries[-1].total if entries else self._log.total(session, after)
            if total is None:
                continue
            if sum(row["n"] > after for row in session["tail"].values()) > MOST_AT_ONCE:
                self._log.spill(session)
                continue
            if attempt is None:
                there = {"end": after + len(entries), "total": total}
                attempt = self._attempt(session["log"], head, entries, **there)
            try:
                moved = self._write(session, head, after, attempt, lease)
            except LeaseLost:
                done = self._given_up(key, attempt)
                if done is None:
                    raise
                return done
            if moved is not None:
                return head_of(moved)

    def _write(
        self, session: Doc, head: Head, after: int, attempt: Attempt, lease: Lease | None
    ) -> Doc | None:
        """Swap a document as it was seen, entries included; None where it is not as it was."""
        tail = {tail_key(row["n"]): row for row in attempt.tail}
        gone = {key: row for key, row in session["tail"].items() if row["n"] > after}
        lighter = sum(map(weight, gone.values()))
        new: Doc = {f"tail.{key}": row for key, row in tail.items()}
        new |= {"end": attempt.head.end, "total": attempt.head.total}
        new["spilled"] = min(session["spilled"], after)
        end = attempt.head.end
        has_keys = end < head.end and bool(session.get("keys") or session.get("filed"))
        if session["spilled"] > after or any(map(is_away, gone.values())) or has_keys:
            new["cut"] = {"end": after, "below": attempt.head.version, "keys": end}
        change: Doc = {"$set": new, "$inc": {"weight": attempt.added - lighter}}
        unset = [f"tail.{key}" for key in gone.keys() - tail.keys()]
        unset += [f"keys.{name}" for name, one in session.get("keys", {}).items() if one["n"] > end]
        if unset:
            change["$unset"] = dict.fromkeys(unset, "")
        heavy = session["weight"] + attempt.added - lighter > HEAVY
        # whoever spills meanwhile changes neither version nor end
        seen = {"log": session["log"], "end": head.end, "spilled": session["spilled"]}
        moved = self._swap(head, lease, seen, change, None if heavy else NO_TAIL)
        if moved is not None:
            with suppress(StoreError):  # it is done, and whoever is next will clear up
                if heavy:
                    self._log.spill(moved)
                elif "cut" in new:
                    self._log.clear_cut(moved)
        return moved

    def _begin(
        self, head: Head, after: int, entries: Sequence[Entry], lease: Lease | None
    ) -> Head | None:
        self._guard(lease)
        key = key_of(self._namespace, head.session_id)
        if self._sessions.one({"_id": key}, fields={"_id": 1}) is not None:
            return None
        total = entries[-1].total if entries else 0
        end = after + len(entries)
        attempt = self._attempt(token(), head, entries, end=end, total=total)
        session = self._appender.begin(key, attempt)
        if session is None:
            # the first of two that were sent may have been done
            session = self._sessions.one({"_id": key, "log": attempt.log}, fields=NO_TAIL)
        if session is None:
            self._appender.give_up(attempt)
            return None
        return head_of(session)

    def _attempt(
        self, log: str, head: Head, entries: Sequence[Entry], *, end: int, total: int
    ) -> Attempt:
        after = replace(head, version=head.version + 1, end=end, total=total)
        return self._appender.attempt(log, after, entries, token())

    def _given_up(self, key: str, attempt: Attempt) -> Head | None:
        """The head, where an attempt was done by a write that was thought lost; else it is over."""
        session = self._sessions.one({"_id": key})
        if session is not None and self._appender.holds(session, attempt):
            return head_of(session)
        self._appender.give_up(attempt)
        return None

    def _swap(
        self, head: Head, lease: Lease | None, seen: Doc, change: Doc, fields: Doc | None = NO_TAIL
    ) -> Doc | None:
        """Write a head, and what goes with it, where the session is as it was seen."""
        mark = token()
        new = {**head_values(head), "version": head.version + 1, "mark": mark}
        change = {**change, "$set": {**new, **change.get("$set", {})}}
        if head.deleting:
            change["$min"] = {"due_at": now_micros()}
        key = key_of(self._namespace, head.session_id)
        which = {"_id": key, "version": head.version, "begun": to_micros(head.created_at), **seen}
        if lease is not None:
            if lease.session_id != head.session_id:
                self._guard(lease)
            else:
                which["lease_owner"] = lease.owner
        session = self._sessions.swap(which, change, fields=fields)
        if session is None:
            # the first of two that were sent may have been done
            session = self._sessions.one({"_id": key, "mark": mark}, fields=fields)
        if session is None:
            self._guard(lease)
            return None
        if head.expired:
            with suppress(StoreError):  # nobody sees these, and whoever moves it next removes them
                self._log.expire(key)
        return session


def _same(session: Doc, head: Head) -> bool:
    seen = (session["version"], session["begun"], session["end"])
    return seen == (head.version, to_micros(head.created_at), head.end)
