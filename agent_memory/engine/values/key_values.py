"""`KeyValues`: values by namespace and key, beside what conversations are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.core.asking import asked_in
from agent_memory.core.filters import Where, check_where, matches
from agent_memory.core.limits import at_most, how_many, quoted, score_of, text_of
from agent_memory.core.records import Record, Scope
from agent_memory.core.reserved import VALUES
from agent_memory.engine.values.items import (
    Kept,
    KeyValue,
    Namespace,
    Put,
    checked,
    checked_put,
    id_of,
    namespace_of,
    now_utc,
    owner_of,
    record_of,
    refreshed,
)
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.keyed_records import kept_with
from agent_memory.ltm_blocks.versions import Remembering, new_version, version_of, version_owner
from agent_memory.stores.base import RecordStore, Store

if TYPE_CHECKING:
    from agent_memory.models.embedders.base import Embedder

_BLOCK = VALUES.name
_EVERYBODYS = "values"

Cache = Remembering[list[Kept]]


class KeyValues:
    """Values by namespace and key: settings, states of an agent, whatever JSON gives back.

    `AgentMemory.values` and `User.values` give one. A namespace is a tuple of labels, such as
    ("users", "ana", "orders"); it begins with its first value, and ends with its last. What is put
    is durable, and seen by every process that asks from then on. Safe to share between threads.

    Args:
        store: Where they are kept.
        scope: Whose: a user's, nobody's, or a session's that belongs to nobody.
        embedder: Opens what gives texts a meaning.
        cache: What was read lately, shared by all handles of a memory.
        of_session: Whether they are the session's own, whosever it is. It begins with the first,
            and takes them along when it goes.
    """

    def __init__(
        self,
        store: Store,
        scope: Scope,
        embedder: Callable[[], Embedder],
        cache: Cache,
        *,
        of_session: bool = False,
    ) -> None:
        self._store = store
        self._scope = scope
        self._embedder = embedder
        self._cache = cache
        whose = scope
        if scope.user_id is None or of_session:
            whose = Scope(None, scope.session_id)
        self._session_id = whose.session_id or ""
        self._root = whose.owner if whose.is_somebodys else _EVERYBODYS

    def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: Any,
        *,
        ttl: float | None = None,
        texts: Sequence[str] = (),
    ) -> KeyValue:
        """Keep a value under a key, in place of the one that it had.

        Args:
            namespace: Where: labels from the widest to the narrowest; () for the top.
            key: Its name there.
            value: Plain JSON of any shape.
            ttl: Seconds until it goes; None for never.
            texts: By which a search for a meaning finds it; none for not at all.

        Returns:
            What is kept.

        Raises:
            InvalidInput: JSON would not give the value back exactly, or a label, the key or the
                time is not usable. Nothing was kept.
            ModelError: The embedder failed. Nothing was kept.
            StoreError: The store failed. Nothing was kept.
        """
        return self.put_many([Put(namespace, key, value, ttl, texts)])[0]

    def put_many(self, puts: Iterable[Put]) -> list[KeyValue]:
        """Keep many values, all of them or none; of one key the last. As `put`."""
        if not isinstance(puts, Iterable):
            raise InvalidInput(f"puts is {quoted(puts)}. Give a list of Put.")
        now, wanted = now_utc(), [checked_put(one) for one in puts]
        vectors = self._vectors(wanted)
        records: dict[str, Record] = {}
        for place, one in enumerate(wanted):
            name = id_of(owner_of(self._root, tuple(one.namespace)), one.key)
            before = records.get(name) or self._store.record(_BLOCK, name)
            if before is not None and Kept(before).is_over(now):
                before = None
            records[name] = record_of(
                one, self._root, self._session_id, before, vectors.get(place), now
            )
        self._write(list(records.values()))
        return [Kept(record).item() for record in records.values()]

    def get(self, namespace: Sequence[str], key: str, *, refresh: bool = False) -> KeyValue | None:
        """The value of a key; None where there is none, or its time is over.

        Args:
            namespace: Where.
            key: Its name.
            refresh: Whether its time begins anew.
        """
        where, now = checked(namespace), now_utc()
        found = self._store.record(_BLOCK, id_of(owner_of(self._root, where), text_of("key", key)))
        if found is None or Kept(found).is_over(now):
            return None
        if refresh and Kept(found).ttl is not None:
            found = refreshed(found, now)
            self._write([found])
        return Kept(found).item()

    def delete(self, namespace: Sequence[str], key: str) -> None:
        """Take a value away. Idempotent."""
        owner = owner_of(self._root, checked(namespace))
        self._store.delete_records(_BLOCK, record_id=id_of(owner, text_of("key", key)))
        self._changed([owner])

    def clear(self, prefix: Sequence[str] = ()) -> None:
        """Take all away whose namespaces begin so. Idempotent."""
        for owner in self._owners(checked(prefix, what="prefix")):
            self._store.delete_records(_BLOCK, owner=owner)
            self._store.delete_records(_BLOCK, owner=version_owner(owner))

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
        """Values whose namespaces begin so: with a query the nearest in meaning first, and then
        those without texts; else those written last.

        Args:
            prefix: Labels with which their namespaces begin, whole; () for all.
            query: What to look for, by meaning.
            where: For each field of a value what it must be: another value, or comparisons ("$eq",
                "$ne", "$in", "$gt", "$gte", "$lt", "$lte"). A field may be a path: "author.name".
            limit: At most so many.
            offset: So many of the first are left out.
            least: With a query, the least cosine.

        Raises:
            InvalidInput: A condition or a number is not usable.
            ModelError: The embedder failed.
        """
        wanted, least = check_where(where), score_of("least", least)
        limit, offset, now = how_many("limit", limit), how_many("offset", offset), now_utc()
        found = [
            kept
            for owner in self._owners(checked(prefix, what="prefix"))
            for kept in self._of(owner)
            if not kept.is_over(now) and (not wanted or matches(kept.value, wanted))
        ]
        if query is not None:
            scored = self._scored(text_of("query", query), found, least)
        else:
            found.sort(key=lambda kept: kept.record.created_at, reverse=True)
            scored = [(kept, None) for kept in found]
        return [kept.item(score) for kept, score in scored[offset : offset + limit]]

    def namespaces(
        self,
        prefix: Sequence[str] = (),
        *,
        suffix: Sequence[str] = (),
        depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        """Namespaces that hold something, in order of their labels.

        Args:
            prefix: Labels with which they begin; "*" for any one.
            suffix: Labels with which they end; "*" for any one.
            depth: Only so many labels of each are told, and each beginning once.
            limit: At most so many.
            offset: So many of the first are left out.
        """
        first, last = checked(prefix, what="prefix"), checked(suffix, what="suffix")
        depth = at_most("depth", depth)
        limit, offset = how_many("limit", limit), how_many("offset", offset)
        plain = first[: first.index("*")] if "*" in first else first
        found = (namespace_of(self._root, owner) for owner in self._owners(plain))
        told = {
            one[:depth] for one in found if _begins(one, first) and _begins(one[::-1], last[::-1])
        }
        return sorted(told)[offset : offset + limit]

    def sweep(self) -> int:
        """Take away what has no time left; it is not found any more as it is. How many that was."""
        now, count = now_utc(), 0
        for owner in self._owners(()):
            over = [kept.record.id for kept in self._of(owner) if kept.is_over(now)]
            for name in over:
                self._store.delete_records(_BLOCK, record_id=name)
            if over:
                self._changed([owner])
            count += len(over)
        return count

    def _owners(self, prefix: Namespace) -> list[str]:
        return self._store.owners(_BLOCK, owner_of(self._root, prefix))

    def _of(self, owner: str) -> list[Kept]:
        version = version_of(self._store, _BLOCK, owner)
        kept = self._cache.get(owner, version)
        if kept is None:
            kept = [Kept(record) for record in self._store.records(_BLOCK, owner)]
            self._cache.keep(owner, version, kept)
        return kept

    def _write(self, records: Sequence[Record]) -> None:
        def undo() -> None:
            for record in records:
                self._store.delete_records(_BLOCK, record_id=record.id)

        if records:
            versions = map(new_version, sorted({record.owner for record in records}))
            with kept_with(self._store, self._scope, self._session_id, undo):
                self._store.put_records(_BLOCK, [*records, *versions])

    def _changed(self, owners: Iterable[str]) -> None:
        self._store.put_records(_BLOCK, [new_version(owner) for owner in owners])

    def _vectors(self, puts: Sequence[Put]) -> dict[int, tuple[str, Any]]:
        """The vectors of each that has texts, by its place."""
        texts = [text for one in puts for text in one.texts]
        if not texts:
            return {}
        embedder = self._embedder()
        rows, at, found = embedder.embed(texts), 0, {}
        for place, one in enumerate(puts):
            if one.texts:
                found[place] = embedder.name, rows[at : at + len(one.texts)]
                at += len(one.texts)
        return found

    def _scored(
        self, query: str, found: Sequence[Kept], least: float | None
    ) -> list[tuple[Kept, float | None]]:
        embedder = self._embedder()
        name, wanted = embedder.name, embedder.embed([asked_in(query)])[0]
        scored: list[tuple[Kept, float | None]] = []
        bare: list[tuple[Kept, float | None]] = []
        for kept in found:
            if not kept.is_of(name, len(wanted)):
                bare.append((kept, None))
            elif (score := kept.nearness(wanted)) >= (-math.inf if least is None else least):
                scored.append((kept, score))
        scored.sort(key=lambda one: -(one[1] or 0.0))
        return scored if least is not None else [*scored, *bare]


def erase_values(store: RecordStore, scope: Scope) -> None:
    """Erase all values of a user."""
    for owner in store.owners(_BLOCK, owner_of(scope.owner, ())):
        store.delete_records(_BLOCK, owner=owner)
        store.delete_records(_BLOCK, owner=version_owner(owner))


def _begins(namespace: Namespace, wanted: Namespace) -> bool:
    return len(namespace) >= len(wanted) and all(
        one in ("*", label) for one, label in zip(wanted, namespace, strict=False)
    )
