"""Owners' vectors on a Redis server, and the requests of a search."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_memory.errors import StoreUnavailable
from agent_memory.retrieval.features import Features
from agent_memory.stores.redis.scripts import Script
from agent_memory.stores.redis.server import Lost
from agent_memory.stores.redis.store import RedisStore
from agent_memory.stores.redis.write_scripts import COMMIT
from agent_memory.testing.contract import everything, record, units
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
    "all deleted": (lambda store: store.delete_vectors("v", owner="user:a"), []),
}


@pytest.mark.parametrize("what", _MEANWHILE)
def test_a_put_unanswered(handles: Handles, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Wrong: a write whose reply was lost is sent again and overwrites or restores records, or
    cached indexes miss it."""
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


def test_a_search_asks_for_what_is_new(server: RedisServer, handles: Handles) -> None:
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
