"""Writes to MongoDB that are cut off, repeated, or overtaken at any of their commands."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from agent_memory.core.records import Head, Lease
from agent_memory.errors import LeaseLost, SessionDeleting, StoreUnavailable
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.query import Query
from agent_memory.stores.base import Store
from agent_memory.stores.mongodb.kernel import MongoDBStore
from agent_memory.testing.contract import DAY, begun, draft, entries, ranked, record, stored
from tests.contract.mongodb_suite import (
    VECTORS,
    Doc,
    brisk,
    kernel_of,
    linked,
    long_drafts,
    server,
    table_of,
    texts_of,
    url,
)
from tests.servers.mongodb import MongoDBServer

__all__ = ["brisk", "server", "url"]


def _state(store: Store) -> Any:
    """Return a session and all records derived from it, without version and time."""
    every = sorted((block, one.id, one.text) for block, one in store.all_records())
    read = sorted(one.id for records, _ in store.all_vectors("v") for one in records)
    head = store.head("s")
    owners = ("user:a", "user:b")
    query = Query(VECTORS[0] + VECTORS[1] / 2)
    found = [ranked(store.search_vectors("v", owner, query, 9)) for owner in owners]
    return (
        head and replace(head, version=0, created_at=DAY),
        [(e.seq, e.total, e.message.text()) for e in store.read("s")],
        [store.records("facts", owner) for owner in owners],
        [[one for one, _ in records] for records in found],
        every,
        read,
    )


def _put_facts(store: Store, lease: Lease | None) -> None:
    new = [record("f1", text="new", owner="user:b"), record("f9", last=9)]
    store.put_records("facts", new, replacing=("s", 2, 2), lease=lease)


def _put_vectors(store: Store, lease: Lease) -> None:
    store.open_vectors("v", 2, "m")
    new = [record("v1", text="new", owner="user:b"), record("v9")]
    store.put_vectors("v", new, Features.of_vectors(VECTORS), lease=lease)


def _cut(store: Store, lease: Lease) -> Head | None:
    head = store.head("s")
    return None if head is None else store.rewrite(head, 10, lease=lease)


def _rewrite(store: Store, lease: Lease, count: int) -> Head | None:
    head = store.head("s")
    log = entries(11, 10 + count, f" anew {'x' * 1000}", total=30)
    return None if head is None else store.rewrite(head, 10, log, lease=lease)


def _begin(store: Store, count: int) -> Head | None:
    return store.rewrite(begun(), 0, entries(1, count, f" anew {'x' * 1000}"))


def _written(url: str, namespace: str) -> str:
    """Return everything in the database of a namespace's session."""
    with MongoClient[Doc](url) as client:
        database = client.get_default_database()
        heads = list(database["agent_memory_documents"].find({"ns": namespace, "c": "head"}))
        logs = [head["log"] for head in heads]
        return str([*heads, *database["agent_memory_messages"].find({"log": {"$in": logs}})])


def _expire(store: Store) -> Head | None:
    head = store.head("s")
    return None if head is None else store.move(replace(head, expired=40))


def _expired(url: str) -> list[Doc]:
    """Return the lines in the database that are in no log any more."""
    with MongoClient[Doc](url) as client:
        database = client.get_default_database()
        found: list[Doc] = []
        for head in database["agent_memory_documents"].find({"begin": {"$gt": 0}}):
            last = head["begin"]
            found += [row for row in head["lines"].values() if row["seq"] <= last]
            which = {"log": head["log"], "seq": {"$lte": last}}
            found += database["agent_memory_messages"].find(which)
        return found


_WORK: dict[str, tuple[int, Callable[[Store, Lease], Any]]] = {
    "begin": (0, lambda store, _: store.append("s", [draft("c")])),
    "append": (1, lambda store, _: store.append("s", [draft("c")])),
    "append many": (1, lambda store, _: store.append("s", long_drafts("c", 70))),
    "append and spill": (50, lambda store, _: store.append("s", long_drafts("c", 20))),
    "cut": (130, _cut),
    "rewrite": (130, partial(_rewrite, count=5)),
    "rewrite many": (130, partial(_rewrite, count=70)),
    "begin by rewriting": (0, lambda store, _: _begin(store, 5)),
    "begin many by rewriting": (0, lambda store, _: _begin(store, 70)),
    "expire": (50, lambda store, _: _expire(store)),
    "put facts": (1, _put_facts),
    "put facts without a lease": (1, lambda store, _: _put_facts(store, None)),
    "put vectors": (1, _put_vectors),
}


