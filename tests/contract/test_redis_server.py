"""A Redis server that is down, restarts, is full or refuses, and a private Redis Cluster."""

import logging
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from redis.crc import key_slot

from agent_memory.core.records import Lease
from agent_memory.errors import ConfigError, StoreUnavailable, UnknownStore
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.query import Query
from agent_memory.stores.redis import redis_options, redis_place
from agent_memory.stores.redis import server as redis_server
from agent_memory.stores.redis.kernel import RedisStore, prefix_of
from agent_memory.testing.contract import draft, entries, ranked, record, stored, together
from tests.contract.clock_contract import ClockContract
from tests.contract.long_log_contract import LongLogContract
from tests.contract.memory_outage_contract import MemoryOutageContract
from tests.servers.process import free_port
from tests.servers.redis import RedisNodes, RedisServer
from tests.servers.redis_suite import RedisContract, Start, begun, namespace, server, start, store
from tests.servers.sql import hides, line_to

__all__ = ["namespace", "server", "start", "store"]


def test_a_redis_store_reconnects_after_a_restart(server: RedisServer, store: RedisStore) -> None:
    """Wrong: after a restart the store must be reopened, or a message is lost or duplicated."""
    store.append("s", [draft("a")], "u")
    for again, end in ((server.restart, 2), (lambda: (server.kill(), server.start()), 3)):
        again()
        assert store.append("s", [draft("more")]).end == end
        again()
        assert store.lease("s", "w", 60) is True
        head = stored(store)
        again()
        assert store.move(replace(head, start=1), lease=Lease("s", "w")) is not None
        again()
        store.put_records("facts", [record(f"r{end}")], lease=Lease("s", "w"))
        store.release("s", "w")
    assert [e.message.content for e in store.read("s")] == ["a", "more", "more"]
    assert [r.id for r in store.records("facts", "user:a")] == ["r2", "r3"]


class TestMemory(MemoryOutageContract):
    """On Redis."""

    @pytest.fixture
    def away(self, start: Start) -> tuple[Any, str]:
        server = start("--requirepass", "hunter2", user=":hunter2@")
        return server, server.url


