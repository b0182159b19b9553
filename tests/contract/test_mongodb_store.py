"""The contract suite over MongoDB's wire protocol, and a server that is down or refuses."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from agent_memory.core.records import Draft
from agent_memory.errors import SchemaTooNew, StoreError, StoreUnavailable
from agent_memory.retrieval.features import Features
from agent_memory.stores.base import Store
from agent_memory.stores.mongodb import connection
from agent_memory.stores.mongodb.kernel import MongoDBStore
from agent_memory.testing import StoreContract
from agent_memory.testing.contract import draft, record, stored, together
from tests.contract.clock_contract import ClockContract
from tests.contract.damage_contract import DamageContract, What
from tests.contract.import_contract import ImportContract
from tests.contract.long_log_contract import LongLogContract, Steps
from tests.contract.memory_outage_contract import MemoryOutageContract
from tests.contract.mongodb_suite import (
    VECTORS,
    Doc,
    brisk,
    documents,
    long_drafts,
    namespace,
    namespace_of,
    other,
    server,
    store,
    table_of,
    texts_of,
    url,
)
from tests.contract.segments_contract import SegmentsContract
from tests.kit import Handles
from tests.processes import check_fork
from tests.servers.mongodb import Link, MongoDBServer, RefusingServer
from tests.servers.process import free_port
from tests.servers.sql import hides

__all__ = ["brisk", "documents", "namespace", "other", "server", "store", "url"]


class TestMongoDB(
    Handles, StoreContract, SegmentsContract, DamageContract, ClockContract, ImportContract
):
    """`MongoDBStore` keeps the contract."""

    def count_segments(self, store: Store) -> int:
        docs = table_of(store).all({"ns": namespace_of(store), "live": 1}, {"c": 1})
        return sum(doc["c"] in ("vector:v", "catalog:v", "segment:v") for doc in docs)

    def _bodies(self, store: Store) -> dict[str, bytes]:
        docs = table_of(store).all({"ns": namespace_of(store), "c": "segment:v"})
        return {doc["_id"]: doc["data"] for doc in docs}

    def held(self, store: Store) -> bytes:
        return b"".join(self._bodies(store).values())

    def alter(self, store: Store) -> None:
        for place, body in self._bodies(store).items():
            table_of(store).update({"_id": place}, {"$set": {"data": body[:-1] + b"!"}})

    def spoil(self, store: Store, what: What) -> None:
        which: Doc
        which, change = {
            "head": ({"c": "head", "id": "s"}, {"about": "{broken", "body": "{broken"}),
            "message": ({"c": "head", "id": "s"}, {"lines.e2.body": "{broken"}),
            "fact": ({"c": "fact:facts", "id": "a"}, {"body": "{broken"}),
            "vector": ({"c": "vector:v", "id": "a"}, {"body": "{broken"}),
            "features": ({"c": "segment:v", "owner": "user:u"}, {"data": b"short"}),
            "catalog": ({"c": "catalog:v", "owner": "user:u"}, {"body": "{broken", "version": 7}),
        }[what]
        which["ns"] = namespace_of(store)
        assert table_of(store).all(which)
        table_of(store).update_all(which, {"$set": change})

    @pytest.fixture
    def opens(self, url: str, namespace: str) -> Callable[[str], Store]:
        return lambda more: MongoDBStore(url, namespace + more)


def test_entries_that_leave_the_tail_keep_their_order(store: Store, other: Store) -> None:
    """Wrong: moving entries out of the tail, or cutting it, loses, duplicates or reorders them."""
    said: list[str] = []

    def say(handle: Store, drafts: list[Draft]) -> None:
        assert handle.append("s", drafts).end == len(said) + len(drafts)
        said.extend(one.message.text().split()[0] for one in drafts)
        assert texts_of(other) == said
        middle = len(said) // 2
        assert [e.seq for e in other.read("s", after=middle, limit=3)] == [
            seq for seq in range(middle + 1, middle + 4) if seq <= len(said)
        ]

    def cut(handle: Store, end: int) -> None:
        assert handle.rewrite(stored(handle), end) is not None
        del said[end:]
        assert texts_of(other) == said
        assert stored(other).total == 3 * len(said)

    for turn in range(2):
        for n in range(3):
            say(store if n % 2 else other, long_drafts(f"{turn}.{n}.", 20))
        say(store, long_drafts(f"{turn}.many.", 60))
        cut(other, len(said) - 20)
        say(other, [draft(f"{turn}.one")])
        cut(store, len(said) - 70)
    cut(store, 3)
    say(other, long_drafts("last.", 40))
    assert [e.message.text().split()[0] for e in store.pick("s", [43, 2, 4])] == [
        said[1], said[3], said[42],
    ]  # fmt: skip


def test_removed_data_leaves_no_trace(store: Store, documents: Callable[[str], list[Doc]]) -> None:
    """Wrong: popped or deleted data stays in the database."""
    store.append("s", long_drafts("gone", 150), "u")
    store.append("s", long_drafts("gone", 30), "u")
    assert store.rewrite(stored(store), 0) is not None
    store.put_records("facts", [record("r", text="gone")])
    store.put_records("facts", [record("q", text="gone")], replacing=("s", 1, 1))
    store.delete_records("facts", session_id="s")
    store.open_vectors("v", 2, "m")
    store.put_vectors("v", [record("r", text="gone")], Features.of_vectors(VECTORS[:1]))
    store.clear_vectors("v")
    store.append("t", long_drafts("gone", 150))
    store.delete("t")
    for name in ("documents", "messages"):
        assert not [doc for doc in documents(name) if "gone" in repr(doc)], name


def test_an_append_larger_than_a_mongodb_document_is_stored(store: Store, other: Store) -> None:
    """Wrong: a list larger than a document's 16 MB is refused, or stored in part."""
    store.append("s", [draft("first")])
    assert store.append("s", [draft(str(n) * 4 * 2**20) for n in range(5)]).end == 6
    said = [e.message.text()[:3] for e in other.read("s")]
    assert said == ["fir", *(str(n) * 3 for n in range(5))]
    assert other.append("s", [draft("last")]).end == 7


