"""Owners' vectors in MongoDB, where others act between any two commands of a write, or it ends
there; and what earlier releases wrote."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

import pytest

from agent_memory.core.records import Record
from agent_memory.errors import StoreUnavailable
from agent_memory.retrieval.features import Features
from agent_memory.stores.base import Store
from agent_memory.stores.blobs import blobs_of
from agent_memory.stores.damage import noted
from agent_memory.stores.mongodb.documents import key_of
from agent_memory.stores.mongodb.scopes import blocks_of
from agent_memory.stores.mongodb.store import MongoDBStore
from agent_memory.testing.contract import record
from agent_memory.testing.features import everything, for_words, units, worded
from tests.contract.mongodb_suite import brisk, server
from tests.servers.mongodb import Link, MongoDBServer

__all__ = ["brisk", "server"]


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
def test_others_amid_a_put(
    server: MongoDBServer, act: str, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: an index is kept of a write that was half in place, or one is added to that lacked
    what another had committed."""
    # whoever is waited for here does not go on before
    monkeypatch.setattr("agent_memory.stores.mongodb.commits._PATIENCE_SECONDS", 0.01)
    for command in range(1, 60):
        namespace = uuid4().hex[:8]
        link = Link(server.port)
        far = MongoDBStore(server.url_at(link.port), namespace)
        near, fresh = (MongoDBStore(server.url, namespace) for _ in range(2))
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
        for handle in (far, near, fresh):
            handle.close()
        link.close()
        if not came:
            return
    pytest.fail("it never came to an end")


