"""Idempotency keys, so that a retry stores nothing twice. Checks that refuse stale writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

from agent_memory.core.limits import MOST, quoted
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Draft, Entry, Head
from agent_memory.errors import Conflict, InvalidInput, VersionConflict

_DIGITS = 32


def version_of(*parts: object) -> str:
    return digest(parts)


def digest(value: object) -> str:
    return sha256(compact_json(value).encode()).hexdigest()[:_DIGITS]


def check_version(expected: str | None, version: str | None) -> None:
    """Raise VersionConflict if a write expects another version than the stored version."""
    if expected is not None and expected != version:
        raise VersionConflict(
            "The stored text was changed or deleted since you read it. Nothing was written. Read "
            "it again, and decide whether you still want to write."
        )


class KeyStored(Conflict):
    """A key that must be new is already stored. Nothing was written."""


_NAME_DIGITS = 40
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
# The result is ASCII, so that lone surrogates can be encoded.
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class WriteKey:
    """An idempotency key of a write."""

    name: str  # a digest of the key's text
    digest: str  # a digest of the content to write under the key
    label: str  # the description of the key in error messages
    is_new: bool = False  # whether to raise `KeyStored` instead of returning the stored write


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A stored idempotency key; see `WriteKey`.

    Attributes:
        seq: Seq of the first message that was written under the key.
        end: `Head.end` after the append.
        total: `Head.total` after the append.
        at: The time of the append (UTC).
    """

    name: str
    digest: str
    seq: int
    end: int
    total: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Idempotency:
    """The idempotency keys and conditions of an append."""

    key: WriteKey | None = None  # the key of the whole append
    # The key of each draft, or None for a draft without a key. Empty if no draft has a key.
    ids: Sequence[WriteKey | None] = ()
    # The append is refused if the log has another end. None for any end.
    expected_end: int | None = None
    at: datetime = _NO_TIME
    # Keys that were stored before this time are ignored. None to use all keys.
    since: datetime | None = None

    @property
    def keys(self) -> list[WriteKey]:
        return [key for key in (self.key, *self.ids) if key is not None]

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(key.name for key in self.keys))

    def chosen(self, count: int, end: int, keys_by_name: Mapping[str, KeyRecord]) -> Chosen:
        """Return which of `count` drafts to append to a log that ends at `end`.

        Raises:
            Conflict: A key was used for other content, or the log has another end than expected.
            KeyStored: The key of the append must be new, but is stored.
        """
        stored = [keys_by_name[name] for name in self.names if name in keys_by_name]
        valid = {key.name: key for key in stored if self.since is None or key.at >= self.since}
        for key in self.keys:
            if key.name in valid and key.digest != valid[key.name].digest:
                raise Conflict(
                    f"{key.label} was used in this session for other content. Nothing was stored. "
                    "Give the new content its own key."
                )
        if self.key is not None and self.key.name in valid:
            if self.key.is_new:
                raise KeyStored(f"{self.key.label} is already stored.")
            return Chosen((), valid[self.key.name])
        first_uses: dict[str, WriteKey] = {}
        places: list[int] = []
        for place in range(count):
            own = self.ids[place] if self.ids else None
            if own is not None and own.name in first_uses:
                if own.digest != first_uses[own.name].digest:
                    raise Conflict(
                        f"{own.label} appears twice in the list, with different content. Nothing "
                        "was stored. Give each message its own id."
                    )
                continue
            if own is not None:
                first_uses[own.name] = own
                if own.name in valid:
                    continue
            places.append(place)
        newest = max(valid.values(), key=lambda key: key.end, default=None)
        if self.expected_end is not None and (newest is None or places):
            check_end(self.expected_end, end)
        return Chosen(tuple(places), None if places else newest)

    def records(self, places: Sequence[int], new: Sequence[Entry], head: Head) -> list[KeyRecord]:
        """Return the keys to store after the drafts at `places` were appended as `new` entries."""
        if not new:
            return []
        keys: list[tuple[WriteKey, int]] = []
        if self.key is not None:
            keys.append((self.key, new[0].seq))
        for place, entry in zip(places, new, strict=True):
            own = self.ids[place] if self.ids else None
            if own is not None:
                keys.append((own, entry.seq))
        return [
            KeyRecord(key.name, key.digest, seq, head.end, head.total, self.at) for key, seq in keys
        ]


