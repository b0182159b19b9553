"""Messages of an encrypted store: each within a carrier, a message that any store can keep."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from agent_memory.core.damage import Damage
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry
from agent_memory.errors import Undecryptable
from agent_memory.stores.coding import to_micros
from agent_memory.stores.encrypted.keys import Keys
from agent_memory.stores.encrypted.sealing import MARK, Key, Place

FORMAT = "agent-memory.sealed"

_CARRIER = f'{{"format":"{FORMAT}","raw":{{"sealed":"%s"}}}}'
_SYSTEM_CARRIER = f'{{"role":"system",{_CARRIER[1:]}'


class MessageSeals:
    """Seals messages for their places in sessions' logs, and opens them.

    Args:
        keys: The keys.
        namespace: The namespace of the sessions.
        plaintext: Whether messages that are not sealed are taken as they are.
    """

    def __init__(self, keys: Keys, namespace: str, plaintext: bool) -> None:
        self._keys = keys
        self._namespace = namespace
        self._plaintext = plaintext

    def sealed(self, session_id: str, draft: Draft, shown: Message) -> Draft:
        """A draft whose entry is sealed once its seq is known.

        Args:
            session_id: The session that it is appended to.
            draft: The draft.
            shown: The form that the store sees before; for a system message, the one in the head.
        """
        # the key is had before the store takes its locks: a callable may be slow to give it
        key = self._keys.current

        def placed(seq: int) -> Message:
            message = draft.message if draft.placed is None else draft.placed(seq)
            return self._entry(key, session_id, seq, message)

        return Draft(shown, draft.tokens, draft.encoding, placed)

    def sealed_entry(self, entry: Entry) -> Entry:
        """An entry as it is to be stored."""
        key = self._keys.current
        message = self._entry(key, entry.session_id, entry.seq, entry.message)
        return replace(entry, message=message)

    def opened(self, entry: Entry) -> Entry:
        """A stored entry as it was given.

        Raises:
            Undecryptable: It was altered, or put at another place, or its key is not given. It has
                a `damage` where it can't be for want of the key.
        """
        place = self._place(entry.session_id, entry.seq, entry.created_at)
        try:
            message = opened(self._keys, place, entry.message, entry.created_at, self._plaintext)
        except Undecryptable as error:
            if self._keys.has_opened(carried(entry.message) or ""):
                error.damage = Damage("message", entry.session_id, entry.seq)
            raise
        return Entry(
            entry.session_id,
            entry.seq,
            message,
            entry.tokens,
            entry.total,
            entry.encoding,
            entry.created_at,
        )

    def _entry(self, key: Key, session_id: str, seq: int, message: Message) -> Message:
        place = self._place(session_id, seq, message.created_at)
        return carrier(message, key.seal(place, message.to_json().encode()))

    def _place(self, session_id: str, seq: int, created_at: datetime) -> Place:
        return ("message", self._namespace, session_id, seq, to_micros(created_at))


def carrier(message: Message, sealed: str) -> Message:
    """A message that shows of another only its time, and whether it is a system message."""
    # read from JSON, it need not be validated; what is sealed needs no escapes
    form = _SYSTEM_CARRIER if message.is_system else _CARRIER
    return Message.from_json(form % sealed, message.created_at)


def carried(message: Message) -> str | None:
    """Return the encrypted text in a carrier; None for another message."""
    sealed = (message.raw or {}).get("sealed") if message.format == FORMAT else None
    return sealed if isinstance(sealed, str) else None


def opened(
    keys: Keys, place: Place, message: Message, created_at: datetime, plaintext: bool
) -> Message:
    """The message that a carrier holds; the message itself where it is none and may be taken so.

    Raises:
        Undecryptable: It cannot be opened.
    """
    sealed = carried(message)
    if plaintext and sealed is None:
        return message
    return Message.from_json(keys.open(place, sealed or ""), created_at)


def sealed_text(text: str) -> bool:
    """Whether a text of a record or summary is sealed."""
    return text.startswith(MARK)