@pytest.mark.usefixtures("brisk")
def test_an_index_after_a_put_that_was_cut_off(
    server: MongoDBServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: what a writer committed before it died is found by nobody who had kept an index."""
    monkeypatch.setattr("agent_memory.stores.mongodb.commits._PATIENCE_SECONDS", 0.01)
    seen = set()
    for command in range(1, 60):
        namespace = uuid4().hex[:8]
        link = Link(server.port)
        far = MongoDBStore(server.url_at(link.port), namespace)
        near, fresh = (MongoDBStore(server.url, namespace) for _ in range(2))
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
        for handle in (far, near, fresh):
            handle.close()
        if not came:
            assert seen == {("old",), ("mine", "old")}
            return
    pytest.fail("it never came to an end")


def _as_layout_2_kept_it(store: MongoDBStore, records: list[Record], features: Features) -> None:
    """Rewrite what a store has of a block: each record with its features, and nothing else."""
    table, key = store._vectors, store._collections.to_read("v", known=False)
    assert key is not None
    table.delete_all({"block": {"$in": blocks_of(key)[1:]}})
    for one, blob in zip(records, blobs_of(records, features), strict=True):
        which = {"_id": key_of(key, one.id)}
        table.update(which, {"$set": {"vector": blob}, "$unset": {"at": ""}})


def _older(handle: MongoDBStore) -> tuple[list[Record], Features]:
    """Have some records be kept as an earlier release did."""
    said = ["fox", "owl", "red fox"]
    records = [record(name, session_id=name) for name in ("old", "older", "oldest")]
    features = worded(said, units(3, 4))
    handle.put_vectors("v", records, features)
    _as_layout_2_kept_it(handle, records, features)
    return records, features


def test_what_earlier_releases_wrote_is_packed(
    server: MongoDBServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: who had records before an upgrade finds none of them, some twice, or one that was
    deleted; or its scores are others."""
    monkeypatch.setattr("agent_memory.stores.mongodb.vectors._PACKED", 7)
    namespace = uuid4().hex[:8]
    store, other = (MongoDBStore(server.url, namespace) for _ in range(2))
    for handle in (store, other):
        handle.open_vectors("v", 4, "m")
    said = [f"fox {'red ' * (n % 3)}" for n in range(30)]
    records = [record(f"{n:02}", session_id=f"s{n % 4}") for n in range(30)]
    features = worded(said, units(30, 4))
    store.put_vectors("v", records, features)
    query = for_words("fox", units(1, 4)[0])
    before = {hit.record.id: hit.score for hit in store.search_vectors("v", "user:a", query, 99)}
    _as_layout_2_kept_it(store, records, features)
    found = {hit.record.id: hit.score for hit in other.search_vectors("v", "user:a", query, 99)}
    assert found == before
    _as_layout_2_kept_it(store, records, features)
    store.delete_vectors("v", session_id="s1")
    other.put_vectors("v", [record("new"), records[4]], worded(["fox"] * 2, units(2, 4)))
    wanted = sorted({f"{n:02}" for n in range(30) if n % 4 != 1} | {"new"})
    assert [one.id for one in everything(other, "v", "user:a", 4)] == wanted
    assert sum(len(some) for some, _ in store.all_vectors("v")) == len(wanted)
    key = store._collections.to_read("v", known=True)
    assert not any(doc["vector"] for doc in store._vectors.all({"block": key}))
    store.delete_vectors("v", owner="user:a")
    assert not store._vectors.all({"block": {"$regex": f"^{key}"}})
    for handle in (store, other):
        handle.close()


def test_one_damaged_record_of_an_earlier_release(server: MongoDBServer) -> None:
    """Wrong: it keeps all others from being packed, or is found by nothing and named by nobody."""
    store = MongoDBStore(server.url, uuid4().hex[:8])
    store.open_vectors("v", 4, "m")
    _older(store)
    key = store._collections.to_read("v", known=True)
    assert key is not None
    assert store._vectors.update({"_id": key_of(key, "older")}, {"$set": {"vector": b"x"}})
    assert _names(store) == ["old", "oldest"]
    with noted() as damaged:
        assert sum(len(some) for some, _ in store.all_vectors("v")) == 2
    assert [error.damage and error.damage.record_id for error in damaged] == ["older"]
    store.close()


@pytest.mark.parametrize("act", _ACTS)
def test_others_amid_packing(
    server: MongoDBServer, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: what is packed brings back what was deleted meanwhile, or hides what was written."""
    monkeypatch.setattr("agent_memory.stores.mongodb.commits._PATIENCE_SECONDS", 0.01)
    for command in range(1, 60):
        namespace = uuid4().hex[:8]
        link = Link(server.port)
        far = MongoDBStore(server.url_at(link.port), namespace)
        near, fresh = (MongoDBStore(server.url, namespace) for _ in range(2))
        for handle in (far, near):
            handle.open_vectors("v", 4, "m")
        _older(near)
        link.act_before(command, lambda near=near: _ACTS[act](near))
        _names(far)
        came = link.came
        link.act_before(1000, list)
        wanted = _names(fresh)
        assert {"older", "oldest"} <= set(wanted)
        assert ("old" in wanted) == (act != "deletes" or not came), command
        for handle in (near, far, near):
            assert _names(handle) == wanted, command
        assert sum(len(some) for some, _ in near.all_vectors("v")) == len(wanted)
        for handle in (far, near, fresh):
            handle.close()
        link.close()
        if not came:
            return
    pytest.fail("it never came to an end")


@pytest.mark.usefixtures("brisk")
@pytest.mark.parametrize("what", ["packing", "deleting"])
def test_what_was_cut_off_is_finished_by_whoever_comes(
    server: MongoDBServer, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a packer that is killed hides records; a deleter, and what it took out stays among
    what others are found by."""
    monkeypatch.setattr("agent_memory.stores.mongodb.commits._PATIENCE_SECONDS", 0.01)
    seen = set()
    for command in range(1, 60):
        namespace = uuid4().hex[:8]
        link = Link(server.port)
        far = MongoDBStore(server.url_at(link.port), namespace)
        near = MongoDBStore(server.url, namespace)
        for handle in (far, near):
            handle.open_vectors("v", 4, "m")
        _older(near)
        if what == "deleting":
            _put(near, "other")
            assert len(_names(near)) == 4
        link.break_at(command, for_good=True)
        with suppress(StoreUnavailable):
            if what == "packing":
                _names(far)
            else:
                far.delete_vectors("v", owner="user:a")
        came = link.came
        link.close()
        left = _names(near)
        seen.add(len(left))
        assert sum(len(some) for some, _ in near.all_vectors("v")) == len(left)
        _put(near, "last")
        assert _names(near) == sorted([*left, "last"]), command
        near.delete_vectors("v", owner="user:a")
        key = near._collections.to_read("v", known=True)
        assert not near._vectors.all({"block": {"$regex": f"^{key}"}}), command
        for handle in (far, near):
            handle.close()
        if not came:
            assert seen == ({3} if what == "packing" else {0, 4})
            return
    pytest.fail("it never came to an end")
