"""A Redis Cluster as the store uses it: all keys of a namespace are on one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_memory.errors import StoreError, StoreUnavailable
from agent_memory.stores.redis.driver import exceptions, key_slot
from agent_memory.stores.redis.server import Argument, Lost, RedisServer

_HOPS = 5


class RedisCluster(RedisServer):
    """The node of a cluster that has a namespace.

    Which one it is is asked once, and again when a node says that the slot has moved.

    Args:
        url: Names any of the nodes.
        prefix: The hash slot of the namespace's keys.
    """

    def __init__(self, url: str, prefix: str) -> None:
        super().__init__(url)
        self._url = url
        self._slot = key_slot(prefix.encode())
        self._host = self.place.partition(",")[0].rpartition(":")[0]
        self._seed = RedisServer(url)
        self._known: dict[str, RedisServer] = {}
        self._address: str | None = None

    def nodes(self) -> list[RedisServer]:
        with self._translated_errors():
            return [self._node(address) for address in sorted({*self._slots().values()})]

    def close(self) -> None:
        self._closed = True
        for node in (self._seed, *self._known.values()):
            node.close()

    def answers(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        self._check_open()
        address = self._address or self._learnt()
        answers = self._at(address, commands, asking=False)
        for _ in range(_HOPS):
            moved = [n for n, one in enumerate(answers) if isinstance(one, exceptions.AskError)]
            if not moved:
                break
            to = answers[moved[0]]
            if isinstance(to, exceptions.MovedError):
                self._address = None
            address = f"{to.host or self._host}:{to.port}"
            some = self._at(address, [commands[n] for n in moved], asking=True)
            for n, one in zip(moved, some, strict=True):
                answers[n] = one
        return answers

    def _at(
        self, address: str, commands: Sequence[Sequence[Argument]], *, asking: bool
    ) -> list[Any]:
        try:
            if not asking:
                return self._node(address).answers(commands)
            # a node that is about to get a slot answers for it only when asked so
            asked = [part for command in commands for part in (("ASKING",), command)]
            return self._node(address).answers(asked)[1::2]
        except (exceptions.ConnectionError, OSError, Lost):
            self._address = None  # another node may stand in for it by the next call
            raise

    def _node(self, address: str) -> RedisServer:
        node = self._known.get(address)
        if node is None:
            node = self._known.setdefault(address, RedisServer(self._url, address))
        return node

    def _learnt(self) -> str:
        self._address = self._slots().get(self._slot)
        if self._address is None:
            raise exceptions.ClusterDownError("CLUSTERDOWN A part of the keys has no node.")
        return self._address

    def _slots(self) -> dict[int, str]:
        """The addresses of the primaries, by slot; only one slot of those that others have."""
        told: Any = None
        for node in (self._seed, *self._known.values()):
            try:
                told = node.answers([("CLUSTER", "SLOTS")])[0]
                break
            except (exceptions.ConnectionError, OSError, Lost) as error:
                told = error
        if isinstance(told, Exception):
            raise told
        found: dict[int, str] = {}
        for first, last, primary, *_ in told:
            # a node that does not know its own name means the one that was asked
            address = f"{primary[0].decode() or self._host}:{primary[1]}"
            found[self._slot if first <= self._slot <= last else first] = address
        return found


def connected(url: str, prefix: str) -> RedisServer:
    """The server that a URL names, or the cluster that it is a node of.

    Args:
        url: The URL.
        prefix: The hash slot of the namespace's keys.

    Raises:
        StoreUnavailable: It cannot be reached, or refuses.
    """
    server = RedisServer(url)
    try:
        told = server.ask("INFO", "cluster")
    except StoreError as error:
        forbidden = isinstance(error.__cause__, exceptions.NoPermissionError)
        if isinstance(error, StoreUnavailable) and not forbidden:
            raise
        return server  # it does not tell: then it is none
    if b"cluster_enabled:1" not in told:
        return server
    server.close()
    return RedisCluster(url, prefix)
