"""A Redis Cluster as the store uses it: each command goes to the node that has its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_memory.errors import StoreError, StoreUnavailable
from agent_memory.stores.redis.driver import exceptions, key_slot
from agent_memory.stores.redis.server import Argument, Lost, RedisServer

_HOPS = 5
_SCRIPTS = ("EVAL", "EVALSHA")


class RedisCluster(RedisServer):
    """The nodes of a cluster behind one face.

    Where the slots are is asked once, and again when a node says that one has moved.

    Args:
        url: Names any of the nodes.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._url = url
        self._host = self.place.partition(",")[0].rpartition(":")[0]
        self._seed = RedisServer(url)
        self._known: dict[str, RedisServer] = {}
        self._slots: dict[int, str] = {}

    def nodes(self) -> list[RedisServer]:
        with self._translated_errors():
            addresses = set(self._learnt().values())
        return [self._node(address) for address in sorted(addresses)]

    def close(self) -> None:
        self._closed = True
        for node in (self._seed, *self._known.values()):
            node.close()

    def answers(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        self._check_open()
        slots = self._slots or self._learnt()
        answers: list[Any] = [None] * len(commands)
        left = {place: slots.get(_slot(command)) for place, command in enumerate(commands)}
        for hop in range(_HOPS):
            moved: dict[int, str | None] = {}
            for address in set(left.values()):
                places = [place for place in left if left[place] == address]
                some = [commands[place] for place in places]
                for place, answer in zip(places, self._at(address, some, hop), strict=True):
                    answers[place] = answer
                    if isinstance(answer, exceptions.AskError):
                        moved[place] = f"{answer.host or self._host}:{answer.port}"
                    if isinstance(answer, exceptions.MovedError):
                        self._slots = {}
            left = moved
        return answers

    def _at(
        self, address: str | None, commands: Sequence[Sequence[Argument]], hop: int
    ) -> list[Any]:
        if address is None:
            raise exceptions.ClusterDownError("CLUSTERDOWN A part of the keys has no node.")
        try:
            if not hop:
                return self._node(address).answers(commands)
            # a node that is about to get a slot answers for it only when asked so
            asked = [part for command in commands for part in (("ASKING",), command)]
            return self._node(address).answers(asked)[1::2]
        except (exceptions.ConnectionError, OSError, Lost):
            self._slots = {}  # another node may stand in for it by the next call
            raise

    def _node(self, address: str) -> RedisServer:
        node = self._known.get(address)
        if node is None:
            node = self._known.setdefault(address, RedisServer(self._url, address))
        return node

    def _learnt(self) -> dict[int, str]:
        told: Any = None
        for node in (self._seed, *self._known.values()):
            try:
                told = node.answers([("CLUSTER", "SLOTS")])[0]
                break
            except (exceptions.ConnectionError, OSError, Lost) as error:
                told = error
        if isinstance(told, Exception):
            raise told
        self._slots = {
            # a node that does not know its own name means the one that was asked
            slot: f"{primary[0].decode() or self._host}:{primary[1]}"
            for first, last, primary, *_ in told
            for slot in range(first, last + 1)
        }
        return self._slots


def _slot(command: Sequence[Argument]) -> int:
    key = command[3] if command[0] in _SCRIPTS else command[1]
    return key_slot(str(key).encode())


def connected(url: str) -> RedisServer:
    """The server that a URL names, or the cluster that it is a node of.

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
    return RedisCluster(url)