def test_a_call_to_a_hanging_server_raises_an_error_in_time(
    server: RedisServer, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: an update waits forever, or the next call reads the previous reply."""
    monkeypatch.setattr(redis_server, "CALL_SECONDS", 0.2)
    store.append("s", [draft("a")])
    with server.paused():
        with pytest.raises(StoreUnavailable, match="in time"):
            store.head("s")
        with pytest.raises(StoreUnavailable, match="may have succeeded"):
            store.append("s", [draft("late")])
    assert stored(store).session_id == "s"
    ends = {store.append("s", [draft("b")]).end, len(store.read("s"))}
    assert ends in ({2}, {3})


def test_calls_wait_for_a_connection(server: RedisServer, store: RedisStore) -> None:
    """Wrong: calls fail because the server permits fewer connections than they could use."""
    store._server.ask("CONFIG", "SET", "maxclients", "1")
    together([partial(store.append, "s", [draft(f"{n}")]) for n in range(24)])
    assert stored(store).end == 24


def test_a_failover_ends_the_connections_to_the_old_primary(start: Start) -> None:
    """Wrong: after a failover, all writes go to the demoted server until the process ends."""
    old, new = start(), start("--appendonly", "no")
    with line_to(old) as line:
        store = RedisStore(line.url)
        together([partial(store.head, "s")] * 8)
        old.answer(f"REPLICAOF 127.0.0.1 {free_port()}".encode())
        line.target = new.port
        with pytest.raises(StoreUnavailable, match="accepts no writes"):
            store.append("s", [draft("a")])
        together([partial(store.append, "s", [draft("b")])] * 8)
        assert stored(store).end == 8
        store.close()


def test_a_server_out_of_memory_refuses_writes_but_not_deletions(store: RedisStore) -> None:
    """Wrong: a full server stores part of a write, or refuses deletions."""
    store.open_vectors("v", 2, "m")
    vector = Features.of_vectors(np.array([[1.0, 0.0]], dtype=np.float32))
    query = Query(vector.meaning[0])
    for name in ("s", "t", "r"):
        head = store.append(name, [draft("a"), draft("b")], "u")
        store.put_records("facts", [record(f"r{name}", session_id=name)])
        store.put_vectors("v", [record(f"v{name}", session_id=name)], vector)
    assert store.lease("t", "w", 60)

    def everything() -> object:
        found = ranked(store.search_vectors("v", "user:a", query, 9))
        return store.sessions(), store.read("r"), store.records("facts", "user:a"), found

    before, waiting = everything(), store.due()
    writes: list[Callable[[], object]] = [
        lambda: store.append("r", [draft("c")]),
        lambda: store.append("new", [draft("c")], "u"),
        lambda: store.rewrite(head, 1),
        lambda: store.rewrite(stored(store, "r"), 1, entries(2, 9, "x" * 9)),
        lambda: store.rewrite(replace(head, session_id="begun", version=0), 0, entries(1, 9)),
        lambda: store.schedule(stored(store, "r"), 60),
        lambda: store.lease("r", "w", 60),
        lambda: store.lock("r", "w", 60),
        lambda: store.put_records("facts", [record("new")], replacing=("r", 1, 1)),
        lambda: store.put_vectors("v", [record("new")], vector),
    ]
    store._server.ask("CONFIG", "SET", "maxmemory", "1")
    for write in writes:
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            write()
    assert everything() == before
    assert store.due() == waiting
    store.delete_records("facts", session_id="s")
    store.delete_vectors("v", session_id="s")
    store.delete("s")
    store._server.ask("CONFIG", "SET", "maxmemory", "0")
    assert [head.session_id for head in store.due()] == ["r"]
    store.release("t", "w")
    assert [head.session_id for head in store.due()] == ["t", "r"]
    assert [r.id for r in store.records("facts", "user:a")] == ["rr", "rt"]
    assert len(store.search_vectors("v", "user:a", query, 9)) == 2
    for write in writes:
        write()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://:hunter2@127.0.0.1:{port}/0", "user or password"),
        ("redis://127.0.0.1:{port}/0", "user or password"),
        ("redis://guest:hunter2@127.0.0.1:{port}/0", "user or password"),
        ("redis://reader:hunter2@127.0.0.1:{port}/0", "rights"),
        ("redis://:hunter%2F3@127.0.0.1:{port}/99", "number"),
    ],
)
def test_a_refused_redis_login_does_not_show_the_password(
    start: Start, url: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong: a refused login raises a driver's error, or logs the password."""
    caplog.set_level(logging.DEBUG)
    server = start("--requirepass", "hunter/3", user=":hunter%2F3@")
    store = RedisStore(server.url)
    store.append("s", [draft("a")])
    assert "hunter" not in repr(store) + repr(store._server)
    store._server.ask("ACL", "SETUSER", "reader", "on", ">hunter2", "~*", "+@connection")
    with pytest.raises(StoreUnavailable, match=says) as caught:
        RedisStore(url.format(port=server.port))
    assert "`store`" in str(caught.value)
    assert hides(caught.value, "hunter")
    assert "hunter" not in caplog.text
    store.close()


def test_named_permissions_suffice(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: the permissions that the error asks for are not sufficient."""
    admin = RedisStore(server.url)
    rules = ("~agent_memory:*", "+@all", "-@dangerous", "+info")
    admin._server.ask("ACL", "SETUSER", "memory", "on", ">hunter2", *rules)
    store = RedisStore(f"redis://memory:hunter2@127.0.0.1:{server.port}/0", "a space")
    store.open_vectors("v", 2, "m")
    head = store.append("s", [draft("a"), draft("b")], "u")
    assert store.lease("s", "w", 60)
    store.put_records("facts", [record("r")], replacing=("s", 1, 1), lease=Lease("s", "w"))
    assert store.rewrite(head, 1, lease=Lease("s", "w")) is not None
    store.schedule_all()
    store.release("s", "w")
    assert store.lock("l", "w", 60)
    store.unlock("l", "w")
    assert [head.end for head in store.due()] == [1]
    assert len(store.sessions(user_id="u")) == store.counts().sessions == 1
    store.clear_vectors("v")
    store.delete("s")
    assert "does not show" in store.durability_note()
    store.secure_erase()
    assert "may stay in the server's files" in caplog.text
    store.close()
    admin.close()


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis:///0",
        "redis://host/notes",
        "redis://host/0?timeout=3",
        "redis://:hun/ter2@host/0",
        "redis://:hun#ter2@host/0",
        "redis://:hunter2@host:port/0",
        "redis://host:70000/0",
        "unix://",
        "unix://host/path",
        "unix:///redis.sock?db=x",
    ],
)
def test_an_invalid_redis_url_is_refused_without_the_password(url: str) -> None:
    """Wrong: an invalid URL leads to another database, or its error shows the password."""
    with pytest.raises(UnknownStore, match="`store`") as caught:
        redis_options(url)
    assert hides(caught.value, "hun", "ter2")


def test_urls_with_tls_a_socket_or_a_user_are_accepted() -> None:
    """Wrong: a URL with TLS, a socket or a user is refused."""
    assert redis_place("redis://u:p%40ss@db.example:7000/3") == "db.example:7000, database 3"
    assert redis_options("redis://u:p%40ss@db.example:7000/3")["password"] == "p@ss"
    assert redis_place("rediss://db.example") == "db.example:6379, database 0"
    assert redis_place("unix:///run/redis.sock?db=2") == "/run/redis.sock, database 2"


def test_a_unix_socket_can_be_used(start: Start, tmp_path: Path) -> None:
    """Wrong: a Unix socket cannot be used."""
    path = tmp_path / "redis.sock"
    server = start("--unixsocket", str(path))
    store = RedisStore(f"unix://{path}?db=1")
    assert store.append("s", [draft("a")]).end == 1
    elsewhere = RedisStore(server.url)
    assert elsewhere.head("s") is None
    store.close()
    elsewhere.close()


def test_secure_erase_removes_deleted_text_in_files(server: RedisServer, store: RedisStore) -> None:
    """Wrong: deleted text can be read in the server's files."""
    store.append("s", [draft("the canary sings")])
    store.append("t", [draft("others stay")])

    def told() -> bytes:
        files = [path for path in server.folder.rglob("*") if path.suffix in (".aof", ".rdb")]
        found = []
        for path in files:
            with suppress(FileNotFoundError):  # a temporary file that the server has renamed
                found.append(path.read_bytes())
        return b"".join(found)

    store._server.ask("BGSAVE")
    while b"canary" not in told():
        time.sleep(0.01)
    store.delete("s")
    store._server.ask("CONFIG", "SET", "save", "3600 1")
    store.secure_erase()
    deadline = time.monotonic() + 30
    while b"canary" in told() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert b"canary" not in told()
    assert [e.message.text() for e in store.read("t")] == ["others stay"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"appendonly": "no"}, "nothing remains"),
        ({"appendonly": "no", "save": "60 1"}, "last snapshot"),
        ({"appendfsync": "everysec"}, "last second or two"),
        ({"appendfsync": "no"}, "half a minute"),
        ({"appendfsync": "always"}, "survives a power loss"),
        ({"appendfsync": "always", "maxmemory-policy": "allkeys-lru"}, "evicts data"),
    ],
)
def test_the_durability_note_reflects_the_server_settings(
    server: RedisServer, store: RedisStore, settings: dict[str, str], says: str
) -> None:
    """Wrong: `doctor` calls a forgetful server durable, or too weak a setting is accepted."""
    for name, value in settings.items():
        store._server.ask("CONFIG", "SET", name, value)
    assert says in store.durability_note()
    if settings == {"appendfsync": "always"}:
        RedisStore(server.url, durability="power").close()
    elif settings.get("appendfsync") != "always":
        with pytest.raises(ConfigError, match="appendfsync always"):
            RedisStore(server.url, durability="power")


