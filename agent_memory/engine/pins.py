"""Pins: messages that stay in their window, and records that are recalled first.

Pins are stored as values of the session or of the user.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_memory.core.limits import text_of
from agent_memory.core.receipts import digest_of
from agent_memory.core.records import Entry, Head, Scope
from agent_memory.core.window import is_user, units
from agent_memory.engine.paging import head_now
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.base import superseded_facts

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components
    from agent_memory.engine.values.key_values import KeyValues

PINNED = ("pinned",)
"""The namespace of the values that store pins."""

_TRIES = 5
_BATCH = 200
_MOST = 10_000


class Pins:
    def __init__(self, parts: Components) -> None:
        self._parts, self._store, self._values = parts, parts.store, parts.values_of

    def _values_of(self, head: Head) -> KeyValues:
        return self._values(Scope(head.user_id, head.session_id), of_session=True)

    def of(self, scope: Scope) -> frozenset[str]:
        """Return the ids of the user's pinned records."""
        if not scope.is_somebodys:
            return frozenset()
        pins = self._values(scope).search(PINNED, limit=_MOST)
        return frozenset(value.key for value in pins if value.value is True)

    def pin(self, scope: Scope, name: str, *, pinned: bool = True) -> None:
        """Pin or unpin a record by its id. Unpin also the facts that the record replaced."""
        values, name = self._values(scope), text_of("id", name)
        if pinned:
            values.put(PINNED, name, True)
            return
        older = {
            fact
            for block in self._parts.fact_blocks
            for fact in superseded_facts(name, block.facts(scope, superseded=True))
        }
        for pin in {name, *(older & self.of(scope))}:
            values.delete(PINNED, pin)

    def pin_message(self, head: Head, seq: int) -> None:
        """Pin a message. If it left the window, put it back, with its question and tool calls."""
        entry = next(iter(self._store.pick(head.session_id, [seq])), None)
        if entry is None or entry.message.is_system:
            raise InvalidInput(
                f"Session {head.session_id!r} has no message #{seq} that could be pinned."
            )
        self._values_of(head).put(PINNED, str(seq), digest_of(entry))
        for _ in range(_TRIES):
            back = [each for each in self._with_its_own(head, entry) if each.seq <= head.start]
            missing = [each for each in back if each.seq not in head.pinned]
            if not missing:
                return
            moved = self._store.move(
                replace(
                    head,
                    pinned=tuple(sorted({*head.pinned, *(each.seq for each in missing)})),
                    pinned_tokens=head.pinned_tokens + sum(each.tokens for each in missing),
                )
            )
            self._parts.windows.forget(head.session_id)
            now = None if moved is not None else head_now(self._store, head)
            if now is None or now.deleting:
                return
            head = now

    def unpin_message(self, head: Head, seq: int) -> None:
        self._values_of(head).delete(PINNED, str(seq))

    def follow(self, head: Head, moved: Iterable[tuple[Entry, Entry]]) -> None:
        """Pin the new entries of pinned messages that an edit has numbered again."""
        values = self._values_of(head)
        pins = {pin.key: pin.value for pin in values.search(PINNED, limit=_MOST)}
        for old, new in moved:
            if pins.get(str(old.seq)) == digest_of(old):
                values.put(PINNED, str(new.seq), digest_of(new))

    def held(self, head: Head, entries: Sequence[Entry], room: int) -> frozenset[int]:
        """Return the seqs of the newest pinned entries of a window that fit into `room` tokens."""
        pins = {pin.key: pin.value for pin in self._values_of(head).search(PINNED, limit=_MOST)}
        held: set[int] = set()
        for entry in reversed(entries) if pins else ():
            if pins.get(str(entry.seq)) == digest_of(entry):
                more = {each.seq: each.tokens for each in _group(entries, entry)}
                cost = sum(tokens for at, tokens in more.items() if at not in held)
                if cost <= room:
                    room -= cost
                    held |= more.keys()
        return frozenset(held)

    def _with_its_own(self, head: Head, entry: Entry) -> list[Entry]:
        """Return a message with its tool calls and results, and the user's message before them."""
        first, last = entry.seq, min(head.end, entry.seq + _BATCH)
        while True:
            first = max(head.expired, first - _BATCH)
            read = self._store.read(head.session_id, after=first, limit=last - first)
            users = (each.seq for each in read if is_user(each))
            if first == head.expired or any(seq <= entry.seq for seq in users):
                return _group(read, entry)


def _group(entries: Sequence[Entry], entry: Entry) -> list[Entry]:
    """Return an entry with its tool calls and results, and the user's message before them."""
    own = next((unit for unit in units(entries) if any(each.seq == entry.seq for each in unit)), [])
    before = [each for each in entries if is_user(each) and own and each.seq < own[0].seq]
    return [*before[-1:], *own] if own and not is_user(own[0]) else own
