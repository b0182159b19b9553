"""The facts of a `RedisStore`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

from agent_memory.core.records import Lease, Record
from agent_memory.errors import LeaseLost
from agent_memory.stores.damage import undamaged
from agent_memory.stores.log import LOST
from agent_memory.stores.redis.coding import record_of, record_span, record_value
from agent_memory.stores.redis.index import Index
from agent_memory.stores.redis.index_scripts import Script
from agent_memory.stores.redis.keys import Keys
from agent_memory.stores.redis.reading import RecordReader
from agent_memory.stores.redis.record_scripts import (
    FACTS,
    FORGET_FACTS,
    OWNERS,
    PUT_FACTS,
    SWAP_FACT,
)
from agent_memory.stores.redis.server import Argument, RedisServer

V = TypeVar("V")

_PAGE = 500


class RedisRecords:
    """Facts on a Redis server."""

    def __init__(self, server: RedisServer, keys: Keys, index: Index) -> None:
        self._server = server
        self._keys = keys
        self._index = index
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
        given = ("", "", 0, 0, before, *value)
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

    def all_records(self) -> Iterator[tuple[str, Record]]:
        return self._reader.all_records()

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
        return held(self._server.run(script, keys, check, *values, repeat=True), lease)


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
