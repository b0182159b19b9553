"""All records of a namespace in Redis, some at a time, so that the server answers others too."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal

from agent_memory.core.records import Record
from agent_memory.stores.damage import undamaged
from agent_memory.stores.redis.coding import record_of, stored_collection
from agent_memory.stores.redis.keys import Keys
from agent_memory.stores.redis.server import RedisServer

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

    def ids_of_vectors(self, block: str, session_id: str | None) -> Iterator[list[bytes]]:
        """The ids of a block's records with vectors in order of their owners, or of a session's."""
        _, _, owners, origins, *_ = self._keys.vectors(block)
        if session_id is None:
            return self._ids(owners, b"-", b"+")
        name = session_id.encode()
        return self._ids(origins, b"[%b\0" % name, b"(%b\1" % name)

    def ids_of_owner(self, block: str, owner: str) -> Iterator[list[bytes]]:
        """The ids of an owner's records with vectors."""
        name = owner.encode()
        return self._ids(self._keys.vectors(block)[2], b"[%b\0" % name, b"(%b\1" % name)

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
