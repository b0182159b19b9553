"""Idempotency keys: what makes a write that is retried store nothing twice. Pure.

A key stands for a whole append, or for one message that carries an `id`. A store keeps it in the
append's own transaction, with a digest of what was said under it and the place where that stands.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from agent_memory.core.limits import MOST, quoted
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head
from agent_memory.errors import Conflict, InvalidInput

_NAME_DIGITS = 40
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
# ASCII, so that lone surrogates can be encoded; sorted, since the order of keys says nothing
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class WriteKey:
    """A key as a writer gives it.

    Attributes:
        name: A digest of the key.
        digest: A digest of what is written under it, as it is to be kept.
        told: What to call it in an error.
        matches: Whether a kept digest is of the same content, where that is not told by comparing
            them: whoever encrypts gives another one each time.
    """

    name: str
    digest: str
    told: str
    matches: Callable[[str], bool] | None = None

    def is_of(self, digest: str) -> bool:
        """Whether a kept digest is of the same content."""
        return self.digest == digest if self.matches is None else self.matches(digest)


@dataclass(frozen=True, slots=True)
class KeptKey:
    """A key as a store keeps it.

    Attributes:
        name: A digest of the key.
        digest: A digest of what was written under it.
        seq: Seq of the first message that it stands for.
        end: The log's end after the append.
        total: The running total there.
        at: When it was kept (UTC).
    """

    name: str
    digest: str
    seq: int
    end: int
    total: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Once:
    """On what terms to append.

    Attributes:
        key: Of the whole append.
        ids: The key of each draft, None for one without; empty where none has one.
        expected_end: The seq at which the log must end.
        at: The time, to be kept with the keys.
        since: Keys that were kept before are forgotten; None: those of any age are known.
    """

    key: WriteKey | None = None
    ids: Sequence[WriteKey | None] = ()
    expected_end: int | None = None
    at: datetime = _NO_TIME
    since: datetime | None = None

    @property
    def keys(self) -> list[WriteKey]:
        """All keys."""
        return [key for key in (self.key, *self.ids) if key is not None]

    @property
    def names(self) -> list[str]:
        """Their names, each once."""
        return list(dict.fromkeys(key.name for key in self.keys))

    def with_keys(self, change: Callable[[WriteKey], WriteKey]) -> Once:
        """The same terms with other keys."""
        key = None if self.key is None else change(self.key)
        ids = tuple(None if one is None else change(one) for one in self.ids)
        return replace(self, key=key, ids=ids)

    def chosen(self, count: int, end: int, known: Mapping[str, KeptKey]) -> Chosen:
        """What to append of so many drafts to a log that ends at `end`.

        Args:
            count: How many drafts there are.
            end: Where the log ends.
            known: What the store keeps of the names.

        Raises:
            Conflict: A key is known with other content, or the log ends elsewhere.
        """
        found = [known[name] for name in self.names if name in known]
        kept = {one.name: one for one in found if self.since is None or one.at >= self.since}
        for key in self.keys:
            if key.name in kept and not key.is_of(kept[key.name].digest):
                raise Conflict(
                    f"{key.told} was used in this session for other content. Nothing was stored; "
                    "give what is new a key of its own."
                )
        if self.key is not None and self.key.name in kept:
            return Chosen((), kept[self.key.name])
        said: dict[str, WriteKey] = {}
        places: list[int] = []
        for place in range(count):
            own = self.ids[place] if self.ids else None
            if own is not None and own.name in said:
                if own.digest != said[own.name].digest and not own.is_of(said[own.name].digest):
                    raise Conflict(
                        f"{own.told} stands twice in the list, with other content. Nothing was "
                        "stored; give each message an id of its own."
                    )
                continue
            if own is not None:
                said[own.name] = own
                if own.name in kept:
                    continue
            places.append(place)
        newest = max(kept.values(), key=lambda one: one.end, default=None)
        if self.expected_end is not None and (newest is None or places):
            check_end(self.expected_end, end)
        return Chosen(tuple(places), None if places else newest)

    def kept(self, places: Sequence[int], entries: Sequence[Entry], head: Head) -> list[KeptKey]:
        """What to keep for entries that are appended, in order of their seqs.

        Args:
            places: Which of the drafts they are of.
            entries: The entries.
            head: The head after them.
        """
        if not entries:
            return []
        found: list[tuple[WriteKey, int]] = []
        if self.key is not None:
            found.append((self.key, entries[0].seq))
        for place, entry in zip(places, entries, strict=True):
            own = self.ids[place] if self.ids else None
            if own is not None:
                found.append((own, entry.seq))
        return [
            KeptKey(key.name, key.digest, seq, head.end, head.total, self.at) for key, seq in found
        ]


class Append(NamedTuple):
    """What is to be appended to a session; see `SessionStore.append`.

    Attributes:
        session_id: The session.
        drafts: What is appended.
        user_id: Whose it is.
        once: On what terms; None for none.
        own: Refuse a session that is there and is nobody's, instead of giving it to the user.
        within: In how many seconds the session is to be looked at, at the latest.
    """

    session_id: str
    drafts: Sequence[Draft]
    user_id: str | None = None
    once: Once | None = None
    own: bool = False
    within: float = 0.0


class Chosen(NamedTuple):
    """What of an append is to be done.

    Attributes:
        places: Which of the drafts are to be appended.
        before: Where none is, because all were appended before: the newest of their keys.
    """

    places: tuple[int, ...]
    before: KeptKey | None


class Appended(NamedTuple):
    """What an append on terms has done.

    Attributes:
        head: The head as it is stored now.
        places: Which of the drafts were appended.
        before: Where none was, because all were appended before: the newest of their keys.
    """

    head: Head
    places: tuple[int, ...]
    before: KeptKey | None = None


def key_of(key: WriteKey | str, messages: Sequence[Message]) -> WriteKey:
    """The key of a whole append; itself, where it says already what is written under it.

    Raises:
        InvalidInput: It is no text, or a blank one.
    """
    if isinstance(key, WriteKey):
        return key
    if not isinstance(key, str) or not key.strip():
        raise InvalidInput(
            f"key is {quoted(key)}. Give a text that names this write and no other, such as a UUID."
        )
    return WriteKey(_name("key", key), digest_of(messages), f"The key {quoted(key)}")


def key_of_message(message: Message) -> WriteKey | None:
    """The key of a message that carries an `id`: a text that is not blank, or a number."""
    given = (message.model_extra or {}).get("id")
    if type(given) not in (str, int) or not str(given).strip():
        return None
    return WriteKey(
        _name("id", str(given)), digest_of([message]), f"The message id {quoted(given)}"
    )


def key_of_import(given: str, message: Message) -> WriteKey:
    """The key of a message that comes from elsewhere, by what it is known by there."""
    return WriteKey(
        _name("import", given), digest_of([message]), f"The imported message {quoted(given)}"
    )


def check_end(expected_end: object, end: int | None = None) -> None:
    """Refuse what no log ends at.

    Args:
        expected_end: Where the log is thought to end.
        end: Where it ends, if that is to be compared.

    Raises:
        InvalidInput: It is no number from 0 on.
        Conflict: The log ends elsewhere.
    """
    if type(expected_end) is not int or not 0 <= expected_end <= MOST:
        raise InvalidInput(
            f"expected_end is {quoted(expected_end)}. Give the `end` of the head that you know, 0 "
            "for a session that has no messages."
        )
    if end is not None and end != expected_end:
        raise Conflict(
            f"The log ends at {end}, not at expected_end={expected_end}: somebody else has "
            "written. Nothing was stored; read what is new, and decide again."
        )


def digest_of(messages: Sequence[Message]) -> str:
    """A digest of what messages say. When each was said is left out: a retry may say it anew."""
    given = [message.to_dict() for message in messages]
    for fields in given:
        fields.pop("created_at", None)
    return hashlib.sha256(_canonical(given).encode()).hexdigest()


def in_order(keys: Iterable[KeptKey]) -> list[KeptKey]:
    """Keys in order of their seqs."""
    return sorted(keys, key=lambda one: (one.seq, one.name))


def as_it_was(head: Head, kept: KeptKey) -> Head:
    """A head with the end and the total that it had after a key was used; nothing else in it lies
    past them."""
    end, total = kept.end, kept.total
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


def _name(kind: str, given: str) -> str:
    """Of two kinds, so that a key is never taken for a message's id."""
    text = _canonical([kind, given])
    return hashlib.sha256(text.encode()).hexdigest()[:_NAME_DIGITS]
