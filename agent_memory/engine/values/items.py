"""The values of `KeyValues`, and their records in the store."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from agent_memory.core.limits import UNREADABLE, is_storable, quoted, text_of
from agent_memory.core.records import Record, Scope
from agent_memory.core.timestamps import duration_of
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.keyed_records import plain_json

if TYPE_CHECKING:
    import numpy as np

Namespace = tuple[str, ...]

END = "\x1f"
_LONGEST = 320  # maximum characters of an owner in a store
_MOST_SECONDS = 36_500 * 86_400.0  # the longest time until a value expires


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A stored value.

    Attributes:
        namespace: The labels, from the widest to the narrowest.
        key: The name within the namespace.
        value: A copy of the value, as JSON reproduces it.
        created_at: The time at which the key was first written (UTC).
        updated_at: The time at which the key was last written (UTC).
        expires_at: The time at which the value expires. None means never.
        score: In a search with a query, the cosine similarity of the query and the value's nearest
            text. None otherwise.
    """

    namespace: Namespace
    key: str
    value: Any
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    score: float | None = None


class Put(NamedTuple):
    """A value to store. See `KeyValues.put`."""

    namespace: Sequence[str]
    key: str
    value: Any
    ttl: float | timedelta | None = None
    texts: Sequence[str] = ()


class StoredValue:
    """A decoded record of a value."""

    def __init__(self, record: Record) -> None:
        self.record = record

    @property
    def namespace(self) -> Namespace:
        return tuple(self.record.metadata["ns"])

    @property
    def expires_at(self) -> datetime | None:
        until = self.record.metadata.get("until")
        return None if until is None else datetime.fromisoformat(until)

    def is_over(self, now: datetime) -> bool:
        until = self.expires_at
        return until is not None and until <= now

    @cached_property
    def value(self) -> Any:
        """The value, shared. Do not change it or pass it to callers: `item` makes a copy."""
        return json.loads(self.record.metadata["value"])

    @cached_property
    def vectors(self) -> np.ndarray | None:
        """The vectors of the texts, one in each row. None if there are no texts."""
        import numpy as np

        encoded = self.record.metadata.get("vectors")
        if encoded is None:
            return None
        rows: np.ndarray = np.frombuffer(b64decode(encoded[1]), np.float32).reshape(encoded[2], -1)
        return rows

    def nearness(self, embedder: str, wanted: np.ndarray) -> float | None:
        """Return the similarity of the nearest text. None without vectors of this embedder."""
        vectors = self.vectors
        if vectors is None or vectors.shape[1] != len(wanted):
            return None
        is_of_embedder = self.record.metadata["vectors"][0] == embedder
        return float((vectors @ wanted).max()) if is_of_embedder else None

    def item(self, score: float | None = None) -> KeyValue:
        """Return a copy for the caller."""
        metadata = self.record.metadata
        created = datetime.fromisoformat(metadata["begun"])
        value = json.loads(metadata["value"])
        key, at = self.record.text, self.record.created_at
        return KeyValue(self.namespace, key, value, created, at, self.expires_at, score)


def record_of(
    put: Put,
    root: str,
    session_id: str,
    before: Record | None,
    vectors: tuple[str, np.ndarray] | None,
    now: datetime,
) -> Record:
    begun = now.isoformat() if before is None else before.metadata["begun"]
    value = plain_json(put.value, "The value")
    metadata: dict[str, Any] = {"ns": list(put.namespace), "value": value, "begun": begun}
    if put.ttl is not None:
        ttl = duration_of("ttl", put.ttl).total_seconds()
        metadata |= {"ttl": min(ttl, _MOST_SECONDS), "until": _until(ttl, now)}
    if vectors is not None and vectors[1].size:  # without an embedder, vectors are empty
        name, rows = vectors
        metadata["vectors"] = [name, b64encode(rows.tobytes()).decode(), len(rows)]
    owner = owner_of(root, tuple(put.namespace))
    return Record(id_of(owner, put.key), owner, session_id, 0, 0, put.key, (), now, metadata)