def test_concurrent_erases_log_no_warning(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: concurrent erasures warn of traces because one of them already runs."""
    server = start()
    stores = [RedisStore(server.url) for _ in range(8)]
    for _ in range(5):
        together([one.secure_erase for one in stores])
    assert caplog.messages == []
    for one in stores:
        one.close()


def test_a_restricted_server_can_be_used(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: a managed server, which forbids CONFIG and rewrites, cannot be used."""
    hidden = [f'--rename-command {name} ""' for name in ("CONFIG", "INFO", "BGREWRITEAOF")]
    server = start(*[part for one in hidden for part in shlex.split(one)])
    store = RedisStore(server.url)
    store.append("s", [draft("a")])
    assert "does not show" in store.durability_note()
    store.delete("s")
    store.secure_erase()
    assert "may stay in the server's files" in caplog.text
    store.close()


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


class TestClusterMemory(MemoryOutageContract):
    """On a cluster."""

    @pytest.fixture
    def away(self, cluster: RedisNodes) -> tuple[Any, str]:
        return cluster, cluster.url


def test_keys_of_a_namespace_are_on_one_cluster_node(cluster: RedisNodes, namespace: str) -> None:
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


def test_moving_a_cluster_slot_loses_no_message(cluster: RedisNodes, namespace: str) -> None:
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


def test_updates_work_again_after_a_node_restarts(cluster: RedisNodes, namespace: str) -> None:
    """Wrong: the restart of one node fails updates for good."""
    stores = [RedisStore(cluster.url, f"{namespace}{n}") for n in range(12)]
    for one in stores:
        one.append("s", [draft("a")], "u")
    cluster.nodes[1].stop()
    failed = 0
    for one in stores:
        try:
            one.append("s", [draft("b")], "u")
        except StoreUnavailable:
            failed += 1
    assert failed > 0
    cluster.nodes[1].start()
    cluster.wait()
    lines = 0
    for one in stores:
        assert one.append("s", [draft("c")], "u").end == len(one.read("s"))
        lines += one.counts().entries
        one.close()
    assert lines == 36 - failed
