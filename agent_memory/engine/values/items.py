"""Values as they are kept: one record each. Pure."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from agent_memory.core.ids import is_storable
from agent_memory.core.limits import quoted, text_of
from agent_memory.core.records import Record, Scope
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.keyed_records import plain_json

if TYPE_CHECKING:
    import numpy as np

Namespace = tuple[str, ...]

_END = "\x1f"
_LONGEST = 320  # what stores take for an owner
_MOST_SECONDS = 1e10
_LONGEST_TTL = timedelta(days=36_500)


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A value that is kept.

    Attributes:
        namespace: Where: labels, from the widest to the narrowest.
        key: Its name there.
        value: What was kept, as JSON gives it back; a copy of one's own.
        created_at: When the key was first written (UTC).
        updated_at: When it was written last.
        expires_at: When it goes; None for never.
        score: Of a search by meaning, the cosine of the nearest of its texts; None without one.
    """

    namespace: Namespace
    key: str
    value: Any
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    score: float | None = None


class Put(NamedTuple):
    """A value to keep; see `KeyValues.put`."""

    namespace: Sequence[str]
    key: str
    value: Any
    ttl: float | None = None
    texts: Sequence[str] = ()


class Kept:
    """A record of a value, read.

    Args:
        record: The record.
    """

    def __init__(self, record: Record) -> None:
        self.record = record

    @property
    def namespace(self) -> Namespace:
        return tuple(self.record.metadata["ns"])

    @property
    def expires_at(self) -> datetime | None:
        until = self.record.metadata.get("until")
        return None if until is None else datetime.fromisoformat(until)

    @property
    def ttl(self) -> float | None:
        ttl: float | None = self.record.metadata.get("ttl")
        return ttl

    def is_over(self, now: datetime) -> bool:
        """Whether its time has come."""
        until = self.expires_at
        return until is not None and until <= now

    @cached_property
    def value(self) -> Any:
        """To be looked at, not given away."""
        return json.loads(self.record.metadata["value"])

    @cached_property
    def vectors(self) -> np.ndarray | None:
        """(texts, dimension) of what it is found by; None where it is not."""
        import numpy as np

        kept = self.record.metadata.get("vectors")
        if kept is None:
            return None
        found: np.ndarray = np.frombuffer(b64decode(kept[1]), np.float32).reshape(kept[2], -1)
        return found

    def is_of(self, embedder: str, dimension: int) -> bool:
        """Whether it has vectors that can be held against an embedder's."""
        vectors = self.vectors
        if vectors is None or vectors.shape[1] != dimension:
            return False
        return bool(self.record.metadata["vectors"][0] == embedder)

    def nearness(self, wanted: np.ndarray) -> float:
        """The cosine of the nearest of its texts."""
        assert self.vectors is not None
        return float((self.vectors @ wanted).max())

    def item(self, score: float | None = None) -> KeyValue:
        """It, for the caller to keep."""
        told = self.record.metadata
        created = datetime.fromisoformat(told["begun"])
        value = json.loads(told["value"])
        key, at = self.record.text, self.record.created_at
        return KeyValue(self.namespace, key, value, created, at, self.expires_at, score)


def record_of(
    given: Put,
    root: str,
    session_id: str,
    before: Record | None,
    vectors: tuple[str, np.ndarray] | None,
    now: datetime,
) -> Record:
    """The record that keeps a value.

    Args:
        given: The value.
        root: Whose it is.
        session_id: The session it goes with; empty for none.
        before: What the key had.
        vectors: Of its texts: the embedder's name, and (texts, dimension).
        now: The time.
    """
    begun = now.isoformat() if before is None else before.metadata["begun"]
    metadata: dict[str, Any] = {
        "ns": list(given.namespace),
        "value": plain_json(given.value, "The value"),
        "begun": begun,
    }
    if given.ttl is not None:
        until = _until(given.ttl, now)
        metadata |= {"ttl": min(given.ttl, _MOST_SECONDS), "until": until}
    if vectors is not None:
        name, rows = vectors
        metadata["vectors"] = [name, b64encode(rows.tobytes()).decode(), len(rows)]
    owner = owner_of(root, tuple(given.namespace))
    return Record(
        id_of(owner, given.key), owner, session_id, 0, 0, given.key, (), now, metadata
    )  # fmt: skip


def refreshed(record: Record, now: datetime) -> Record:
    """The same record, whose time begins anew."""
    until = _until(record.metadata["ttl"], now)
    return replace(record, metadata={**record.metadata, "until": until})


def checked(namespace: Sequence[str], *, what: str = "namespace") -> Namespace:
    """Labels, as a tuple.

    Raises:
        InvalidInput: It is no sequence of texts, or one of them is empty or can't be stored.
    """
    if not _is_list(namespace) or not all(
        isinstance(label, str) and label and is_storable(label) for label in namespace
    ):
        raise InvalidInput(
            f"{what} is {quoted(namespace)}. Give a tuple of labels, none empty and without NUL or "
            "lone surrogates, such as ('users', 'ana')."
        )
    return tuple(namespace)


def checked_put(given: object) -> Put:
    """What is to be kept, its labels and texts as they are kept.

    Raises:
        InvalidInput: A part of it is not usable.
    """
    if not isinstance(given, Put):
        raise InvalidInput(f"{quoted(given)} is nothing to keep. Give a Put.")
    namespace, key = checked(given.namespace), text_of("key", given.key)
    if not key:
        raise InvalidInput("The key is empty. Give the value a name.")
    texts = [given.texts] if isinstance(given.texts, str) else given.texts
    if not _is_list(texts):
        raise InvalidInput(f"texts is {quoted(texts)}. Give a list of texts.")
    return given._replace(namespace=namespace, key=key, texts=[text_of("texts", t) for t in texts])


def _is_list(given: object) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str | bytes | bytearray)


def owner_of(root: str, namespace: Namespace) -> str:
    """Under which name the values of a namespace are kept.

    Raises:
        InvalidInput: The name is too long for the stores.
    """
    owner = root + _END + "".join(f"{_written(label)}{_END}" for label in namespace)
    if len(owner) > _LONGEST:
        raise InvalidInput(
            f"The namespace {quoted(namespace)} is too long: at most {_LONGEST} characters are "
            "kept, the user's id among them. Move what tells items apart into their keys."
        )
    return owner


def own_root(session_id: str) -> str:
    """Whose the values are that go with a session, whosever the session is."""
    return Scope(None, session_id).owner


def is_owned(owner: str, root: str) -> bool:
    """Whether what is kept under one name is somebody's: theirs, or values of theirs."""
    return owner == root or owner.startswith(root + _END)


def namespace_of(root: str, owner: str) -> Namespace:
    """The namespace that `owner_of` named so."""
    return tuple(unquote(label) for label in owner[len(root) + 1 :].split(_END)[:-1])


def id_of(owner: str, key: str) -> str:
    """The id of the record that a key has."""
    return record_id("values", owner, key)


def _written(label: str) -> str:
    """A label without the marks that part labels; its beginning stays the beginning."""
    return label.replace("%", "%25").replace(_END, quote(_END))


def _until(ttl: float, now: datetime) -> str:
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < inf:
        raise InvalidInput(f"ttl is {quoted(ttl)}. Give seconds, above 0, or None for no end.")
    return (now + min(timedelta(seconds=min(ttl, _MOST_SECONDS)), _LONGEST_TTL)).isoformat()


def now_utc() -> datetime:
    """The time."""
    return datetime.now(UTC)