def restored(key: str, metadata: dict[str, Any], session_id: str, at: datetime) -> Record:
    """Return the record of a session's value from a snapshot.

    Raise `InvalidInput` if `KeyValues` could not have stored this record.
    """
    import numpy as np

    owner = Scope(None, session_id).owner
    before = Record("", owner, session_id, 0, 0, key, (), at, metadata)
    value = StoredValue(before)
    try:
        rows, vectors = value.vectors, None
        if rows is not None and np.isfinite(rows).all():
            vectors = text_of("embedder", metadata["vectors"][0]), rows
        put = checked_put(Put(metadata["ns"], key, value.value, metadata.get("ttl")))
        record = record_of(put, owner, session_id, before, vectors, at)
        if put.ttl is not None:  # `get` may have moved the end
            record.metadata["until"] = metadata["until"]
        times = [record.metadata[name] for name in ("begun", "until") if name in record.metadata]
        offsets = [datetime.fromisoformat(time).utcoffset() for time in times]
        if record.metadata == metadata and {*offsets} == {timedelta()}:
            return record
    except UNREADABLE as error:
        raise InvalidInput(f"its `metadata` is not that of a value: {error}") from None
    raise InvalidInput("its `metadata` is not that of a value.")


def refreshed(record: Record, now: datetime) -> Record:
    until = _until(record.metadata["ttl"], now)
    return replace(record, metadata={**record.metadata, "until": until})


def checked(namespace: Sequence[str], *, what: str = "namespace") -> Namespace:
    """Return valid labels as a tuple."""
    if not _is_list(namespace) or not all(
        isinstance(label, str) and label and is_storable(label) for label in namespace
    ):
        raise InvalidInput(
            f"{what} is {quoted(namespace)}. Give a tuple of labels, such as ('users', 'ana'). A "
            "label must not be empty, and must not contain NUL or lone surrogates."
        )
    return tuple(namespace)


def checked_put(value: object) -> Put:
    """Return a checked value to store, with a tuple of labels and a list of texts."""
    if not isinstance(value, Put):
        raise InvalidInput(f"{quoted(value)} is not a value to store. Give a Put.")
    namespace, key = checked(value.namespace), text_of("key", value.key)
    if not key:
        raise InvalidInput("The key is empty. Give the value a name.")
    texts = [value.texts] if isinstance(value.texts, str) else value.texts
    if not _is_list(texts):
        raise InvalidInput(f"texts is {quoted(texts)}. Give a list of texts.")
    return value._replace(namespace=namespace, key=key, texts=[text_of("texts", t) for t in texts])


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def owner_of(root: str, namespace: Namespace) -> str:
    owner = root + END + "".join(f"{_written(label)}{END}" for label in namespace)
    if len(owner) > _LONGEST:
        raise InvalidInput(
            f"The namespace {quoted(namespace)} is too long: at most {_LONGEST} characters are "
            "allowed, including the user's id. Move the last labels into the keys."
        )
    return owner


def is_owned(owner: str, root: str) -> bool:
    """Return whether `owner` is `root` itself, or the owner of a namespace below `root`."""
    return owner == root or owner.startswith(root + END)


def namespace_of(root: str, owner: str) -> Namespace:
    """Return the namespace of an owner. The inverse of `owner_of`."""
    return tuple(unquote(label) for label in owner[len(root) + 1 :].split(END)[:-1])


def id_of(owner: str, key: str) -> str:
    return record_id("values", owner, key)


def _written(label: str) -> str:
    """Return a label with separators escaped."""
    return label.replace("%", "%25").replace(END, quote(END))


def _until(ttl: float, now: datetime) -> str:
    return (now + timedelta(seconds=min(ttl, _MOST_SECONDS))).isoformat()
