"""What people and models called important: messages that stay in their window, things recalled
first. Kept among the values of the session, or of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from agent_memory.core.limits import MOST, quoted, text_of
from agent_memory.core.receipts import digest_of
from agent_memory.core.records import Entry, Head, Scope
from agent_memory.core.window import is_user, units
from agent_memory.engine.paging import head_now
from agent_memory.engine.values.key_values import KeyValues
from agent_memory.engine.windows import Windows
from agent_memory.errors import InvalidInput
from agent_memory.stores.base import Store

PINNED = ("pinned",)
"""The namespace of the values that say what is pinned."""

_TRIES = 5
_AT_ONCE = 200
_MOST = 10_000


class Pins:
    """Pins and unpins, and says what is pinned.

    Args:
        store: The log.
        windows: What was read of it.
        values: Gives the values of a scope, or of its session.
    """

    def __init__(
        self, store: Store, windows: Windows, values: Callable[[Scope, bool], KeyValues]
    ) -> None:
        self._store = store
        self._windows = windows
        self._values = values

    def of(self, scope: Scope) -> frozenset[str]:
        """The ids of what is to be recalled first."""
        if not scope.is_somebodys:
            return frozenset()
        found = self._values(scope, False).search(PINNED, limit=_MOST)
        return frozenset(one.key for one in found if one.value is True)

    def pin(self, scope: Scope, name: str, *, pinned: bool = True) -> None:
        """Have something be recalled first, or as all else, by its id."""
        values = self._values(scope, False)
        if pinned:
            values.put(PINNED, text_of("id", name), True)
        else:
            values.delete(PINNED, text_of("id", name))

    def pin_message(self, head: Head, seq: int) -> None:
        """Have a message stay in its session's window, with what it cannot do without.

        Raises:
            InvalidInput: The log has no such message.
        """
        entry = next(iter(self._store.pick(head.session_id, [seq])), None)
        if entry is None or entry.message.is_system:
            raise InvalidInput(
                f"Session {head.session_id!r} has no message #{seq} that could be pinned."
            )
        scope = Scope(head.user_id, head.session_id)
        self._values(scope, True).put(PINNED, str(seq), digest_of(entry))
        for _ in range(_TRIES):
            back = [one for one in self._with_its_own(head, entry) if one.seq <= head.start]
            missing = [one for one in back if one.seq not in head.pinned]
            if not missing:
                return
            moved = self._store.move(
                replace(
                    head,
                    pinned=tuple(sorted({*head.pinned, *(one.seq for one in missing)})),
                    pinned_tokens=head.pinned_tokens + sum(one.tokens for one in missing),
                )
            )
            self._windows.forget(head.session_id)
            now = None if moved is not None else head_now(self._store, head)
            if now is None or now.deleting:
                return
            head = now

    def unpin_message(self, head: Head, seq: int) -> None:
        """Have a message leave the window with the next cut, as others do. Idempotent."""
        scope = Scope(head.user_id, head.session_id)
        self._values(scope, True).delete(PINNED, str(seq))

    def held(self, head: Head, entries: Sequence[Entry], room: int) -> frozenset[int]:
        """Seqs of a window's entries that are to stay: the newest pinned ones that have room.

        Args:
            head: The session's.
            entries: Its window.
            room: Tokens that they may take.
        """
        scope = Scope(head.user_id, head.session_id)
        pins = {one.key: one.value for one in self._values(scope, True).search(PINNED, limit=_MOST)}
        held: set[int] = set()
        for entry in reversed(entries) if pins else ():
            if pins.get(str(entry.seq)) == digest_of(entry):
                more = {one.seq: one.tokens for one in _group(entries, entry)}
                cost = sum(tokens for at, tokens in more.items() if at not in held)
                if cost <= room:
                    room -= cost
                    held |= more.keys()
        return frozenset(held)

    def _with_its_own(self, head: Head, entry: Entry) -> list[Entry]:
        """A message with the call that it answers, or what answers it, and the question of it."""
        first, last = entry.seq, min(head.end, entry.seq + _AT_ONCE)
        while True:
            first = max(head.expired, first - _AT_ONCE)
            read = self._store.read(head.session_id, after=first, limit=last - first)
            if first == head.expired or any(is_user(one) and one.seq <= entry.seq for one in read):
                return _group(read, entry)


def _group(entries: Sequence[Entry], entry: Entry) -> list[Entry]:
    """What stands or falls with an entry, and the user's message that opened its turn."""
    own = next((unit for unit in units(entries) if any(one.seq == entry.seq for one in unit)), [])
    before = [one for one in entries if is_user(one) and own and one.seq < own[0].seq]
    return [*before[-1:], *own] if own and not is_user(own[0]) else own


def check_seq(seq: object) -> int:
    """A message's number.

    Raises:
        InvalidInput: It is none.
    """
    if type(seq) is not int or not 1 <= seq <= MOST:
        raise InvalidInput(f"seq is {quoted(seq)}. Give a message's number, from 1 on.")
    return seq
