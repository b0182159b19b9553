"""Vectors in MongoDB, with others acting, or the writer dying, amid the commands of a write."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from uuid import uuid4

import pytest

from agent_memory.errors import StoreUnavailable
from agent_memory.retrieval.features import Features
from agent_memory.stores.base import Store
from agent_memory.stores.mongodb import connection
from agent_memory.stores.mongodb.kernel import MongoDBStore
from agent_memory.testing.contract import everything, record, units
from tests.contract.mongodb_suite import brisk, linked, namespace_of, server, table_of
from tests.servers.mongodb import Link, MongoDBServer

__all__ = ["brisk", "server"]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for a server that answers late on a busy machine."""
    for name in ("serverSelectionTimeoutMS", "connectTimeoutMS"):
        monkeypatch.setitem(connection._SETTINGS, name, 30_000)


@contextmanager
def opened(server: MongoDBServer) -> Iterator[tuple[Store, Store, Link, Store]]:
    """Yield what `linked` does, and a third store on the same namespace."""
    namespace = uuid4().hex[:8]
    with (
        linked(server, namespace) as (near, far, link),
        closing(MongoDBStore(server.url, namespace)) as fresh,
    ):
        yield near, far, link, fresh


def _put(store: Store, *names: str) -> None:
    records = [record(name, session_id=name) for name in names]
    store.put_vectors("v", records, Features.of_vectors(units(len(names), 4)))


def _names(store: Store) -> list[str]:
    return [one.id for one in everything(store, "v", "user:a", 4)]


_ACTS: dict[str, Callable[[Store], object]] = {
    "looks": lambda store: None,
    "puts": lambda store: _put(store, "his"),
    "puts twice": lambda store: (_put(store, "his"), _names(store), _put(store, "too")),
    "overwrites": lambda store: _put(store, "old"),
    "deletes": lambda store: store.delete_vectors("v", session_id="old"),
}


@pytest.mark.parametrize("act", _ACTS)
@pytest.mark.parametrize("again", [False, True], ids=["new", "overwritten"])
def test_a_half_done_vector_put_is_never_cached(
    server: MongoDBServer, act: str, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: an index is cached while a write is half done."""
    # nobody continues during the wait
    monkeypatch.setattr("agent_memory.stores.mongodb.staging._PATIENCE_SECONDS", 0.01)
    # two runs cover alternating commands
    for command in range(1 + ([*_ACTS].index(act) + again) % 2, 60, 2):
        with opened(server) as (near, far, link, fresh):
            for handle in (far, near, fresh):
                handle.open_vectors("v", 4, "m")
            _put(near, "old", "older", *(["mine"] if again else []))
            assert _names(far) == _names(near)

            def meanwhile(near: Store = near) -> None:
                _names(near)
                _ACTS[act](near)
                _names(near)

            link.act_before(command, meanwhile)
            _put(far, "mine", "mine too")
            came = link.came
            link.act_before(1000, list)
            wanted = _names(fresh)
            assert {"mine", "mine too", "older"} <= set(wanted)
            for handle in (near, far, near):
                assert _names(handle) == wanted, command
            _put(near, "last")
            _put(far, "at last")
            for handle in (near, far):
                assert _names(handle) == sorted([*wanted, "last", "at last"]), command
            if not came:
                return
    pytest.fail("it never came to an end")


@pytest.mark.usefixtures("brisk")
def test_killed_commits_are_found(server: MongoDBServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a handle with a cached index misses what a killed writer had committed."""
    monkeypatch.setattr("agent_memory.stores.mongodb.staging._PATIENCE_SECONDS", 0.01)
    seen = set()
    for command in range(1, 60):
        with opened(server) as (near, far, link, fresh):
            for handle in (far, near):
                handle.open_vectors("v", 4, "m")
            _put(near, "old")
            assert _names(near) == ["old"]
            link.break_at(command, for_good=True)
            with suppress(StoreUnavailable):
                _put(far, "mine")
            came = link.came
            link.close()
            wanted = _names(fresh)
            seen.add(tuple(wanted))
            assert _names(near) == wanted, command
            _put(near, "last")
            assert _names(near) == _names(fresh) == sorted([*wanted, "last"]), command
            if not came:
                assert seen == {("old",), ("mine", "old")}
                return
    pytest.fail("it never came to an end")


@pytest.mark.usefixtures("brisk")
def test_the_next_caller_completes_an_interrupted_vector_deletion(
    server: MongoDBServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a killed deletion removes part of an owner's vectors, or leaves documents for good."""
    monkeypatch.setattr("agent_memory.stores.mongodb.staging._PATIENCE_SECONDS", 0.01)
    seen = set()
    for command in range(1, 60):
        with linked(server) as (near, far, link):
            for handle in (far, near):
                handle.open_vectors("v", 4, "m")
            _put(near, "old", "older", "oldest")
            _put(near, "other")
            assert len(_names(near)) == 4
            link.break_at(command, for_good=True)
            with suppress(StoreUnavailable):
                far.delete_vectors("v", owner="user:a")
            came = link.came
            link.close()
            left = _names(near)
            seen.add(len(left))
            assert sum(len(some) for some, _ in near.all_vectors("v")) == len(left)
            _put(near, "last")
            assert _names(near) == sorted([*left, "last"]), command
            near.delete_vectors("v", owner="user:a")
            left_over = table_of(near).all({"ns": namespace_of(near), "c": {"$gt": "catalog"}})
            assert {doc["c"] for doc in left_over} == {"vectors"}, command
            if not came:
                assert seen == {0, 4}
                return
    pytest.fail("it never came to an end")
