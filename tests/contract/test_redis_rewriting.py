"""Rewriting a log in a Redis store, reading its records, and the vectors of owners."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from agent_memory.core.records import Head
from agent_memory.errors import StoreUnavailable
from agent_memory.retrieval.features import Features
from agent_memory.stores.redis.kernel import RedisKernel, RedisStore
from agent_memory.stores.redis.scripts import COMMIT, Script
from agent_memory.stores.redis.server import Lost
from agent_memory.testing.contract import begun, draft, entries, everything, record, stored, units
from tests.servers.redis import RedisNodes, RedisServer
from tests.servers.redis_suite import begun as started
from tests.servers.redis_suite import namespace, server, start

__all__ = ["namespace", "server", "start"]


@pytest.fixture(scope="module", params=["server", "cluster"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("redis")
    one: RedisServer | RedisNodes
    if request.param == "server":
        one = started(lambda binary: RedisServer(folder, binary))
    else:
        one = started(lambda binary: RedisNodes(folder, binary))
    yield one.url
    one.stop()


@pytest.fixture
def store(url: str, namespace: str) -> Iterator[RedisStore]:
    store = RedisStore(url, namespace)
    yield store
    store.close()


@pytest.fixture
def other(url: str, namespace: str) -> Iterator[RedisStore]:
    other = RedisStore(url, namespace)
    yield other
    other.close()


@contextmanager
def _lost_reply(store: RedisStore, before: bool, meanwhile: Callable[[], Any]) -> Iterator[None]:
    """Lose the next script's reply, or the script itself if `before`. Others act then."""
    attempt = store._server.attempt

    waiting = [True]

    def lost(script: Script, *given: Any) -> Any:
        if script is not COMMIT or not waiting:
            return attempt(script, *given)
        waiting.clear()
        if not before:
            attempt(script, *given)
        meanwhile()
        raise Lost(ConnectionError("gone"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._server, "attempt", lost)
        yield


_CALLS: dict[str, Callable[[RedisStore, Head], Head | None]] = {
    "move": lambda store, head: store.move(replace(head, start=1)),
    "cut": lambda store, head: store.rewrite(head, 2),
    "write over": lambda store, head: store.rewrite(head, 1, entries(2, 9, " anew", 3)),
    "write behind": lambda store, head: store.rewrite(head, 4, entries(5, 9, " anew", 12)),
}


_ENDS = {"move": 4, "cut": 2, "write over": 9, "write behind": 9}


def _nothing() -> None:
    pass


@pytest.mark.parametrize("before", [True, False], ids=["call", "answer"])
def test_an_unanswered_import_runs_once(store: RedisStore, other: RedisStore, before: bool) -> None:
    """Wrong: after a lost reply a writer is told that the session exists, or writes it twice."""
    with _lost_reply(store, before, _nothing):
        written = store.rewrite(begun(), 0, entries(1, 9))
    assert (written.version, written.end) == (1, 9)
    assert stored(other) == written
    read = other.read("s")
    assert [one.seq for one in read] == list(range(1, 10))
    assert read[-1].total == written.total == 27
    assert store.append("s", [draft("on")]).end == 10
    assert [one.session_id for one in other.due()] == ["s"]


@pytest.mark.parametrize("before", [True, False], ids=["call", "answer"])
@pytest.mark.parametrize("name", _CALLS)
def test_changes_run_once(store: RedisStore, other: RedisStore, name: str, before: bool) -> None:
    """Wrong: a change whose reply was lost is reported as refused, or made twice."""
    head = store.append("s", [draft(str(n)) for n in range(1, 5)], "u")
    with _lost_reply(store, before, _nothing), pytest.raises(StoreUnavailable):
        _CALLS[name](store, head)
    now = stored(store)
    assert now == stored(other)
    assert now.version == head.version + (0 if before else 1)
    assert now.end == (4 if before else _ENDS[name])
    assert len(other.read("s")) == now.end
    assert store.append("s", [draft("on")]).end == now.end + 1


def test_a_log_of_many_large_entries_can_be_imported(store: RedisStore, other: RedisStore) -> None:
    """Wrong: a long session exceeds a script's limit of arguments, and cannot be imported."""
    log = entries(1, 10_000, "x" * 3_000)
    head = store.rewrite(begun(), 0, log)
    assert head is not None
    assert other.read("s", after=9_990) == log[9_990:]
    head = other.rewrite(head, 5, entries(6, 9_000, total=15))
    assert (head.end, head.total) == (9_000, 27_000)
    assert len(store.read("s")) == 9_000
    log = cast("RedisKernel", store._kernel).log("s")
    assert store._server.ask("HLEN", log) == 9_000


@pytest.mark.parametrize("mine", ["a*", "a?", "[ab]", "a:b", "a}", "ä ö"])
def test_a_namespace_may_contain_pattern_characters(url: str, mine: str) -> None:
    """Wrong: a namespace with pattern characters reads others' records, or misses its own."""
    blocks = ["facts", "*", "[f]", "a:b", "{x}", "ü/%"]
    stores = [RedisStore(url, name) for name in (mine, "ab", "a", "b", "a:b:c")]
    for place, store in enumerate(stores):
        for block in blocks:
            store.put_records(block, [record(f"{place}")])
            store.open_vectors(block, 8, f"model {place}")
            store.put_vectors(block, [record(f"{place}")], Features.of_vectors(units(1)))
    for place, store in enumerate(stores):
        assert sorted((block, one.id) for block, one in store.all_records()) == sorted(
            (block, f"{place}") for block in blocks
        )
        assert store.vector_blocks() == dict.fromkeys(blocks, (8, f"model {place}"))
        for block in blocks:
            ((found, features),) = store.all_vectors(block)
            assert ([one.id for one in found], len(features)) == ([f"{place}"], 1)
        for block in blocks:
            store.delete_records(block, owner="user:a")
            store.clear_vectors(block)
        assert (list(store.all_records()), store.vector_blocks()) == ([], {})
        store.close()


Handles = tuple[RedisStore, RedisStore, RedisStore]


@pytest.fixture
def handles(server: RedisServer) -> Iterator[Handles]:
    """Three handles on one namespace."""
    stores = RedisStore(server.url), RedisStore(server.url), RedisStore(server.url)
    for one in stores:
        one.open_vectors("v", 4, "m")
    yield stores
    for one in stores:
        one.close()


def _put(store: RedisStore, name: str) -> None:
    one = record(name, session_id=name)
    store.put_vectors("v", [one], Features.of_vectors(units(1, 4, seed=len(name))))


def _names(store: RedisStore) -> list[str]:
    return [one.id for one in everything(store, "v", "user:a", 4)]


_MEANWHILE: dict[str, tuple[Callable[[RedisStore], object], list[str]]] = {
    "put": (lambda store: _put(store, "c"), ["a", "b", "c"]),
    "deleted": (lambda store: store.delete_vectors("v", session_id="a"), ["b"]),
    "all deleted": (lambda store: store.delete_vectors("v", owner="user:a"), []),
}


@pytest.mark.parametrize("what", _MEANWHILE)
def test_a_vector_put_with_a_lost_reply_changes_no_other_record(
    handles: Handles, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Wrong: a write without a reply overwrites or restores records, or is missed."""
    writer, reader, another = handles
    act, left = _MEANWHILE[what]
    _put(writer, "a")
    assert _names(writer) == _names(reader) == ["a"]
    attempt, sent = writer._server.attempt, []

    def attempt_unanswered(script: Script, *given: Any) -> Any:
        answer = attempt(script, *given)
        if script is not COMMIT:
            return answer
        sent.append(given)
        assert _names(reader) == ["a", "b"]
        act(another)
        raise Lost(ConnectionError("nobody knows"))

    monkeypatch.setattr(writer._server, "attempt", attempt_unanswered)
    with pytest.raises(StoreUnavailable):
        _put(writer, "b")
    monkeypatch.undo()
    assert len(sent) == 1
    for handle in handles:
        assert _names(handle) == left
    _put(writer, "b")
    for handle in handles:
        assert _names(handle) == sorted({*left, "b"})


def test_a_search_requests_only_new_vectors(server: RedisServer, handles: Handles) -> None:
    """Wrong: after each message all of a user's vectors are sent over the network again."""
    store, other, _ = handles
    _put(store, "a")
    assert _names(store) == ["a"]
    with server.watched() as calls:
        assert _names(store) == ["a"]  # two requests
    assert calls == ["EVALSHA"] * 2  # the records are cached, too
    _put(other, "bb")
    with server.watched() as calls:
        assert _names(store) == ["a", "bb"]
    assert calls == ["EVALSHA"] * 4  # catalog, a segment, its record, and the catalog again
