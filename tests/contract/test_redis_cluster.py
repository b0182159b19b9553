"""The contract suite on a Redis Cluster of the suite's own, and what only a cluster does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent_memory.errors import StoreUnavailable
from agent_memory.stores.base import Counts
from agent_memory.stores.coding import now_micros
from agent_memory.stores.redis.driver import key_slot
from agent_memory.stores.redis.index_scripts import LOOK_AWAY, REMIND, Script
from agent_memory.stores.redis.keys import Keys
from agent_memory.stores.redis.scripts import SessionScript
from agent_memory.stores.redis.server import Argument
from agent_memory.stores.redis.store import RedisStore
from agent_memory.testing.contract import draft
from tests.contract.clock_contract import ClockContract
from tests.contract.long_log_contract import LongLogContract
from tests.contract.memory_outage_contract import MemoryOutageContract, Stoppable
from tests.servers.redis import RedisNodes, RedisServer
from tests.servers.redis_suite import RedisContract, begun, namespace

__all__ = ["namespace"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisNodes]:
    """Three nodes."""
    nodes = begun(lambda binary: RedisNodes(tmp_path_factory.mktemp("cluster"), binary))
    yield nodes
    nodes.stop()


class TestCluster(RedisContract, ClockContract, LongLogContract):
    """`RedisStore` keeps the contract on a cluster."""

    by_server = True

    @pytest.fixture
    def url(self, cluster: RedisNodes) -> str:
        return cluster.url


class TestMemory(MemoryOutageContract):
    """On a cluster."""

    @pytest.fixture
    def away(self, cluster: RedisNodes) -> tuple[Stoppable, str]:
        return cluster, cluster.url


def test_a_writer_that_dies_between_two_nodes(cluster: RedisNodes, namespace: str) -> None:
    """Else: a session that was never begun is listed or due for ever."""
    store = RedisStore(cluster.url, namespace)
    keys = Keys(namespace)
    store._index.appending("ghost", "u")  # the session's own step never comes

    def indexed() -> list[int]:
        counted = [("ZCARD", key) for key in keys.index[:4]] + [("HLEN", keys.index[4])]
        return [int(count) for count in store._server.ask_many(counted)]

    assert indexed() == [1] * 5
    assert (store.due(), store.sessions(user_id="u"), store.counts()) == ([], [], Counts(0, 0))
    assert indexed() == [1] * 5  # for all that is known the step may still come
    store._server.ask("HSET", keys.touched, "ghost", "1")
    store._index._step(REMIND, "ghost", "u")
    assert store.due() == []
    assert indexed() == [0] * 5
    store.close()


def test_whoever_looks_away_while_an_append_is_under_way(
    cluster: RedisNodes, namespace: str
) -> None:
    """Else: a message whose writer was between two nodes is never absorbed."""
    store = RedisStore(cluster.url, namespace)
    assert store.schedule(store.append("s", [draft("a")]), None)
    assert store.due() == []
    due = store._server.ask("HGET", Keys(namespace).index[4], "s")
    assert 0 < int(due[:16]) - now_micros() < 31e6
    store.close()


def test_an_append_between_two_looks(
    cluster: RedisNodes, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else: who looks away says that nothing changed, though a message came meanwhile."""
    store, other = RedisStore(cluster.url, namespace), RedisStore(cluster.url, namespace)
    head = store.append("s", [draft("a")])
    step = store._index._step

    def overtaken(script: Script, *values: Argument) -> None:
        step(script, *values)
        if script is LOOK_AWAY:
            other.append("s", [draft("b")])

    monkeypatch.setattr(store._index, "_step", overtaken)
    assert store.schedule(head, None) is False
    assert [head.end for head in store.due()] == [2]
    store.close()
    other.close()


def test_an_append_that_lands_late(
    cluster: RedisNodes, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else: a message waits half a minute because its writer was slow between two nodes."""
    store, other = RedisStore(cluster.url, namespace), RedisStore(cluster.url, namespace)
    head = store.append("s", [draft("a")])
    attempt = store._index.attempt

    def late(script: SessionScript, session_id: str, *values: Argument) -> Any:
        assert other.schedule(head, None)
        return attempt(script, session_id, *values)

    monkeypatch.setattr(store._index, "attempt", late)
    store.append("s", [draft("b")])
    assert [head.end for head in other.due()] == [2]
    store.close()
    other.close()


def test_a_slot_that_moves(cluster: RedisNodes, namespace: str) -> None:
    """Else: a cluster that grows loses messages, or updates fail until they are opened anew."""
    store = RedisStore(cluster.url, namespace)
    store.append("s", [draft("a")])
    keys = Keys(namespace).session("s")
    slot = key_slot(keys[0].encode())
    # asked, not computed: an earlier test may have moved it, and the bounds are rounded
    held = f"CLUSTER COUNTKEYSINSLOT {slot}".encode()
    (source,) = (node for node in cluster.nodes if node.answer(held) != b":0\r\n")
    target = next(node for node in cluster.nodes if node is not source)

    def name(node: RedisServer) -> str:
        return node.answer(b"CLUSTER MYID").split(b"\r\n")[1].decode()

    def tell(node: RedisServer, command: str) -> None:
        assert node.answer(command.encode()).startswith(b"+OK"), command

    tell(target, f"CLUSTER SETSLOT {slot} IMPORTING {name(source)}")
    tell(source, f"CLUSTER SETSLOT {slot} MIGRATING {name(target)}")
    assert store.append("s", [draft("b")]).end == 2
    tell(source, f'MIGRATE 127.0.0.1 {target.port} "" 0 5000 KEYS {keys[0]} {keys[1]}')
    assert store.append("s", [draft("c")]).end == 3
    for node in (target, source):
        tell(node, f"CLUSTER SETSLOT {slot} NODE {name(target)}")
    assert store.append("s", [draft("d")]).end == 4
    assert [e.message.text() for e in store.read("s")] == ["a", "b", "c", "d"]
    store.close()


def test_a_node_that_is_restarted(cluster: RedisNodes, namespace: str) -> None:
    """Else: one node's restart ends all memories."""
    store = RedisStore(cluster.url, namespace)
    names = [f"s{n}" for n in range(12)]
    for name in names:
        store.append(name, [draft("a")], "u")
    cluster.nodes[1].stop()
    failed = 0
    for name in names:
        try:
            store.append(name, [draft("b")], "u")
        except StoreUnavailable:
            failed += 1
    assert failed
    cluster.nodes[1].start()
    cluster.wait()
    for name in names:
        head = store.append(name, [draft("c")], "u")
        assert head.end == len(store.read(name))
    assert store.counts() == Counts(12, 36 - failed)
    store.close()
