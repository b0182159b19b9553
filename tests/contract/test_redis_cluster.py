"""The contract suite on a private Redis Cluster, and what only a cluster does."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis.crc import key_slot

from agent_memory.errors import StoreUnavailable
from agent_memory.stores.redis.kernel import prefix_of
from agent_memory.stores.redis.store import RedisStore
from agent_memory.testing.contract import draft, record
from tests.contract.clock_contract import ClockContract
from tests.contract.long_log_contract import LongLogContract
from tests.contract.memory_outage_contract import MemoryOutageContract
from tests.servers.redis import RedisNodes, RedisServer
from tests.servers.redis_suite import RedisContract, begun, namespace

__all__ = ["namespace"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisNodes]:
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
    def away(self, cluster: RedisNodes) -> tuple[Any, str]:
        return cluster, cluster.url


def test_a_namespace_is_on_one_node(cluster: RedisNodes, namespace: str) -> None:
    """Wrong: keys that one script changes are on different nodes."""
    store = RedisStore(cluster.url, namespace)
    store.append("s", [draft("a")], "u")
    store.put_records("facts", [record("r")], replacing=("s", 1, 1))
    assert store.lock("l", "w", 60)
    keys = [key for node in store._server.nodes() for key in node.ask("KEYS", "*")]
    own = {key for key in keys if key.startswith(prefix_of(namespace).encode())}
    assert len(own) > 10
    assert len({key_slot(key) for key in own}) == 1
    assert len({key_slot(prefix_of(f"{n}").encode()) for n in range(99)}) > 90
    store.close()


def test_a_slot_that_moves(cluster: RedisNodes, namespace: str) -> None:
    """Wrong: moving a cluster's slot loses messages, or breaks updates until a reopening."""
    store = RedisStore(cluster.url, namespace)
    store.append("s", [draft("a")])
    slot = key_slot(prefix_of(namespace).encode())
    # asked from the cluster, because an earlier test may have moved it
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
    keys = [key.decode() for key in store._server.ask("KEYS", f"{prefix_of(namespace)}*")]
    tell(source, f'MIGRATE 127.0.0.1 {target.port} "" 0 5000 KEYS {" ".join(keys)}')
    assert store.append("s", [draft("c")]).end == 3
    for node in (target, source):
        tell(node, f"CLUSTER SETSLOT {slot} NODE {name(target)}")
    assert store.append("s", [draft("d")]).end == 4
    assert [e.message.text() for e in store.read("s")] == ["a", "b", "c", "d"]
    store.close()


def test_a_node_that_is_restarted(cluster: RedisNodes, namespace: str) -> None:
    """Wrong: the restart of one node fails updates for good."""
    stores = [RedisStore(cluster.url, f"{namespace}{n}") for n in range(12)]
    for store in stores:
        store.append("s", [draft("a")], "u")
    cluster.nodes[1].stop()
    failed = 0
    for store in stores:
        try:
            store.append("s", [draft("b")], "u")
        except StoreUnavailable:
            failed += 1
    assert failed > 0
    cluster.nodes[1].start()
    cluster.wait()
    lines = 0
    for store in stores:
        assert store.append("s", [draft("c")], "u").end == len(store.read("s"))
        lines += store.counts().entries
        store.close()
    assert lines == 36 - failed
