"""The names of the blocks that a namespace has records of: elsewhere they are only part of keys."""

from __future__ import annotations

from agent_memory.stores.mongodb.connection import Table
from agent_memory.stores.mongodb.documents import key_of


class Blocks:
    """Names of blocks, which stay once they were noted.

    Args:
        namespace: Of the blocks.
        blocks: The collection of names.
    """

    def __init__(self, namespace: str, blocks: Table) -> None:
        self._namespace = namespace
        self._blocks = blocks
        self._noted: set[str] = set()

    def note(self, block: str) -> None:
        """Keep a block's name, before anything is written for it."""
        if block not in self._noted:
            key = key_of(self._namespace, block)
            self._blocks.insert([{"_id": key, "ns": self._namespace, "name": block}])
            self._noted.add(block)

    def names(self) -> list[str]:
        """All names, in order."""
        return sorted(doc["name"] for doc in self._blocks.all({"ns": self._namespace}))