class TestLongLogs(Handles, LongLogContract):
    """`MongoDBStore` with many entries in a session."""

    @pytest.fixture
    def opens(self, server: MongoDBServer, namespace: str) -> Callable[[str], Store]:
        self._server, self._namespace = server, namespace
        return lambda more: MongoDBStore(server.url, namespace + more)

    @pytest.fixture
    def steps(self, server: MongoDBServer, store: Store, namespace: str) -> Iterator[Steps]:
        """Counts the commands."""
        link = Link(server.port)
        far = MongoDBStore(server.url_at(link.port, seconds=5), namespace)

        def steps(call: Callable[[Store], Any]) -> int:
            link.act_before(1000, list)
            call(far)
            return 1000 - link._left

        yield steps
        far.close()
        link.close()

    def fill(self, store: Store, session_id: str, count: int) -> None:
        """Write directly to the server's file, because the server is slow."""
        store.append(session_id, [draft("x")])
        self._server.fill(session_id, self._namespace, count, "x")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_shares_no_connection(url: str, namespace: str) -> None:
    """Wrong: parent and child read each other's replies."""
    check_fork(url, namespace)


def test_a_newer_layout_is_refused(server: MongoDBServer) -> None:
    """Wrong: an old release opens the data of a newer one, and damages it."""
    url = server.url.replace("agent_memory_test", "agent_memory_newer")
    MongoDBStore(url).close()
    MongoDBStore(url).close()
    with MongoClient[Doc](url) as client:
        meta = client.get_default_database()["agent_memory_meta"]
        meta.update_one({"_id": "layout"}, {"$set": {"version": 999}})
    with pytest.raises(SchemaTooNew, match="newer"):
        MongoDBStore(url)


def test_concurrent_stores_can_create_the_indexes(url: str) -> None:
    """Wrong: one of several processes that create the indexes together fails."""
    opens = [partial(MongoDBStore, url, uuid4().hex[:8]) for _ in range(4)]
    for opened in together(opens):
        opened.close()


def test_a_closed_store_raises_store_unavailable(url: str, namespace: str) -> None:
    """Wrong: a closed store connects again."""
    store = MongoDBStore(url, namespace)
    store.close()
    for call in (lambda: store.head("s"), lambda: store.append("s", [draft("a")])):
        with pytest.raises(StoreUnavailable, match="closed"):
            call()


_BATCH_SIZE = "serverSelectionTimeoutMS=100"


@pytest.mark.usefixtures("brisk")
class TestMemory(MemoryOutageContract):
    """Over MongoDB's protocol."""

    @pytest.fixture
    def away(self, server: MongoDBServer) -> tuple[Any, str]:
        return server, server.url_at(server.port, seconds=0.2)


