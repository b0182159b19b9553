"""The vectors of a `RedisStore`: records one by one, what they are found by in segments."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from agent_memory.core.records import Hit, Lease, Record
from agent_memory.errors import DimensionMismatch, StoreUnavailable
from agent_memory.stores.catalogs import Catalog, changed, grouped, packed
from agent_memory.stores.coding import mismatch
from agent_memory.stores.damage import undamaged
from agent_memory.stores.indexes import Indexes, LooseRecords, is_loose, search
from agent_memory.stores.mending import catalog_of
from agent_memory.stores.redis.coding import (
    collection_value,
    number,
    record_of,
    record_span,
    record_value,
    stored_collection,
)
from agent_memory.stores.redis.index import Index
from agent_memory.stores.redis.keys import Keys
from agent_memory.stores.redis.records import RedisRecords, pages
from agent_memory.stores.redis.server import Argument, RedisServer
from agent_memory.stores.redis.vector_scripts import CHANGE, FIND
from agent_memory.stores.seals import UNSEALED, SegmentSeals
from agent_memory.stores.walking import Walk

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.query import Query
    from agent_memory.retrieval.segments import Segment

_TRIES = 50
_AT_ONCE = 8  # segments, some MB each: the server answers others in between


class _Owned:
    """What an owner has, as `catalogs.SegmentSource`.

    Args:
        server: The server.
        keys: Of the block's vectors.
        owner: Who.
        ids: Gives the ids of the owner's records, some at a time.
        seals: Opens and seals the segments of a block, whose name is the first.
    """

    def __init__(
        self,
        server: RedisServer,
        keys: Sequence[str],
        owner: str,
        ids: Callable[[], Iterator[list[bytes]]],
        seals: tuple[str, SegmentSeals],
    ) -> None:
        self._block, self._seals = seals
        self._server = server
        self._versions, self._numbers, self._segments = keys[5:8]
        self._owner = owner
        self._ids = ids

    def catalog(self) -> tuple[int, str | None] | None:
        """See `SegmentSource.catalog`."""
        return _state_of(self._server.ask("HGET", self._versions, self._owner))

    def segments(self, names: Sequence[int]) -> Mapping[int, bytes]:
        """See `SegmentSource.segments`."""
        found: dict[int, bytes] = {}
        for at in range(0, len(names), _AT_ONCE):
            some = names[at : at + _AT_ONCE]
            fields = [f"{self._owner}\0{name}" for name in some]
            bodies = self._server.ask("HMGET", self._segments, *fields)
            found |= {n: body for n, body in zip(some, bodies, strict=True) if body is not None}
        opened = self._seals.opened
        return {n: opened(self._block, self._owner, str(n), body) for n, body in found.items()}

    def sealed(self, name: int, body: bytes) -> bytes:
        """A segment as it is to be stored."""
        return self._seals.sealed(self._block, self._owner, str(name), body)

    def names(self) -> Sequence[int]:
        """See `SegmentSource.names`."""
        own = f"{self._owner}\0".encode()
        fields = self._server.ask("HKEYS", self._segments)
        ends = [number(one.removeprefix(own)) for one in fields if one.startswith(own)]
        return [name for name in ends if name is not None]

    def numbers(self) -> Mapping[str, int]:
        """See `SegmentSource.numbers`."""
        found: dict[str, int] = {}
        for ids in self._ids():
            values = self._server.ask("HMGET", self._numbers, *ids)
            known = zip(ids, values, strict=True)
            found |= {one.decode(): number(value or b"0") or 0 for one, value in known}
        return found


@dataclass(slots=True)
class _Found:
    """What a change is about, as it stands.

    Attributes:
        gone: The numbers of each owner's records by id, of those that go or are written over.
        states: Of each owner.
    """

    gone: dict[str, dict[str, int]] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)


class RedisVectors(RedisRecords):
    """Facts and vectors on a Redis server."""

    def __init__(self, server: RedisServer, keys: Keys, index: Index) -> None:
        super().__init__(server, keys, index)
        self._opened: dict[str, tuple[int, str]] = {}
        self._indexes = Indexes()
        self._seals = UNSEALED

    def seal_segments(self, seals: SegmentSeals) -> None:
        self._seals = seals

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
        from agent_memory.stores.blobs import checked

        opened = checked(block, self._opened.get(block), features)
        groups = grouped(records, features)
        ids = list({record.id: None for record in records})
        asked: list[Argument] = ["", "", 0, len(groups), *groups, len(ids), *ids]
        self._change(block, lease, asked, groups, opened)

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        if owner is None and session_id is None:
            raise ValueError("Name an owner, a session or a record.")
        self._change(block, lease, (owner or "", session_id or "", after, 0, 0), {}, None)

    def _change(
        self,
        block: str,
        lease: Lease | None,
        asked: Sequence[Argument],
        groups: Mapping[str, tuple[list[Record], list[Segment]]],
        opened: tuple[int, str] | None,
    ) -> None:
        """Find what a change is about, and write what comes of it unless another was quicker."""
        keys = self._keys.vectors(block)
        for _ in range(_TRIES):
            found = _found(self._server.run(FIND, keys, "", *asked, repeat=True))
            owners: list[Argument] = []
            put: list[Argument] = []
            for owner, state in found.states.items():
                some, segments = groups.get(owner, ([], []))
                gone = {n: name for name, n in found.gone.get(owner, {}).items() if n}
                source = self._owned(block, owner)
                catalog = catalog_of(block, owner, source, _state_of(state))
                owners += _written(owner, state, catalog, gone, segments, source)
                for place, record in enumerate(some, catalog.next):
                    put += (record.id, record_span(record), record_value(record), place)
            drop = [name for numbers in found.gone.values() for name in numbers]
            if not (put or drop):
                owners = []
            values: list[Argument] = ["" if opened is None else collection_value(opened)]
            values += [len(found.states) if owners else 0, *owners]
            values += [len(drop), *drop, len(put) // 4, *put, 0]
            answer = self._write(CHANGE, block, keys, lease, *values)
            if isinstance(answer, bytes) and opened is not None:
                raise DimensionMismatch(mismatch(block, stored_collection(answer), opened))
            if answer == 1:
                return
        raise _busy(block)

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        source = self._owned(block, owner)

        def read(ids: Sequence[str]) -> dict[str, Record]:
            found = self._by_ids(block, owner, ids)
            return {record.id: record for _, record in found}

        try:
            index = self._indexes.follow((block, owner), source, read, self._seals)
        except LooseRecords:
            self._pack(block, owner)
            index = self._indexes.follow((block, owner), source, read, self._seals)
        return search(block, index, query, limit, read)

    def _owned(self, block: str, owner: str) -> _Owned:
        ids = partial(self._reader.ids_of_owner, block, owner)
        return _Owned(self._server, self._keys.vectors(block), owner, ids, (block, self._seals))

    def _by_ids(self, block: str, owner: str, ids: Sequence[str]) -> list[tuple[int, Record]]:
        """An owner's records by id, those that there are, each with its number."""
        keys = self._keys.vectors(block)
        rows: list[tuple[bytes, bytes, str]] = []
        for some in pages(ids):
            bodies, numbers = self._server.ask_many(
                [("HMGET", keys[0], *some), ("HMGET", keys[6], *some)]
            )
            rows += [row for row in zip(bodies, numbers, some, strict=True) if row[0] is not None]
        found = undamaged(
            rows,
            lambda row: (
                number(row[1] or b"0") or 0,
                record_of(row[0], "vector", block, row[2].encode()),
            ),
        )
        return [one for one in found if one[1].owner == owner]

    def clear_vectors(self, block: str) -> None:
        self._server.ask("UNLINK", *self._keys.vectors(block))

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        return self._reader.vector_blocks()

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        keys = self._keys.vectors(block)
        walks: dict[str, Walk] = {}
        for ids in self._reader.ids_of_vectors(block, session_id):
            spans = self._server.ask("HMGET", keys[1], *ids)
            owners: dict[str, list[str]] = {}
            for name, span in zip(ids, spans, strict=True):
                if span is not None:
                    owners.setdefault(_owner_in(span), []).append(name.decode())
            for owner, some in owners.items():
                if owner not in walks:
                    source = self._owned(block, owner)
                    if is_loose(source.catalog()):
                        self._pack(block, owner)
                    # one at a time: they stand in the order of their owners
                    walks = {owner: Walk(block, owner, source, partial(self._by_ids, block, owner))}
                yield from walks[owner].page(some)

    def _pack(self, block: str, owner: str) -> None:
        """Put records that an earlier release wrote into segments, some in each step; and write a
        catalog anew that cannot be read."""
        keys = self._keys.vectors(block)
        source = self._owned(block, owner)
        while is_loose(source.catalog(), damaged=True):
            for ids in self._reader.ids_of_owner(block, owner):
                while self._pack_some(block, owner, source, ids):
                    pass
            state = self._server.ask("HGET", keys[5], owner)
            stored = _state_of(state)
            if stored is not None:
                catalog = replace(catalog_of(block, owner, source, stored), loose=False)
                self._number(block, owner, state, catalog, [], [], source)

    def _pack_some(self, block: str, owner: str, source: _Owned, ids: Sequence[bytes]) -> bool:
        """Whether it is to be tried again: another was quicker."""
        keys = self._keys.vectors(block)
        state = self._server.ask("HGET", keys[5], owner)
        stored = _state_of(state)
        blobs = self._server.ask("HMGET", keys[4], *ids)
        there = [(name.decode(), blob) for name, blob in zip(ids, blobs, strict=True) if blob]
        if stored is None or not there:
            return False
        names, segments = packed([name for name, _ in there], [blob for _, blob in there])
        catalog = catalog_of(block, owner, source, stored)
        return not self._number(block, owner, state, catalog, names, segments, source)

    def _number(
        self,
        block: str,
        owner: str,
        state: bytes,
        catalog: Catalog,
        names: Sequence[str],
        segments: Sequence[Segment],
        source: _Owned,
    ) -> bool:
        """Give records numbers, and put what they are found by in segments; False where another
        was quicker."""
        written = _written(owner, state, catalog, {}, segments, source, len(names))
        numbered = [part for at, name in enumerate(names, catalog.next) for part in (name, at)]
        values = ["", 1, *written, 0, 0, len(names), *numbered]
        return bool(self._write(CHANGE, block, self._keys.vectors(block), None, *values) == 1)


