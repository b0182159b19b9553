"""The facts and vectors of a `RedisStore`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from agent_memory.core.records import Hit, Lease, Record
from agent_memory.errors import DimensionMismatch, LeaseLost
from agent_memory.stores.coding import mismatch
from agent_memory.stores.damage import undamaged
from agent_memory.stores.indexes import Indexes, search
from agent_memory.stores.log import LOST
from agent_memory.stores.redis.coding import (
    collection_value,
    record_of,
    record_span,
    record_value,
    stored_collection,
)
from agent_memory.stores.redis.index import Index
from agent_memory.stores.redis.index_scripts import Script
from agent_memory.stores.redis.keys import Keys
from agent_memory.stores.redis.reading import RecordReader
from agent_memory.stores.redis.record_scripts import (
    FACTS,
    FORGET_FACTS,
    FORGET_VECTORS,
    OWNERS,
    PUT_FACTS,
    PUT_VECTORS,
    SWAP_FACT,
)
from agent_memory.stores.redis.server import Argument, RedisServer

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Query
    from agent_memory.retrieval.index import TraitIndex

V = TypeVar("V")

_PAGE = 500
_TRIES = 3


class RedisRecords:
    """Facts and vectors on a Redis server."""

    def __init__(self, server: RedisServer, keys: Keys, index: Index) -> None:
        self._server = server
        self._keys = keys
        self._index = index
        self._opened: dict[str, tuple[int, str]] = {}
        self._indexes = Indexes()
        self._reader = RecordReader(server, keys)

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        where = replacing or ("", 0, 0)
        values = chain.from_iterable((r.id, record_span(r), record_value(r)) for r in records)
        self._write(PUT_FACTS, block, self._keys.facts(block), lease, *where, "", *values)

    def swap_record(self, block: str, record: Record, last: int | None) -> bool:
        value = (record.id, record_span(record), record_value(record))
        before = "" if last is None else str(last)
        given = ("", _version, "", 0, 0, before, *value)
        # sent once: a second one would take the first for another writer's
        return bool(self._server.run(SWAP_FACT, self._keys.facts(block), *given))

    def records(self, block: str, owner: str) -> list[Record]:
        found = self._server.run(FACTS, self._keys.facts(block), owner, repeat=True)
        return undamaged(found, lambda value: record_of(value, "fact", block))

    def record(self, block: str, record_id: str) -> Record | None:
        value = self._server.ask("HGET", self._keys.facts(block)[0], record_id)
        return None if value is None else record_of(value, "fact", block)

    def owners(self, block: str, beginning: str) -> list[str]:
        found = self._server.run(OWNERS, self._keys.facts(block), beginning, repeat=True)
        return [name.decode() for name in found]

    def delete_records(
        self,
        block: str,
        *,
        record_id: str | None = None,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        which = _which(owner, session_id, record_id, after)
        self._write(FORGET_FACTS, block, self._keys.facts(block), lease, *which)

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        given = (dimension, model)
        key, collection = self._keys.vectors(block)[-1], collection_value(given)
        self._server.ask("SETNX", key, collection)
        stored = self._server.ask("GET", key)
        if stored is not None and stored != collection.encode():
            raise DimensionMismatch(mismatch(block, stored_collection(stored), given))
        self._opened[block] = given

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        features: Features,
        *,
        lease: Lease | None = None,
    ) -> None:
        if not records:
            return
        from agent_memory.stores.blobs import blobs_of, checked

        blobs = blobs_of(records, features)
        opened = checked(block, self._opened.get(block), features)
        values: list[Argument] = []
        for record, blob in zip(records, blobs, strict=True):
            values += (record.id, record_span(record), record_value(record), blob)
        answer = self._write(
            PUT_VECTORS,
            block,
            self._keys.vectors(block),
            lease,
            "",
            0,
            0,
            collection_value(opened),
            *values,
        )
        if not isinstance(answer, list):
            raise DimensionMismatch(mismatch(block, stored_collection(answer), opened))
        if answer:
            owner, before, after = answer
            changed = {owner.decode(): (int(before), int(after))}
            self._indexes.extend(block, changed, [record.id for record in records], features)

    def search_vectors(self, block: str, owner: str, query: Query, depth: int) -> list[Hit]:

        def read(ids: list[str]) -> dict[str, Record]:
            key = self._keys.vectors(block)[0]
            values = [
                value for some in pages(ids) for value in self._server.ask("HMGET", key, *some)
            ]
            there = [value for value in values if value is not None]
            records = undamaged(there, lambda value: record_of(value, "vector", block))
            return {record.id: record for record in records if record.owner == owner}

        return search(block, self._index_of(block, owner), query, depth, read)

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        which = _which(owner, session_id, None, after)
        self._write(FORGET_VECTORS, block, self._keys.vectors(block), lease, *which)

    def clear_vectors(self, block: str) -> None:
        self._server.ask("UNLINK", *self._keys.vectors(block))

    def all_records(self) -> Iterator[tuple[str, Record]]:
        return self._reader.all_records()

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        return self._reader.vector_blocks()

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        return self._reader.all_vectors(block, session_id)

    def _index_of(self, block: str, owner: str) -> TraitIndex:
        """What an owner has; read in pages, so that the server answers others too."""
        keys = self._keys.vectors(block)
        blobs: dict[str, bytes] = {}
        version = self._version(keys, owner)
        for _ in range(_TRIES):
            kept = self._indexes.get((block, owner), version)
            if kept is not None:
                return kept
            blobs = {} if version is None else self._blobs(keys, owner)
            before, version = version, self._version(keys, owner)
            if version == before:
                break
        else:  # they change all the time: what was read serves this once
            version = None
        return self._indexes.load((block, owner), version, list(blobs), list(blobs.values()))

    def _version(self, keys: Sequence[str], owner: str) -> int | None:
        version = self._server.ask("HGET", keys[5], owner)
        return None if version is None else int(version)

    def _blobs(self, keys: Sequence[str], owner: str) -> dict[str, bytes]:
        members = self._server.ask("ZRANGEBYLEX", keys[2], f"[{owner}\0", f"({owner}\1")
        ids = [member.decode().rpartition("\0")[2] for member in members]
        blobs = [blob for some in pages(ids) for blob in self._server.ask("HMGET", keys[4], *some)]
        return {name: blob for name, blob in zip(ids, blobs, strict=True) if blob is not None}

    def _write(
        self,
        script: Script,
        block: str,
        keys: Sequence[str],
        lease: Lease | None,
        *values: Argument,
    ) -> Any:
        """Run a script that changes records, where a lease is given only while it is held."""
        check = ""
        if lease is not None:
            check, where = self._index.fence(lease, block)
            keys = [*keys, where]
        return held(self._server.run(script, keys, check, _version, *values, repeat=True), lease)


def _version() -> int:
    """Of a state of an owner's vectors. A script that is sent twice makes two: in between others
    may have written, and read what they wrote under the first."""
    return secrets.randbits(62)


def held(answer: Any, lease: Lease | None) -> Any:
    """The answer of a script that found its lease held.

    Raises:
        LeaseLost: It did not.
    """
    if answer == -1 and lease is not None:
        raise LeaseLost(LOST.format(lease.session_id))
    return answer


def pages(values: Sequence[V]) -> Iterator[Sequence[V]]:
    """So many of the values at a time that the server answers others in between."""
    for at in range(0, len(values), _PAGE):
        yield values[at : at + _PAGE]


def _which(
    owner: str | None, session_id: str | None, record_id: str | None, after: int
) -> tuple[Argument, ...]:
    if owner is None and session_id is None and record_id is None:
        raise ValueError("Name an owner, a session or a record.")
    return owner or "", session_id or "", record_id or "", after