@pytest.mark.usefixtures("brisk")
def test_store_reconnects_after_restart(server: MongoDBServer, store: Store, other: Store) -> None:
    """Wrong: after a restart of the server the application must restart, too."""
    store.append("s", [draft("a")], "u")
    server.restart()
    assert store.append("s", [draft("b")], "u").end == 2
    assert [e.message.text() for e in other.read("s")] == ["a", "b"]
    server.kill()
    server.start()
    assert other.append("s", [draft("c")], "u").end == 3
    assert stored(store).end == 3


def test_a_call_to_a_hanging_server_raises_an_error_in_time(
    server: MongoDBServer, store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: an update waits forever, or the next call reads the previous reply."""
    monkeypatch.setitem(connection._SETTINGS, "socketTimeoutMS", 200)
    far = MongoDBStore(f"{server.url}?{_BATCH_SIZE}", namespace)
    far.append("s", [draft("a")])
    with _paused(server):
        for call in (lambda: far.head("s"), lambda: far.append("s", [draft("late")])):
            with pytest.raises(StoreUnavailable, match="Check that it runs") as caught:
                call()
            assert hides(caught.value, "late")
    assert stored(store).session_id == "s"
    head = far.append("s", [draft("b")])
    texts = [entry.message.text() for entry in store.read("s")]
    assert texts in (["a", "b"], ["a", "late", "b"])
    assert head.end == len(texts)
    far.close()


@contextmanager
def _paused(server: MongoDBServer) -> Iterator[None]:
    """Suspend the process for at most a while, with its connections open."""
    process = server._process.pid
    os.kill(process, signal.SIGSTOP)
    again = threading.Timer(20, os.kill, (process, signal.SIGCONT))
    again.start()
    try:
        yield
    finally:
        again.cancel()
        os.kill(process, signal.SIGCONT)


@pytest.mark.parametrize(
    ("rest", "says"),
    [(f"127.0.0.1:{{nobody}}/x?{_BATCH_SIZE}", "Check that it runs"),
     ("127.0.0.1:port/x", "percent-encode"), ("wor@d@127.0.0.1/x", "percent-encode"),
     ("127.0.0.1/a.b", "cannot use the URL"), ("[::1/x", "cannot use the URL")],
)  # fmt: skip
def test_an_unreachable_mongodb_url_raises_an_error_in_time(rest: str, says: str) -> None:
    """Wrong: a wrong URL gives no clear error, waits for minutes, or logs the password."""
    with pytest.raises(StoreUnavailable, match=says) as caught:
        MongoDBStore(f"mongodb://bob:s3cret@{rest}".replace("{nobody}", str(free_port())))
    assert "`store`" in str(caught.value)
    assert hides(caught.value, "s3cret")


@pytest.mark.parametrize("password", ["s3c#ret", "12/s3cret", "12?s3cret", "s3c/ret", "s3c?ret"])
def test_an_unencoded_password_is_not_shown_in_the_error(password: str) -> None:
    """Wrong: the error takes part of the password for the host, and shows it."""
    with pytest.raises(StoreUnavailable) as caught:
        MongoDBStore(f"mongodb://bob:{password}@127.0.0.1:{free_port()}/x?{_BATCH_SIZE}")
    if "#" in password:  # the driver accepts it as it is
        assert "at 127.0.0.1:" in str(caught.value)
        assert "(database 'x')" in str(caught.value)
    else:
        assert "percent-encode" in str(caught.value)
    assert hides(caught.value, "s3c", "12/", "bob:12")


@pytest.mark.parametrize(("code", "says"), [(18, "password"), (13, "readWrite"), (59, "refused")])
def test_a_refused_mongodb_login_is_not_reported_as_an_outage(code: int, says: str) -> None:
    """Wrong: a refused login counts as an outage, or its error shows the password."""
    server = RefusingServer(code)
    with pytest.raises(StoreError, match=says) as caught:
        MongoDBStore(f"mongodb://127.0.0.1:{server.port}/x?appname=s3cret")
    assert isinstance(caught.value, StoreUnavailable) == (code != 59)
    assert hides(caught.value, "s3cret")
    server.close()


def test_database_errors_do_not_contain_messages(store: Store) -> None:
    """Wrong: a database error in a log contains a user's message."""
    with pytest.raises(StoreError) as caught:
        store.put_records("facts", [record("f1", text="my secret " * 2**21)])
    assert hides(caught.value, "secret")
    assert store.records("facts", "user:a") == []
