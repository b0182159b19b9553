"""The indexes of a namespace, and the sessions' scripts with or without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_memory.core.records import Head, Lease
from agent_memory.errors import LeaseLost
from agent_memory.stores.coding import to_micros
from agent_memory.stores.log import LOST
from agent_memory.stores.redis.index_scripts import (
    BELONG,
    DROP,
    HOLD,
    LET_GO,
    LOOK_AWAY,
    REMIND,
    TOUCH,
    Script,
)
from agent_memory.stores.redis.keys import Keys
from agent_memory.stores.redis.scripts import FENCE, PUT_OFF, RAISE, SessionScript
from agent_memory.stores.redis.server import Argument, RedisServer

_FENCE_SECONDS = 600
"""How long a write may be on its way, its process stopped meanwhile, and still be refused."""


class Index:
    """On one server: the sessions' scripts keep the indexes, each in its one atomic step.

    Args:
        server: The server.
        keys: Of the namespace.

    Attributes:
        cluster: Whether the indexes are written in steps of their own.
    """

    cluster = False

    def __init__(self, server: RedisServer, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    def run(
        self, script: SessionScript, session_id: str, *values: Argument, repeat: bool = False
    ) -> Any:
        """As `RedisServer.run`, on a session."""
        found, keys = self._which(script, session_id)
        return self._server.run(found, keys, session_id, *values, repeat=repeat)

    def attempt(self, script: SessionScript, session_id: str, *values: Argument) -> Any:
        """As `RedisServer.attempt`, on a session."""
        found, keys = self._which(script, session_id)
        return self._server.attempt(found, keys, session_id, *values)

    def _which(self, script: SessionScript, session_id: str) -> tuple[Script, list[str]]:
        return script.whole, [*self._keys.session(session_id), *self._keys.index]

    def fence(self, lease: Lease, block: str) -> tuple[str, str]:
        """What a script on a block's records has to check, and in which key.

        Raises:
            LeaseLost: The lease is not held any more.
        """
        return f"holder:{lease.owner}", self._keys.head(lease.session_id)

    def appending(self, session_id: str, user_id: str | None, micros: int = 0) -> None:
        """Before an append."""

    def overtook(self, session_id: str, user_id: str | None, micros: int) -> None:
        """After an append to a session that somebody looked away from."""

    def moving(self, session_id: str, user_id: str | None, deleting: bool) -> None:
        """Before a head is written."""

    def deleting(self, session_id: str) -> None:
        """Before a session is deleted."""

    def deleted(self, session_id: str, user: bytes = b"", superseded: Sequence[bytes] = ()) -> None:
        """After a session was deleted, or was found not to exist."""

    def taken(self, session_id: str, micros: int, superseded: Sequence[bytes]) -> None:
        """After a lease was taken, before anybody relies on it."""

    def released(self, session_id: str) -> None:
        """After a lease was given back."""

    def schedule(self, head: Head, micros: Argument) -> bool:
        """As `SessionStore.schedule`."""
        return self._is_unchanged(head, micros)

    def _is_unchanged(self, head: Head, *rest: Argument) -> bool:
        values = (head.version, to_micros(head.created_at), head.end, *rest)
        return bool(self.run(PUT_OFF, head.session_id, *values, repeat=True) == 1)


class ClusterIndex(Index):
    """On a cluster: the indexes are on another node than most sessions.

    They are written before a session is, where they must not miss it, and after, where a session
    that is listed or due too long does no harm: whoever reads an index looks at the sessions too.
    """

    cluster = True

    def _which(self, script: SessionScript, session_id: str) -> tuple[Script, list[str]]:
        return script.cluster, self._keys.session(session_id)

    def fence(self, lease: Lease, block: str) -> tuple[str, str]:
        """See `Index.fence`.

        The lease is looked at now; who takes it over before the write comes raises the fence.
        """
        head = self._keys.head(lease.session_id)
        epoch = self._server.run(FENCE, [head], lease.owner, block, repeat=True)
        if epoch is None:
            raise LeaseLost(LOST.format(lease.session_id))
        return f"epoch:{epoch.decode()}", self._keys.fence(block, lease.session_id)

    def _supersede(self, session_id: str, superseded: Sequence[bytes]) -> None:
        for block in superseded[1:]:
            key = self._keys.fence(block.decode(), session_id)
            self._server.run(RAISE, [key], superseded[0], _FENCE_SECONDS, repeat=True)

    def appending(self, session_id: str, user_id: str | None, micros: int = 0) -> None:
        self._step(TOUCH, session_id, user_id or "", micros)

    def overtook(self, session_id: str, user_id: str | None, micros: int) -> None:
        self._step(REMIND, session_id, user_id or "", micros)

    def moving(self, session_id: str, user_id: str | None, deleting: bool) -> None:
        if deleting:
            self._step(REMIND, session_id, user_id or "")
        elif user_id is not None:
            self._step(BELONG, session_id, user_id)

    def deleting(self, session_id: str) -> None:
        self._step(REMIND, session_id, "")

    def deleted(self, session_id: str, user: bytes = b"", superseded: Sequence[bytes] = ()) -> None:
        self._supersede(session_id, superseded)
        self._step(DROP, session_id, user)

    def taken(self, session_id: str, micros: int, superseded: Sequence[bytes]) -> None:
        self._supersede(session_id, superseded)
        self._step(HOLD, session_id, "", micros)

    def released(self, session_id: str) -> None:
        self._step(LET_GO, session_id, "")

    def schedule(self, head: Head, micros: Argument) -> bool:
        """See `Index.schedule`.

        An append that comes before the second look is seen by it; one that comes after finds the
        mark that it leaves, and makes the session due again.
        """
        if not self._is_unchanged(head, ""):
            return False
        self._step(LOOK_AWAY, head.session_id, head.user_id or "", micros)
        if self._is_unchanged(head, "", "1"):
            return True
        self._step(REMIND, head.session_id, head.user_id or "")
        return False

    def _step(self, script: Script, *values: Argument) -> None:
        self._server.run(script, [self._keys.touched, *self._keys.index], *values, repeat=True)
