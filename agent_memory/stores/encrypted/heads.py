"""Heads of sessions in an encrypted store: their system messages and summaries are sealed."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime

from agent_memory.core.cache import Cache
from agent_memory.core.damage import Damage
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Head, Summary
from agent_memory.errors import Undecryptable
from agent_memory.stores.encrypted.keys import Keys
from agent_memory.stores.encrypted.messages import carried, carrier, opened, sealed_text
from agent_memory.stores.encrypted.sealing import Place

_MOST_KNOWN = 4096

_Identity = tuple[str, datetime]


@dataclass(frozen=True, slots=True)
class _CachedHead:
    """The last decrypted parts of a session's head, with their encrypted form."""

    sealed_system: _Identity | None
    system: Message | None
    sealed_summary: Summary | None
    summary: Summary | None

    def is_of(self, head: Head) -> bool:
        """Whether it was opened from what a head holds."""
        return self.sealed_system == _identity(head.system) and self.sealed_summary == head.summary


class HeadSeals:
    """Seals and opens heads, and remembers what it opened last: every append gives a head back.

    Args:
        keys: The keys.
        namespace: The namespace of the sessions.
        plaintext: Whether heads that are not sealed are taken as they are.
    """

    def __init__(self, keys: Keys, namespace: str, plaintext: bool) -> None:
        self._keys = keys
        self._namespace = namespace
        self._plaintext = plaintext
        self._known: Cache[str, _CachedHead] = Cache(_MOST_KNOWN)

    def system(self, session_id: str, message: Message) -> Message:
        """The carrier of a system message. The same message gives the same, so that repeating it
        changes nothing in the store."""
        place, plain = self._system_place(session_id), message.to_json().encode()
        return carrier(message, self._keys.current.seal(place, plain, steady=True))

    def sealed(self, head: Head) -> Head:
        """A head as it is to be stored."""
        system, summary = head.system, head.summary
        return replace(
            head,
            system=None if system is None else self.system(head.session_id, system),
            summary=None if summary is None else self._sealed_summary(head.session_id, summary),
        )

    def opened(self, head: Head) -> Head:
        """A stored head as it was given.

        Raises:
            Undecryptable: Its system message or its summary cannot be opened.
        """
        known = self._known.get(head.session_id)
        if known is None or not known.is_of(head):
            try:
                known = self._known.put(head.session_id, self._open(head))
            except Undecryptable as error:
                error.damage = Damage(
                    "session", head.session_id, head=replace(head, system=None, summary=None)
                )
                raise
        if known.system is None and known.summary is None:
            return head
        system = None if known.system is None else known.system.detached()
        return replace(head, system=system, summary=known.summary)

    def knows(self, session_id: str) -> bool:
        """Whether a head of the session was opened before."""
        return session_id in self._known

    def forget(self, session_id: str) -> None:
        """Drop what is remembered of a session."""
        self._known.pop(session_id, None)

    def _open(self, head: Head) -> _CachedHead:
        session_id, system, summary = head.session_id, head.system, head.summary
        return _CachedHead(
            _identity(system),
            None if system is None else self._system(session_id, system),
            summary,
            None if summary is None else self._summary(session_id, summary),
        )

    def _system(self, session_id: str, message: Message) -> Message:
        place = self._system_place(session_id)
        return opened(self._keys, place, message, message.created_at, self._plaintext)

    def _system_place(self, session_id: str) -> Place:
        return ("system", self._namespace, session_id)

    def _sealed_summary(self, session_id: str, summary: Summary) -> Summary:
        plain = compact_json([summary.text, summary.redo_text]).encode()
        place = self._summary_place(session_id, summary)
        return replace(summary, text=self._keys.current.seal(place, plain), redo_text=None)

    def _summary(self, session_id: str, summary: Summary) -> Summary:
        if self._plaintext and not sealed_text(summary.text):
            return summary
        place = self._summary_place(session_id, summary)
        text, redo_text = json.loads(self._keys.open(place, summary.text))
        return replace(summary, text=text, redo_text=redo_text)

    def _summary_place(self, session_id: str, summary: Summary) -> Place:
        span = (summary.upto, summary.redo_after, summary.by, summary.tokens)
        return ("summary", self._namespace, session_id, *span)


def _identity(system: Message | None) -> _Identity | None:
    return None if system is None else (carried(system) or system.to_json(), system.created_at)