_ENDS: dict[str, Callable[[int], int]] = {
    "begin": lambda _: 1, "append": lambda end: end + 1, "append many": lambda end: end + 70,
    "cut": lambda _: 10, "rewrite": lambda _: 15, "rewrite many": lambda _: 80,
    "begin by rewriting": lambda _: 5, "begin many by rewriting": lambda _: 70,
}  # fmt: skip


def _prepared(store: Store, count: int) -> None:
    store.open_vectors("v", 2, "m")
    if count:
        store.append("s", long_drafts("a", count))
        store.append("s", long_drafts("b", 1))
        assert store.lease("s", "w1", 0)
    store.put_records("facts", [record(f"f{n}", last=n) for n in range(1, 4)])
    records = [record("v1"), record("v2", owner="user:b")]
    store.put_vectors("v", records, Features.of_vectors(VECTORS))


@pytest.mark.usefixtures("brisk")
@pytest.mark.parametrize("name", _WORK)
def test_write_is_atomic(server: MongoDBServer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an interrupted write is half visible, blocks later writes, or comes back."""
    # the writer that is waited for is dead
    monkeypatch.setattr("agent_memory.stores.mongodb.staging._PATIENCE_SECONDS", 0.01)
    count, work = _WORK[name]
    model = MongoDBStore(server.url, uuid4().hex[:8])
    _prepared(model, count)
    before = _state(model)
    work(model, Lease("s", "w1"))
    after = _state(model)
    model.close()
    assert after != before
    for command in range(1 + [*_WORK].index(name) % 2, 30, 2):
        namespace = uuid4().hex[:8]
        with linked(server, namespace) as (direct, far, link):
            _prepared(direct, count)
            link.break_at(command, for_good=True)
            try:
                work(far, Lease("s", "w1"))
                failed = ""
            except StoreUnavailable as error:
                failed = str(error)
            broke = link.came
            link.close()
            direct.lease("s", "w2", 0)
            cut = _state(direct)
            assert cut == _state(direct)
            assert cut in (before, after)
            assert "may have succeeded" in failed or cut == (before if failed else after)
            if cut == before:
                work(direct, Lease("s", "w2"))
                assert _state(direct) == after
            if name.startswith(("cut", "rewrite")):
                direct.secure_erase()
                assert "'a9 " in (written := _written(server.url, namespace))
                assert "'a10 " not in written
            assert direct.move(stored(direct)) is not None
            assert not _expired(server.url)
            texts = texts_of(direct)
            direct.append("s", on := long_drafts("on", 100))
            assert texts_of(direct) == texts + [one.message.text().split()[0] for one in on]
            if not broke:
                return
    pytest.fail("it never came to an end")


@pytest.mark.usefixtures("brisk")
@pytest.mark.parametrize("name", _ENDS)
def test_a_write_with_a_lost_reply_is_stored_once(server: MongoDBServer, name: str) -> None:
    """Wrong: a write whose reply was lost is stored twice, or reported as refused."""
    count, work = _WORK[name]
    for command in range(1, 6):
        with linked(server, seconds=5) as (_, far, link):
            _prepared(far, count)
            end = len(far.read("s"))
            link.break_at(command, for_good=False)
            assert work(far, Lease("s", "w1")) is not None
            texts = texts_of(far)
            assert len(texts) == _ENDS[name](end) == stored(far).end
            assert len(set(texts)) == len(texts)


@pytest.mark.usefixtures("brisk")
@pytest.mark.parametrize("before", ["nobody", "one who let it run out", "himself"])
def test_a_lock_with_a_lost_reply_is_held_by_its_caller(server: MongoDBServer, before: str) -> None:
    """Wrong: a caller whose reply was lost is refused the lock that it holds."""
    for command in range(1, 6):
        with linked(server, seconds=5) as (_, far, link):
            if before != "nobody":
                assert far.lock("l", "w1" if before == "himself" else "w0", 0)
            link.break_at(command, for_good=False)
            assert far.lock("l", "w1", 60)
            came = link.came
            assert not far.lock("l", "w2", 60)
            link.break_at(1, for_good=False)
            far.unlock("l", "w1")
            assert far.lock("l", "w2", 60)
            if not came:
                return
    pytest.fail("it never came to an end")


def _rewritten(store: Store, count: int) -> None:
    head = stored(store)
    after = min(40, head.end)
    log = entries(after + 1, after + count, f" other {'x' * 1000}", total=3 * after)
    assert store.rewrite(head, after, log) is not None


_MEANWHILE: dict[str, Callable[[Store], Any]] = {
    "read": _state,
    "append": lambda store: store.append("s", long_drafts("d", 60)),
    "cut": lambda store: store.rewrite(stored(store), 40),
    "cut and append": lambda s: (s.rewrite(stored(s), 40), s.append("s", long_drafts("d", 90))),
    "expire": _expire,
    "rewrite": lambda store: _rewritten(store, 5),
    "rewrite many": lambda store: _rewritten(store, 70),
    "delete": lambda store: store.delete("s"),
    "begin anew": lambda store: (store.delete("s"), store.append("s", long_drafts("d", 3))),
}


_PAIRS = [
    *((name, "append") for name in ("append many", "append and spill", "cut")),
    *(("append and spill", other) for other in ("cut", "cut and append", "delete", "expire")),
    *(("append and spill", other) for other in ("rewrite", "rewrite many")),
    *(
        (name, other)
        for name in ("rewrite", "rewrite many")
        for other in ("append", "rewrite many", "cut and append", "begin anew", "delete")
    ),
    ("expire", "cut and append"),
    ("expire", "rewrite many"),
    *(("cut", meanwhile) for meanwhile in ("cut and append", "begin anew")),
    *(("put facts", meanwhile) for meanwhile in ("read", "delete")),
]


@pytest.mark.parametrize(("name", "meanwhile"), _PAIRS)
def test_races_corrupt_no_log(server: MongoDBServer, url: str, name: str, meanwhile: str) -> None:
    """Wrong: concurrent commands leave gaps or duplicates, half a write, or orphans."""
    count, work = _WORK[name]
    with MongoClient[Doc](url) as client:
        client.get_default_database()["agent_memory_messages"].delete_many({})
    for command in range(1 + _PAIRS.index((name, meanwhile)) % 2, 30, 2):
        with linked(server) as (direct, far, link):
            _prepared(direct, max(count, 50))
            link.act_before(command, partial(_MEANWHILE[meanwhile], direct))
            with suppress(LeaseLost, SessionDeleting):
                work(far, Lease("s", "w1"))
            entries = direct.read("s")
            begun = entries[0].seq if entries else 1
            assert begun == 1 or begun == stored(direct).expired + 1
            seqs = range(begun, begun + len(entries))
            assert [(e.seq, e.total) for e in entries] == [(n, 3 * n) for n in seqs]
            assert not _expired(url)
            assert len({e.message.text() for e in entries}) == len(entries)
            facts = [r.id for owner in ("user:a", "user:b") for r in direct.records("facts", owner)]
            assert facts in (["f1", "f2", "f3"], ["f9", "f1"])
            if meanwhile == "read" and name == "put facts":
                assert facts == ["f9", "f1"]
            if meanwhile in ("read", "append") and name.startswith("append"):
                assert {one.message.text() for one in entries} >= {
                    one.message.text() for one in long_drafts("c", 20)
                }
            came = link.came
            direct.delete("s")
            with MongoClient[Doc](url) as client:
                log = client.get_default_database()["agent_memory_messages"]
                assert not list(log.find(limit=3))
            if not came:
                return
    pytest.fail("it never came to an end")


@pytest.mark.parametrize("count", [5, 70])
@pytest.mark.parametrize("leased", [False, True])
def test_a_rewrite_with_a_lost_reply_is_not_repeated(
    server: MongoDBServer, leased: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a repeated rewrite removes entries, or reports that nothing was written."""
    namespace = uuid4().hex[:8]
    far, direct = (MongoDBStore(server.url, namespace) for _ in range(2))
    _prepared(direct, 50)
    table = table_of(far)
    swap = table.swap

    def lost(which: Doc, change: Doc, fields: Doc) -> None:
        swap(which, change, fields)
        if leased:
            assert direct.lease("s", "w2", 60)
        assert direct.move(replace(stored(direct), start=1)) is not None

    with monkeypatch.context() as patch:
        patch.setattr(table, "swap", lost)
        written = _rewrite(far, Lease("s", "w1"), count)
    assert (written.end, written.total) == (10 + count, 30 + 3 * count)
    assert stored(direct) == replace(written, start=1, version=written.version + 1)
    direct.append("s", long_drafts("on", 60))  # moves entries out of the tail
    texts = [entry.message.text().split("x")[0] for entry in direct.read("s")]
    assert texts[9:12] == ["a9 ", "11 anew ", "12 anew "]
    assert len(texts) == 70 + count
    for store in (far, direct):
        store.close()


def test_a_concurrent_spill_loses_no_entries(server: MongoDBServer) -> None:
    """Wrong: entries that were just moved out of the tail are not found."""
    for command in range(1, 9):
        namespace = uuid4().hex[:8]
        with linked(server, namespace) as (direct, far, link):
            head = direct.append("s", [draft(f"a{n}") for n in range(5)])
            session = table_of(direct).find_one({"c": "head", "id": "s", "ns": namespace})
            link.act_before(command, partial(kernel_of(direct)._logs.spill, session))
            assert far.rewrite(head, 5, entries(6, 7, total=15)) is not None
            assert [one.message.text() for one in direct.read("s")] == [
                *(f"a{n}" for n in range(5)), "6", "7",
            ]  # fmt: skip
            came = link.came
            if not came:
                return
    pytest.fail("it never came to an end")


@pytest.mark.parametrize("count", [5, 70])
@pytest.mark.parametrize("how", ["append", "rewrite"])
def test_two_first_writers_do_not_mix_logs(server: MongoDBServer, how: str, count: int) -> None:
    """Wrong: two writers that begin one session mix their logs, or leave documents behind."""
    with MongoClient[Doc](server.url) as client:
        client.get_default_database()["agent_memory_messages"].delete_many({})
    for command in range(1, 30):
        with linked(server) as (direct, far, link):

            def first() -> None:
                if direct.head("s") is None:
                    if how == "append":
                        direct.append("s", long_drafts("d", 60), "u")
                    else:
                        assert _begin(direct, 60) is not None

            link.act_before(command, first)
            done = _begin(far, count)
            texts = texts_of(direct)
            assert len(texts) == (60 if done is None else count) == stored(direct).end
            assert direct.append("s", [draft("on")]).end == len(texts) + 1
            came = link.came
            direct.delete("s")
            with MongoClient[Doc](server.url) as client:
                log = list(client.get_default_database()["agent_memory_messages"].find(limit=3))
            assert not log
            if not came:
                return
    pytest.fail("it never came to an end")


def test_a_slow_spill_does_not_restore_expired_entries(server: MongoDBServer) -> None:
    """Wrong: a slow writer restores entries that have expired."""
    namespace = uuid4().hex[:8]
    with linked(server, namespace) as (direct, far, link):
        head = direct.append("s", [draft("x") for _ in range(112)])  # more than one step moves
        table = table_of(direct)
        session = table.find_one({"c": "head", "id": "s", "ns": namespace}) or {}
        rows = sorted(session["lines"].values(), key=lambda row: int(row["seq"]))

        def slowly(some: list[Doc]) -> None:
            assert kernel_of(direct)._logs._spill(session, some)

        link.act_before(3, lambda: slowly(rows[:100]))  # `far` has changed the head by then
        assert far.move(replace(head, expired=110)) is not None
        assert link.came
        if table.find_one({"_id": session["_id"], f"lines.e{rows[-1]['seq']}": {"$exists": True}}):
            kernel_of(direct)._logs._spill(session, rows[100:])
        assert [entry.seq for entry in direct.read("s")] == [111, 112]
        assert not _expired(server.url)