class Append(NamedTuple):
    """One append to a session; see `SessionStore.append`."""

    session_id: str
    drafts: Sequence[Draft]
    user_id: str | None = None
    idempotency: Idempotency | None = None
    # Whether to refuse an existing session without an owner. If False, the user becomes the owner.
    own: bool = False
    within: float = 0.0  # the most seconds until a worker may process the session


class Chosen(NamedTuple):
    """The indexes of the drafts that are not stored yet, or the newest key if all are stored."""

    places: tuple[int, ...]
    before: KeyRecord | None


class Appended(NamedTuple):
    """The result of an append with keys or conditions.

    Attributes:
        places: The indexes of the drafts that were appended.
        before: The newest stored key, if all drafts had been appended before.
    """

    head: Head
    places: tuple[int, ...]
    before: KeyRecord | None = None


def key_of(key: WriteKey | str, messages: Sequence[Message]) -> WriteKey:
    if isinstance(key, WriteKey):
        return key
    if not isinstance(key, str) or not key.strip():
        raise InvalidInput(
            f"key is {quoted(key)}. Give a text that is unique to this write, such as a UUID."
        )
    return _key("key", key, messages, f"The key {quoted(key)}")


def key_of_message(message: Message) -> WriteKey | None:
    """Return the key of a message by its `id`, if that is an integer or a non-blank text."""
    value = (message.model_extra or {}).get("id")
    if type(value) not in (str, int) or not str(value).strip():
        return None
    return _key("id", str(value), [message], f"The message id {quoted(value)}")


def key_of_import(source_id: str, message: Message) -> WriteKey:
    """Return the key of an imported message, by its id at the source."""
    return _key("import", source_id, [message], f"The imported message {quoted(source_id)}")


def _key(kind: str, value: str, messages: Sequence[Message], label: str) -> WriteKey:
    """Return a key. Keys with the same text but another `kind` are different."""
    name = sha256(_canonical([kind, value]).encode()).hexdigest()[:_NAME_DIGITS]
    return WriteKey(name, digest_of(messages), label)


def check_end(expected_end: object, end: int | None = None) -> None:
    """Raise InvalidInput if `expected_end` is not a seq, or Conflict if the log's end differs."""
    if type(expected_end) is not int or not 0 <= expected_end <= MOST:
        raise InvalidInput(
            f"expected_end is {quoted(expected_end)}. Give the `end` of the head that you read "
            "last, or 0 for a session without messages."
        )
    if end is not None and end != expected_end:
        raise Conflict(
            f"The log ends at {end}, not at expected_end={expected_end}: another writer "
            "appended to it. Nothing was stored. Read the new messages, and decide whether you "
            "still want to write."
        )


def digest_of(messages: Sequence[Message]) -> str:
    """Return a digest of messages, except their `created_at`, which may differ in a retry."""
    excluded = {"created_at"}
    contents = [message.model_dump(exclude_unset=True, exclude=excluded) for message in messages]
    return sha256(_canonical(contents).encode()).hexdigest()


def in_order(keys: Iterable[KeyRecord]) -> list[KeyRecord]:
    return sorted(keys, key=lambda key: (key.seq, key.name))


def as_it_was(head: Head, key: KeyRecord) -> Head:
    """Return the head as it was directly after the append that used this key."""
    end, total = key.end, key.total
    if head.end <= end:
        return replace(head, end=end, total=total)
    summary = head.summary if head.summary is not None and head.summary.upto <= end else None
    return replace(
        head,
        end=end,
        total=total,
        expired=min(head.expired, end - 1),
        start=min(head.start, end),
        start_total=min(head.start_total, total),
        pinned=tuple(seq for seq in head.pinned if seq <= end),
        summary=summary,
        cursors={name: min(cursor, end) for name, cursor in head.cursors.items()},
    )
