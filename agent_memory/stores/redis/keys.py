"""The names of the keys that a namespace has in Redis.

What stands in braces decides the node of a cluster on which a key is: a session's keys are on one,
a block's on one, and the indexes of the namespace on one.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

_INDEXES = ("sessions", "users", "queue", "turns", "dues", "held", "layout")
_RECORDS = ("records", "spans", "owners", "origins")


class Keys:
    """The keys of one namespace.

    Args:
        namespace: Any text; what separates the parts of a key is escaped in it.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = quote(namespace, safe="")
        self.index = [f"agent_memory:{name}:{{{self._namespace}}}" for name in _INDEXES]
        self.layout = self.index[-1]
        self.touched = f"agent_memory:touched:{{{self._namespace}}}"
        self.sessions, self.users = self.index[:2]

    def head(self, session_id: str) -> str:
        """Hash: a session's head and lease."""
        return f"agent_memory:head:{{{self._namespace}:{session_id}}}"

    def log(self, session_id: str) -> str:
        """Hash: a session's entries by seq."""
        return f"agent_memory:log:{{{self._namespace}:{session_id}}}"

    def session(self, session_id: str) -> list[str]:
        """Head and log."""
        return [self.head(session_id), self.log(session_id)]

    def lock(self, name: str) -> str:
        """Hash: who holds a named lock, and until when."""
        return f"agent_memory:lock:{{{self._namespace}:{name}}}"

    def facts(self, block: str) -> list[str]:
        """What a block's facts are kept in."""
        return [self._of_block(f"fact_{name}", block) for name in _RECORDS]

    def vectors(self, block: str) -> list[str]:
        """What a block's vectors are kept in; see `vector_scripts`."""
        names = (*_RECORDS, "vectors", "versions", "numbers", "segments", "collection")
        return [self._of_block(f"vector_{name}", block) for name in names]

    def fence(self, block: str, session_id: str) -> str:
        """On the node of a block's records: from which holding of a session's lease on to take."""
        return f"{self._of_block('fence', block)}:{session_id}"

    def of_blocks(self, name: str) -> str:
        """A pattern for the keys that blocks have under this name; `quote` leaves no wildcards."""
        return f"agent_memory:{name}:{{{self._namespace}:*}}"

    def block_of(self, key: str) -> str:
        """The block that such a key belongs to."""
        return unquote(key.rpartition(":")[2].removesuffix("}"))

    def _of_block(self, name: str, block: str) -> str:
        return f"agent_memory:{name}:{{{self._namespace}:{quote(block, safe='')}}}"
