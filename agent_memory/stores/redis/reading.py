"""All records of a namespace in Redis, some at a time, so that the server answers others too."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Literal

from agent_memory.core.records import Record
from agent_memory.stores.damage import undamaged
from agent_memory.stores.redis.coding import record_of, stored_collection
from agent_memory.stores.redis.keys import Keys
from agent_memory.stores.redis.server import RedisServer

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features

_PAGE = 200
_SCANNED = 1000


class RecordReader:
    """Reads what no index leads to: which blocks there are is seen from the names of keys.

    Args:
        server: The server.
        keys: Of the namespace.
    """

    def __init__(self, server: RedisServer, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    def all_records(self) -> Iterator[tuple[str, Record]]:
        """See `RecordStore.all_records`."""
        for block in self._blocks("fact_records"):
            records, _, owners, _ = self._keys.facts(block)
            for ids in self._ids(owners, b"-", b"+"):
                values = zip(ids, self._server.ask("HMGET", records, *ids), strict=True)
                found = [pair for pair in values if pair[1] is not None]
                decode = partial(_record_of, kind="fact", block=block)
                yield from ((block, record) for record in undamaged(found, decode))

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        """See `VectorStore.vector_blocks`."""
        blocks = self._blocks("vector_collection")
        stored = self._server.ask_many([("GET", self._keys.vectors(name)[-1]) for name in blocks])
        return {
            name: stored_collection(one)
            for name, one in zip(blocks, stored, strict=True)
            if one is not None
        }

    def all_vectors(
        self, block: str, session_id: str | None
    ) -> Iterator[tuple[list[Record], Features]]:
        """See `VectorStore.all_vectors`."""
        from agent_memory.stores.blobs import with_features

        records, _, owners, origins, vectors, *_ = self._keys.vectors(block)
        index, first, last = owners, b"-", b"+"
        if session_id is not None:
            index, name = origins, session_id.encode()
            first, last = b"[%b\0" % name, b"(%b\1" % name
        for ids in self._ids(index, first, last):
            values, blobs = self._server.ask_many(
                [("HMGET", records, *ids), ("HMGET", vectors, *ids)]
            )
            found = [
                one
                for one in zip(ids, values, blobs, strict=True)
                if one[1] is not None and one[2] is not None
            ]
            yield from with_features(
                block,
                undamaged(found, lambda one: (_record_of(one[:2], "vector", block), one[2])),
            )

    def _ids(self, index: str, first: bytes, last: bytes) -> Iterator[list[bytes]]:
        """What the members of an index of records end with, a page at a time."""
        while members := self._server.ask("ZRANGEBYLEX", index, first, last, "LIMIT", 0, _PAGE):
            yield [member.rpartition(b"\0")[2] for member in members]
            first = b"(" + members[-1]

    def _blocks(self, kind: str) -> list[str]:
        """Of all blocks that have such a key; on a cluster each node has some."""
        names: set[str] = set()
        for node in self._server.nodes():
            cursor = b"0"
            while True:
                pattern = self._keys.of_blocks(kind)
                answer = node.ask("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED)
                cursor, found = answer
                names |= {self._keys.block_of(key.decode()) for key in found}
                if cursor == b"0":
                    break
        return sorted(names)


def _record_of(pair: tuple[bytes, bytes], kind: Literal["fact", "vector"], block: str) -> Record:
    return record_of(pair[1], kind, block, pair[0])
