"""Owners' vectors on a Redis server, and what is asked of it for a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_memory.retrieval.features import Features
from agent_memory.stores.blobs import blobs_of
from agent_memory.stores.redis import reading
from agent_memory.stores.redis.server import Lost
from agent_memory.stores.redis.store import RedisStore
from agent_memory.stores.redis.vector_scripts import CHANGE
from agent_memory.testing.contract import draft, record
from agent_memory.testing.features import everything, for_words, units, worded
from tests.servers.redis import RedisServer
from tests.servers.redis_suite import server, start

__all__ = ["server", "start"]

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
    "all deleted": (lambda store: store.delete_vectors("v", owner="user:a"), ["b"]),
}


@pytest.mark.parametrize("what", _MEANWHILE)
def test_a_put_that_is_sent_twice(
    handles: Handles, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Wrong: the second one writes over what another wrote between the two, or brings back what it
    deleted; or who kept an index of the first never learns of it."""
    writer, reader, another = handles
    act, left = _MEANWHILE[what]
    _put(writer, "a")
    assert _names(writer) == _names(reader) == ["a"]
    attempt, sent = writer._server.attempt, []

    def attempt_unanswered(*given: Any) -> Any:
        answer = attempt(*given)
        if given[0] is CHANGE:
            sent.append(given)
        if given[0] is not CHANGE or len(sent) > 1:
            return answer
        assert _names(reader) == ["a", "b"]
        act(another)
        raise Lost(ConnectionError("nobody knows"))

    monkeypatch.setattr(writer._server, "attempt", attempt_unanswered)
    _put(writer, "b")
    monkeypatch.undo()
    assert len(sent) == 3  # the second is refused: what it changes has changed
    for handle in handles:
        assert _names(handle) == left


def test_a_search_asks_for_what_is_new(server: RedisServer, handles: Handles) -> None:
    """Wrong: after each message all vectors of its user come over the network again."""
    store, other, _ = handles
    _put(store, "a")
    assert _names(store) == ["a"]
    with server.watched() as calls:
        assert _names(store) == ["a"]  # asks twice
    assert calls == ["HGET", "HGET"]  # what was read of a record is kept, too
    _put(other, "bb")
    with server.watched() as calls:
        assert _names(store) == ["a", "bb"]
    assert calls == ["HGET", "HMGET", "HMGET", "HMGET", "HGET"]  # a segment, and its record


def test_what_earlier_releases_wrote_is_packed(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: who had records before an upgrade finds none of them, some twice, or one that was
    deleted; or an older release goes on writing what a newer one does not see."""
    monkeypatch.setattr(reading, "_PAGE", 7)
    said = [f"fox {'red ' * (n % 3)}" for n in range(30)]
    records = [record(f"{n:02}", session_id=f"s{n % 4}") for n in range(30)]
    features = worded(said, units(30, 4))
    older = RedisStore(server.url, "old")
    older.append("s", [draft("x")])
    older.open_vectors("v", 4, "m")
    older.put_vectors("v", records, features)
    keys, ask = older._keys.vectors("v"), older._server.ask
    ask("UNLINK", keys[6], keys[7])  # as version 1 kept them
    ask("HSET", keys[5], "user:a", 2**61)
    for one, blob in zip(records, blobs_of(records, features), strict=True):
        ask("HSET", keys[4], one.id, blob)
    ask("HSET", keys[4], "09", b"broken")
    ask("SET", older._keys.layout, 1)
    older.delete_vectors("v", session_id="s1")
    older.put_vectors("v", [record("new")], worded(["fox"], units(1, 4)))
    there = {f"{n:02}" for n in range(30) if n % 4 != 1} | {"new"}
    store = RedisStore(server.url, "old")
    assert ask("GET", older._keys.layout) == b"2"
    for handle in (older, store):
        hits = handle.search_vectors("v", "user:a", for_words("fox", units(1, 4)[0]), 99)
        assert sorted(hit.record.id for hit in hits) == sorted(there)
    assert sum(len(some) for some, _ in store.all_vectors("v")) == len(there)
    assert ask("HLEN", keys[4]) == 0
    store.delete_vectors("v", owner="user:a")
    assert [ask("EXISTS", key) for key in keys[:8]] == [0] * 8
    older.close()
    store.close()
