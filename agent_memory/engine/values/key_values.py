"""`KeyValues`: values by namespace and key, independent of conversations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from agent_memory.core.filters import Where, check_where, matches
from agent_memory.core.limits import at_most, how_many, quoted, score_of, text_of
from agent_memory.core.query_text import query_text
from agent_memory.core.records import Record, Scope
from agent_memory.core.system_collections import VALUES
from agent_memory.core.timestamps import now_utc
from agent_memory.engine.values.items import (
    KeyValue,
    Namespace,
    Put,
    StoredValue,
    checked,
    checked_put,
    id_of,
    namespace_of,
    owner_of,
    record_of,
    refreshed,
)
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.keyed_records import put_with_session
from agent_memory.ltm_blocks.versions import Versioned, erase_owner, new_version
from agent_memory.models.embedders.base import Embedder
from agent_memory.stores.base import RecordStore, Store

_BLOCK = VALUES.name
_EVERYBODYS = "values"

Values = Versioned[list[StoredValue]]


class KeyValues:
    """A store of values by namespace and key. A value is plain JSON of any shape.

    `AgentMemory.values` and `User.values` return a store. A namespace is a tuple of labels, such as
    ("users", "ana", "orders"). A namespace exists while it has a value. A stored value is durable
    and immediately visible to every process. Threads may share one instance.

    Args:
        store: The store.
        scope: The owner of the values: a user, nobody, or a session without a user.
        embedder: Returns the embedder of texts.
        cache: The cache of values, shared by all handles of a memory.
        of_session: Whether the values belong to the session rather than to its user. Such values
            are deleted with the session. The first value creates the session if needed.
    """

    def __init__(
        self,
        store: Store,
        scope: Scope,
        embedder: Callable[[], Embedder],
        cache: Values,
        *,
        of_session: bool = False,
    ) -> None:
        self._store = store
        self._scope = scope
        self._embedder = embedder
        self._cache = cache
        owner_scope = scope
        if scope.user_id is None or of_session:
            owner_scope = Scope(None, scope.session_id)
        self._session_id = owner_scope.session_id or ""
        self._root = owner_scope.owner if owner_scope.is_somebodys else _EVERYBODYS

    def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: Any,
        *,
        ttl: float | timedelta | None = None,
        texts: Sequence[str] = (),
    ) -> KeyValue:
        """Store a value under a key, in place of the previous value.

        Args:
            namespace: The labels from the widest to the narrowest. () for the top.
            key: The name within the namespace.
            value: Plain JSON of any shape.
            ttl: The time until the value expires, in seconds or as a timedelta. None means never.
            texts: Texts that `search` compares with its query by meaning. Values without texts come
                last in a search with a query.

        Raises:
            InvalidInput: JSON would change the value, or a label, the key, a text or `ttl` is not
                valid. Nothing was stored.
            ModelError: The embedder failed. Nothing was stored.
            StoreError: The store failed.
        """
        return self.put_many([Put(namespace, key, value, ttl, texts)])[0]

    def put_many(self, puts: Iterable[Put]) -> list[KeyValue]:
        """Store several values atomically, like `put`, and return one value for each key.

        If two values have the same namespace and key, the last one is stored.
        """
        if not isinstance(puts, Iterable):
            raise InvalidInput(f"puts is {quoted(puts)}. Give a list of Put.")
        now, wanted = now_utc(), [checked_put(put) for put in puts]
        vectors = self._vectors(wanted)
        records: dict[str, Record] = {}
        for place, put in enumerate(wanted):
            name = id_of(owner_of(self._root, tuple(put.namespace)), put.key)
            before = records.get(name) or self._store.record(_BLOCK, name)
            if before is not None and StoredValue(before).is_over(now):
                before = None
            rows = vectors.get(place)
            records[name] = record_of(put, self._root, self._session_id, before, rows, now)
        self._write(list(records.values()))
        return [StoredValue(record).item() for record in records.values()]

    def get(self, namespace: Sequence[str], key: str, *, refresh: bool = False) -> KeyValue | None:
        """Return the value of a key. None if there is no value, or if it has expired.

        Args:
            namespace: The labels.
            key: The name within the namespace.
            refresh: Whether to restart the time until the value expires.
        """
        owner, now = owner_of(self._root, checked(namespace)), now_utc()
        record = self._store.record(_BLOCK, id_of(owner, text_of("key", key)))
        if record is None or StoredValue(record).is_over(now):
            return None
        if refresh and "ttl" in record.metadata:
            record = refreshed(record, now)
            self._write([record])
        return StoredValue(record).item()

    def delete(self, namespace: Sequence[str], key: str) -> None:
        """Delete a value. Idempotent."""
        owner = owner_of(self._root, checked(namespace))
        self._store.delete_records(_BLOCK, record_id=id_of(owner, text_of("key", key)))
        self._changed([owner])

    def clear(self, prefix: Sequence[str] = ()) -> None:
        """Delete all values whose namespaces begin with the prefix. Idempotent."""
        for owner in self._owners(checked(prefix, what="prefix")):
            erase_owner(self._store, _BLOCK, owner)

    def search(
        self,
        prefix: Sequence[str] = (),
        *,
        query: str | None = None,
        where: Where | None = None,
        limit: int = 10,
        offset: int = 0,
        least: float | None = None,
    ) -> list[KeyValue]:
        """Return the values in the namespaces that begin with a prefix.

        With a query, the values with the nearest texts come first. If `least` is not set, values
        without texts or with vectors of another embedder follow. Without a query, the values that
        were written last come first.

        Args:
            prefix: The first labels of the namespaces. () for all namespaces.
            query: The text to search for, by meaning.
            where: Conditions on fields of a value: a value that the field must equal, or a dict of
                comparisons ("$eq", "$ne", "$in", "$gt", "$gte", "$lt", "$lte"). A field may be a
                path: "author.name".
            limit: The maximum number of values.
            offset: The number of values to skip.
            least: With a query, the minimum cosine similarity.

        Raises:
            InvalidInput: A condition or a number is not valid.
            ModelError: The embedder failed.
        """
        wanted, least = check_where(where), score_of("least", least)
        limit, offset, now = how_many("limit", limit), how_many("offset", offset), now_utc()
        values = [
            value
            for owner in self._owners(checked(prefix, what="prefix"))
            for value in self._of(owner)
            if not value.is_over(now) and (not wanted or matches(value.value, wanted))
        ]
        if query is not None:
            scored = self._scored(text_of("query", query), values, least)
        else:
            values.sort(key=lambda value: value.record.created_at, reverse=True)
            scored = [(value, None) for value in values]
        return [value.item(score) for value, score in scored[offset : offset + limit]]

    def namespaces(
        self,
        prefix: Sequence[str] = (),
        *,
        suffix: Sequence[str] = (),
        depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        """Return the namespaces that hold values, in order of their labels.

        Args:
            prefix: The first labels. "*" matches any label.
            suffix: The last labels. "*" matches any label.
            depth: Cut longer namespaces to this number of labels, and leave out repetitions.
            limit: The maximum number of namespaces.
            offset: The number of namespaces to skip.
        """
        first, last = checked(prefix, what="prefix"), checked(suffix, what="suffix")
        depth = at_most("depth", depth)
        limit, offset = how_many("limit", limit), how_many("offset", offset)
        plain = first[: first.index("*")] if "*" in first else first
        every = (namespace_of(self._root, owner) for owner in self._owners(plain))
        namespaces = {
            labels[:depth]
            for labels in every
            if _begins(labels, first) and _begins(labels[::-1], last[::-1])
        }
        return sorted(namespaces)[offset : offset + limit]

    def sweep(self) -> int:
        """Delete expired values, and return their number. Other calls ignore expired values."""
        now, count = now_utc(), 0
        for owner in self._owners(()):
            over = [value.record.id for value in self._of(owner) if value.is_over(now)]
            for name in over:
                self._store.delete_records(_BLOCK, record_id=name)
            if over:
                self._changed([owner])
            count += len(over)
        return count

    def _owners(self, prefix: Namespace) -> list[str]:
        return self._store.owners(_BLOCK, owner_of(self._root, prefix))

    def _of(self, owner: str) -> list[StoredValue]:
        return self._cache.read(self._store, _BLOCK, owner)

    def _write(self, records: Sequence[Record]) -> None:
        if records:
            versions = map(new_version, sorted({record.owner for record in records}))
            both = [*records, *versions]
            put_with_session(self._store, _BLOCK, both, self._scope, self._session_id)

    def _changed(self, owners: Iterable[str]) -> None:
        self._store.put_records(_BLOCK, [new_version(owner) for owner in owners])

    def _vectors(self, puts: Sequence[Put]) -> dict[int, tuple[str, Any]]:
        """Return the embedder's name and the vectors for each value with texts, by its position."""
        texts = [text for put in puts for text in put.texts]
        if not texts:
            return {}
        embedder = self._embedder()
        rows, at, vectors = embedder.embed(texts), 0, {}
        for place, put in enumerate(puts):
            if put.texts:
                vectors[place] = embedder.name, rows[at : at + len(put.texts)]
                at += len(put.texts)
        return vectors

    def _scored(
        self, query: str, values: Sequence[StoredValue], least: float | None
    ) -> list[tuple[StoredValue, float | None]]:
        embedder = self._embedder()
        name, wanted = embedder.name, embedder.embed([query_text(query)])[0]
        scored: list[tuple[StoredValue, float | None]] = []
        for value in values:
            score = value.nearness(name, wanted)
            if least is None or (score is not None and score >= least):
                scored.append((value, score))
        return sorted(scored, key=lambda pair: math.inf if pair[1] is None else -pair[1])


def erase_values(store: RecordStore, scope: Scope) -> None:
    for owner in store.owners(_BLOCK, owner_of(scope.owner, ())):
        erase_owner(store, _BLOCK, owner)


def _begins(namespace: Namespace, wanted: Namespace) -> bool:
    return len(namespace) >= len(wanted) and all(
        pattern in ("*", label) for pattern, label in zip(wanted, namespace, strict=False)
    )