def _busy(block: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"What a user has in block {block!r} is changed by others all the time. Try again."
    )


def _written(
    owner: str,
    state: bytes,
    catalog: Catalog,
    gone: Mapping[int, str],
    added: Sequence[Segment],
    source: _Owned,
    count: int = 0,
) -> list[Argument]:
    """What comes of a change for one owner, as `CHANGE` takes it."""
    change = changed(catalog, gone, added, source.segments, count=count)
    after = f"{secrets.randbits(62)} {change.catalog.text}"
    sealed = source.sealed
    new = [part for name, body in change.written.items() for part in (name, sealed(name, body))]
    dropped = (len(change.dropped), *change.dropped)
    return [owner, state, after, *dropped, len(change.written), *new]


def _found(answer: Any) -> _Found:
    rows, states = answer
    found = _Found(states={states[at].decode(): states[at + 1] for at in range(0, len(states), 2)})
    for at in range(0, len(rows), 3):
        name, owner = rows[at].decode(), rows[at + 1].decode()
        found.gone.setdefault(owner, {})[name] = number(rows[at + 2]) or 0
    return found


def _state_of(value: bytes | None) -> tuple[int, str | None] | None:
    """The version and the catalog of an owner; None for one who has nothing."""
    if not value:
        return None
    version, _, text = value.partition(b" ")
    known = number(version)
    if known is None:
        return 0, value.decode(errors="replace")  # which is no catalog either
    return known, text.decode(errors="replace") or None


def _owner_in(span: bytes) -> str:
    """The owner of a record, of which scripts know this; see `record_span`."""
    return span.split(b":", 3)[3].partition(b"\0")[0].decode()
