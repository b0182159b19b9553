"""Appending to a log in Redis: one call where the session is as it was seen last."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agent_memory.core.once import Appended, KeptKey, Once
from agent_memory.core.records import Draft, Entry, Head, empty_head
from agent_memory.errors import Conflict, SessionDeleting, SessionOfAnotherUser
from agent_memory.stores.coding import micros_of, to_micros
from agent_memory.stores.log import copy_for_caller, extend
from agent_memory.stores.redis.coding import (
    entry_value,
    head_body,
    head_of,
    key_of,
    key_value,
    mark_of,
    token_of,
)
from agent_memory.stores.redis.index import Index
from agent_memory.stores.redis.keys import Keys
from agent_memory.stores.redis.scripts import (
    APPEND,
    APPEND_ONCE,
    HEAD_FIELDS,
    LOOK,
    SessionScript,
)
from agent_memory.stores.redis.server import Argument, Lost, RedisServer

_MOST_KNOWN = 4096


@dataclass(frozen=True, slots=True)
class _CachedHead:
    """A session as it was seen last: its head (no caller's), and who moved that."""

    head: Head
    mark: str


class Appender:
    """Appends, and remembers the heads it saw last.

    A remembered head serves only where the script finds its version, its time of creation, its
    end and who moved it last; else the script answers with the head as it is. A session that was
    never seen is tried as a new one. So a call whose answer was lost can be made again: it finds
    its place free, or taken by itself, or by another, and then it was not carried out and never
    will be.

    Args:
        server: The server.
        keys: Of the namespace.
        index: Of the namespace.
    """

    def __init__(self, server: RedisServer, keys: Keys, index: Index) -> None:
        self._server = server
        self._index = index
        self._keys = keys
        self._known: dict[str, _CachedHead] = {}

    def append(
        self, session_id: str, drafts: Sequence[Draft], user_id: str | None, within: float
    ) -> Head:
        """See `SessionStore.append`."""
        known, fresh = self._known.get(session_id), False
        while True:
            if known is None and self._index.cluster:
                known, fresh = self._seen(session_id), True
            known = known or _begun(session_id)
            try:
                head, entries = extend(known.head, drafts, user_id)
            except (SessionOfAnotherUser, SessionDeleting):
                if fresh:
                    raise
                known = None  # it may have been deleted and begun anew since
                continue
            answer, token = self._attempt(known, head, entries, within, APPEND)
            if answer in (1, 2) or _is_own(answer, token):
                self._done(answer, known, head, within)
                return head
            found = None if answer is None else _known(session_id, answer)
            known, fresh = found or _begun(session_id), True

    def append_once(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None,
        within: float,
    ) -> Appended:
        """See `SessionStore.append_once`."""
        known = self._known.get(session_id) or _begun(session_id)
        kept: dict[str, KeptKey] = {}
        fresh = False
        while True:
            try:
                extend(known.head, (), user_id)  # who is refused learns nothing of keys
                chosen = once.chosen(len(drafts), known.head.end, kept)
                if not chosen.places and fresh:
                    return Appended(copy_for_caller(known.head), (), chosen.before)
            except (SessionOfAnotherUser, SessionDeleting, Conflict):
                if fresh:
                    raise
                chosen = None
            if chosen is None or not chosen.places:
                looked = self._index.run(LOOK, session_id, *_looked(once), repeat=True)
                known, kept, fresh = *_found(session_id, looked), True
                continue
            some = [drafts[place] for place in chosen.places]
            head, entries = extend(known.head, some, user_id)
            keys = once.kept(chosen.places, entries, head)
            pairs = [part for one in keys for part in (one.name, key_value(one))]
            names, since = _looked(once)
            thought = "".join(f"{name}," for name in once.names if name in kept)
            terms: list[Argument] = [since, names, thought, len(keys), *pairs]
            answer, token = self._attempt(known, head, entries, within, APPEND_ONCE, terms)
            if answer in (1, 2) or _is_own(answer, token):
                self._done(answer, known, head, within)
                return Appended(head, chosen.places)
            if answer is not None and answer[0] == b"keys":
                known, kept = _found(session_id, answer)
            elif answer is None:  # deleted, and its keys with it
                known, kept = _begun(session_id), {}
            else:
                known = _known(session_id, answer) or _begun(session_id)
            fresh = True

    def remember(self, head: Head, mark: str) -> None:
        """Keep a head, which nobody else may change, and who moved it last."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[head.session_id] = _CachedHead(head, mark)

    def forget(self, session_id: str) -> None:
        """Drop what is remembered of a session."""
        self._known.pop(session_id, None)

    def _seen(self, session_id: str) -> _CachedHead:
        fields = self._server.ask("HMGET", self._keys.head(session_id), *HEAD_FIELDS)
        return _known(session_id, fields) or _begun(session_id)

    def _done(self, answer: Any, known: _CachedHead, head: Head, within: float) -> None:
        if answer != 1:
            self._index.overtook(head.session_id, head.user_id, micros_of(within))
        self.remember(copy_for_caller(head), known.mark)

    def _attempt(
        self,
        known: _CachedHead,
        head: Head,
        entries: Sequence[Entry],
        within: float,
        script: SessionScript,
        terms: Sequence[Argument] = (),
    ) -> tuple[Any, str]:
        token, was = secrets.token_hex(4), known.head
        changed, wait = head.version != was.version, micros_of(within)
        values = (
            was.version, to_micros(was.created_at), was.end, known.mark,
            head.version, head.end, head.total, head.user_id or "",
            head_body(head) if changed else "", wait,
        )  # fmt: skip
        rest = [*terms, *(entry_value(entry, token) for entry in entries)]
        self._index.appending(head.session_id, head.user_id, wait)
        try:
            return self._index.attempt(script, head.session_id, *values, "", *rest), token
        except Lost:
            return self._index.run(script, head.session_id, *values, "1", *rest), token


def _begun(session_id: str) -> _CachedHead:
    return _CachedHead(empty_head(session_id, None, datetime.now(UTC)), "")


def _known(session_id: str, fields: Sequence[bytes | None]) -> _CachedHead | None:
    head = head_of(session_id, fields)
    return None if head is None else _CachedHead(head, mark_of(fields))


def _looked(once: Once) -> tuple[str, str]:
    """The names of keys, and since when they count, as scripts take them."""
    since = "" if once.since is None else str(to_micros(once.since))
    return "".join(f"{name}," for name in once.names), since


def _found(session_id: str, looked: Sequence[Any]) -> tuple[_CachedHead, dict[str, KeptKey]]:
    """What a look at a session and its keys has found."""
    _, values, fields = looked
    keys = map(key_of, values)
    return _known(session_id, fields) or _begun(session_id), {one.name: one for one in keys}


def _is_own(answer: Any, token: str) -> bool:
    """Whether the place after the end that was known is taken by the call itself."""
    if answer is None or answer[0] == b"keys":
        return False
    about = answer[len(HEAD_FIELDS)]
    return about is not None and token_of(about) == token
