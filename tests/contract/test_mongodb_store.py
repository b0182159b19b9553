"""The contract suite over MongoDB's wire protocol, and what only a MongoDB store does.

It runs on a private nx-27017, which speaks the protocol over SQLite and is not MongoDB's own
server. Set AGENT_MEMORY_TEST_MONGODB to a server's URL to run it there; its user must be allowed to
make and drop a database `agent_memory_test_...`. What stops the server is skipped then.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import numpy as np
import pymongo.common
import pytest
from pymongo import MongoClient

from agent_memory.errors import (
    LeaseLost,
    SchemaTooNew,
    SessionDeleting,
    StoreError,
    StoreUnavailable,
)
from agent_memory.messages import Message
from agent_memory.records import Draft, Head, Lease
from agent_memory.stores.base import Counts, Store
from agent_memory.stores.mongodb.store import MongoDBStore
from agent_memory.testing import (
    FactStoreContract,
    SessionStoreContract,
    VectorStoreContract,
    WorkStoreContract,
)
from agent_memory.testing.contract import DAY, draft, record, stored, together
from tests.servers.mongodb import Link, MongoDBServer, RefusingServer
from tests.servers.process import CannotStart, free_port, untested

Doc = dict[str, Any]

THEIRS = os.environ.get("AGENT_MEMORY_TEST_MONGODB")
_VECTORS = np.eye(2, dtype=np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoDBServer]:
    """The suite's own server."""
    if THEIRS:
        pytest.skip("needs a server of its own, and AGENT_MEMORY_TEST_MONGODB names somebody's")
    try:
        server = MongoDBServer(tmp_path_factory.mktemp("mongodb"))
        server.start()
    except CannotStart as error:
        untested("MongoDB's protocol", error)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the module's own."""
    if not THEIRS:
        server: MongoDBServer = request.getfixturevalue("server")
        yield server.url
        return
    name = f"agent_memory_test_{uuid4().hex[:8]}"
    yield urlunsplit(urlsplit(THEIRS)._replace(path=f"/{name}"))
    with MongoClient[Doc](THEIRS) as client:
        client.drop_database(name)


@pytest.fixture
def namespace() -> str:
    return uuid4().hex[:8]


@pytest.fixture
def store(url: str, namespace: str) -> Iterator[Store]:
    store = MongoDBStore(url, namespace)
    yield store
    store.close()


@pytest.fixture
def other(url: str, store: Store, namespace: str) -> Iterator[Store]:
    other = MongoDBStore(url, namespace)
    yield other
    other.close()


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that looks for a lost server again and again, not twice a second."""
    monkeypatch.setattr(pymongo.common, "MIN_HEARTBEAT_INTERVAL", 0.02)


@pytest.fixture
def documents(url: str) -> Iterator[Callable[[str], list[Doc]]]:
    """What stands in a collection."""
    with MongoClient[Doc](url) as client:
        database = client.get_default_database()
        yield lambda name: list(database[f"agent_memory_{name}"].find())


class TestMongoDB(SessionStoreContract, FactStoreContract, VectorStoreContract, WorkStoreContract):
    """`MongoDBStore` keeps the contract."""

    @pytest.fixture
    def store(self, url: str, namespace: str) -> Iterator[Store]:
        store = MongoDBStore(url, namespace)
        yield store
        store.close()

    @pytest.fixture
    def other(self, url: str, store: Store, namespace: str) -> Iterator[Store]:
        other = MongoDBStore(url, namespace)
        yield other
        other.close()

    @pytest.fixture
    def elsewhere(self, url: str, store: Store, namespace: str) -> Iterator[Store]:
        elsewhere = MongoDBStore(url, f"{namespace}-2")
        yield elsewhere
        elsewhere.close()


def _long(name: str, count: int) -> list[Draft]:
    return [draft(f"{name}{n} " + "x" * 1000) for n in range(count)]


def _texts(store: Store) -> list[str]:
    return [entry.message.text().split()[0] for entry in store.read("s")]


def test_entries_in_the_tail_and_on_their_own(store: Store, other: Store) -> None:
    """Else: entries are lost, doubled or out of order where the tail was spilled or cut."""
    said: list[str] = []

    def say(handle: Store, drafts: list[Draft]) -> None:
        assert handle.append("s", drafts).end == len(said) + len(drafts)
        said.extend(one.message.text().split()[0] for one in drafts)
        assert _texts(other) == said
        middle = len(said) // 2
        assert [e.seq for e in other.read("s", after=middle, limit=3)] == [
            seq for seq in range(middle + 1, middle + 4) if seq <= len(said)
        ]

    def cut(handle: Store, end: int) -> None:
        assert handle.truncate(stored(handle), end) is not None
        del said[end:]
        assert _texts(other) == said
        assert stored(other).total == 3 * len(said)

    for turn in range(2):
        for n in range(3):
            say(store if n % 2 else other, _long(f"{turn}.{n}.", 20))
        say(store, _long(f"{turn}.many.", 60))
        cut(other, len(said) - 20)
        say(other, [draft(f"{turn}.one")])
        cut(store, len(said) - 70)
    cut(store, 3)
    say(other, _long("last.", 40))
    assert [e.message.text().split()[0] for e in store.pick("s", [43, 2, 4])] == [
        said[1], said[3], said[42],
    ]  # fmt: skip


def test_nothing_is_left_of_what_was_removed(
    store: Store, documents: Callable[[str], list[Doc]]
) -> None:
    """Else: what a user took back or deleted stays in the database, out of sight."""
    store.append("s", _long("gone", 150), "u")
    store.append("s", _long("gone", 30), "u")
    assert store.truncate(stored(store), 0) is not None
    store.put_facts("facts", [record("r", text="gone")])
    store.put_facts("facts", [record("q", text="gone")], replacing=("s", 1, 1))
    store.delete_facts("facts", session_id="s")
    store.open_vectors("v", 2, "m")
    store.put_vectors("v", [record("r", text="gone")], _VECTORS[:1])
    store.clear_vectors("v")
    store.append("t", _long("gone", 150))
    store.delete("t")
    for name in ("sessions", "entries", "facts", "vectors", "scopes"):
        assert not [doc for doc in documents(name) if "gone" in repr(doc)], name


def test_a_list_larger_than_a_document(store: Store, other: Store) -> None:
    """Else: a list that passes the 16 MB of a document is refused, or stored in part."""
    store.append("s", [draft("first")])
    assert store.append("s", [draft(str(n) * 4 * 2**20) for n in range(5)]).end == 6
    assert [e.message.text()[:3] for e in other.read("s")][1:] == [
        "000",
        "111",
        "222",
        "333",
        "444",
    ]
    assert other.append("s", [draft("last")]).end == 7


def test_100_000_entries(server: MongoDBServer, store: Store, namespace: str) -> None:
    """Else: a long session is not read by pages, or each append reads it."""
    store.append("s", [draft("x")])
    server.fill("s", namespace, 100_000, Message(role="user", content="x").to_json())
    assert store.append("s", [draft("new")]).end == 100_001
    assert store.append("s", [draft("newer")]).total == 300_006
    assert [e.seq for e in store.read("s", after=49_998, limit=3)] == [49_999, 50_000, 50_001]
    assert [e.message.text() for e in store.read("s", after=99_999)] == ["x", "new", "newer"]
    assert [e.seq for e in store.pick("s", [1, 77_777, 100_002])] == [1, 77_777, 100_002]
    store.delete("s")
    assert store.counts() == Counts(0, 0)


def _state(store: Store) -> Any:
    """All of a session and of what derives from it, but for its version and its time."""
    head = store.head("s")
    owners = ("user:a", "user:b")
    found = [store.search_vectors("v", owner, _VECTORS[0], 9) for owner in owners]
    return (
        head and replace(head, version=0, created_at=DAY),
        [(e.seq, e.total, e.message.text()) for e in store.read("s")],
        [store.facts("facts", owner) for owner in owners],
        [[one for one, _ in records] for records in found],
    )


def _put_facts(store: Store, lease: Lease | None) -> None:
    new = [record("f1", text="new", owner="user:b"), record("f9", last=9)]
    store.put_facts("facts", new, replacing=("s", 2, 2), lease=lease)


def _put_vectors(store: Store, lease: Lease) -> None:
    store.open_vectors("v", 2, "m")
    new = [record("v1", text="new", owner="user:b"), record("v9")]
    store.put_vectors("v", new, _VECTORS, lease=lease)


def _truncate(store: Store, lease: Lease) -> Head | None:
    head = store.head("s")
    return None if head is None else store.truncate(head, 10, lease=lease)


_WORK: dict[str, tuple[int, Callable[[Store, Lease], Any]]] = {
    "begin": (0, lambda store, _: store.append("s", [draft("c")])),
    "append": (1, lambda store, _: store.append("s", [draft("c")])),
    "append many": (1, lambda store, _: store.append("s", _long("c", 70))),
    "append and spill": (50, lambda store, _: store.append("s", _long("c", 20))),
    "truncate": (130, _truncate),
    "put facts": (1, _put_facts),
    "put facts without a lease": (1, lambda store, _: _put_facts(store, None)),
    "put vectors": (1, _put_vectors),
}


def _prepared(store: Store, count: int) -> None:
    store.open_vectors("v", 2, "m")
    if count:
        store.append("s", _long("a", count))
        store.append("s", _long("b", 1))
        assert store.lease("s", "w1", 0)
    store.put_facts("facts", [record(f"f{n}", last=n) for n in range(1, 4)])
    store.put_vectors("v", [record("v1"), record("v2", owner="user:b")], _VECTORS)


@pytest.mark.usefixtures("brisk")
@pytest.mark.parametrize("name", _WORK)
def test_cut_off_at_any_command(server: MongoDBServer, name: str) -> None:
    """Else: a part of a write is there, or what is left of it bars the way, or comes back."""
    count, work = _WORK[name]
    model = MongoDBStore(server.url, uuid4().hex[:8])
    _prepared(model, count)
    before = _state(model)
    work(model, Lease("s", "w1"))
    after = _state(model)
    model.close()
    assert after != before
    for command in range(1, 30):
        namespace = uuid4().hex[:8]
        direct = MongoDBStore(server.url, namespace)
        link = Link(server.port)
        far = MongoDBStore(server.url_at(link.port), namespace)
        _prepared(direct, count)
        link.break_at(command, for_good=True)
        try:
            work(far, Lease("s", "w1"))
            failed = False
        except StoreUnavailable:
            failed = True
        broke = link.came
        link.close()
        far.close()
        direct.lease("s", "w2", 0)
        cut = _state(direct)
        assert cut == _state(direct)
        assert cut in (before, after)
        assert failed or cut == after
        if cut == before:
            work(direct, Lease("s", "w2"))
            assert _state(direct) == after
        texts = _texts(direct)
        direct.append("s", on := _long("on", 100))
        assert _texts(direct) == texts + [one.message.text().split()[0] for one in on]
        direct.close()
        if not broke:
            return
    pytest.fail("it never came to an end")


@pytest.mark.usefixtures("brisk")
@pytest.mark.parametrize("name", ["begin", "append", "append many", "truncate"])
def test_a_write_whose_answer_is_lost_is_done_once(server: MongoDBServer, name: str) -> None:
    """Else: a message is stored twice, or refused though it is stored."""
    count, work = _WORK[name]
    for command in range(1, 6):
        link = Link(server.port)
        far = MongoDBStore(server.url_at(link.port, seconds=5), uuid4().hex[:8])
        _prepared(far, count)
        end = len(far.read("s"))
        link.break_at(command, for_good=False)
        assert work(far, Lease("s", "w1")) is not None
        texts = _texts(far)
        expected = {"begin": 1, "append": end + 1, "append many": end + 70, "truncate": 10}[name]
        assert len(texts) == expected == stored(far).end
        assert len(set(texts)) == len(texts)
        far.close()
        link.close()


_MEANWHILE: dict[str, Callable[[Store], Any]] = {
    "read": _state,
    "append": lambda store: store.append("s", _long("d", 60)),
    "cut": lambda store: store.truncate(stored(store), 40),
    "cut and append": lambda s: (s.truncate(stored(s), 40), s.append("s", _long("d", 90))),
    "delete": lambda store: store.delete("s"),
    "begin anew": lambda store: (store.delete("s"), store.append("s", _long("d", 3))),
}


_PAIRS = [
    *((name, "append") for name in ("append many", "append and spill", "truncate")),
    *(("append and spill", meanwhile) for meanwhile in ("cut", "cut and append", "delete")),
    *(("truncate", meanwhile) for meanwhile in ("cut and append", "begin anew")),
    *(("put facts", meanwhile) for meanwhile in ("read", "delete")),
]


@pytest.mark.parametrize(("name", "meanwhile"), _PAIRS)
def test_others_act_between_any_two_commands(
    server: MongoDBServer, url: str, name: str, meanwhile: str
) -> None:
    """Else: a log with gaps or doubles, a write in part, or documents that nobody reads again."""
    count, work = _WORK[name]
    with MongoClient[Doc](url) as client:
        client.get_default_database()["agent_memory_entries"].delete_many({})
    for command in range(1, 30):
        namespace = uuid4().hex[:8]
        direct = MongoDBStore(url, namespace)
        link = Link(server.port)
        far = MongoDBStore(server.url_at(link.port), namespace)
        _prepared(direct, max(count, 50))
        link.act_before(command, partial(_MEANWHILE[meanwhile], direct))
        with suppress(LeaseLost, SessionDeleting):
            work(far, Lease("s", "w1"))
        entries = direct.read("s")
        assert [(e.seq, e.total) for e in entries] == [
            (n + 1, 3 * n + 3) for n in range(len(entries))
        ]
        assert len({e.message.text() for e in entries}) == len(entries)
        facts = [r.id for owner in ("user:a", "user:b") for r in direct.facts("facts", owner)]
        assert facts in (["f1", "f2", "f3"], ["f9", "f1"])
        if meanwhile == "read" and name == "put facts":
            assert facts == ["f9", "f1"]
        if meanwhile in ("read", "append") and name.startswith("append"):
            assert {one.message.text() for one in entries} >= {
                one.message.text() for one in _long("c", 20)
            }
        came = link.came
        direct.delete("s")
        far.close()
        link.close()
        direct.close()
        with MongoClient[Doc](url) as client:
            assert not list(client.get_default_database()["agent_memory_entries"].find(limit=3))
        if not came:
            return
    pytest.fail("it never came to an end")


def test_goes_on_after_a_restart(server: MongoDBServer, store: Store, other: Store) -> None:
    """Else: a restart of the server needs one of the application."""
    store.append("s", [draft("a")], "u")
    server.restart()
    assert store.append("s", [draft("b")], "u").end == 2
    assert [e.message.text() for e in other.read("s")] == ["a", "b"]
    server.kill()
    server.start()
    assert other.append("s", [draft("c")], "u").end == 3
    assert stored(store).end == 3


def test_a_server_that_goes_away(server: MongoDBServer, namespace: str) -> None:
    """Else: a call hangs, or a driver's error reaches the caller."""
    store = MongoDBStore(server.url_at(server.port, seconds=0.2), namespace)
    store.append("s", [draft("a")])
    server.stop()
    try:
        for call in (lambda: store.append("s", [draft("b")]), lambda: store.head("s")):
            with pytest.raises(StoreUnavailable, match="Check that it runs"):
                call()
    finally:
        server.start()
    assert store.append("s", [draft("b")]).end == 2
    store.close()


def test_processes_append_at_once(url: str, store: Store, namespace: str) -> None:
    """Else: processes lose or double each other's messages, or leave gaps."""
    code = (
        "import sys\n"
        "from agent_memory.stores.mongodb.store import MongoDBStore\n"
        "from agent_memory.testing.contract import draft\n"
        "store = MongoDBStore(sys.argv[1], sys.argv[2])\n"
        "for n in range(30):\n"
        "    store.append('s', [draft(f'{sys.argv[3]}.{n} ' + 'x' * 2000)] * 2)\n"
        "store.close()\n"
    )
    command = [sys.executable, "-c", code, url, namespace]
    writers = [subprocess.Popen([*command, name]) for name in ("a", "b")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    entries = store.read("s")
    assert [e.seq for e in entries] == list(range(1, 121))
    assert [e.total for e in entries] == list(range(3, 361, 3))
    texts = _texts(store)
    assert texts[::2] == texts[1::2]
    for name in ("a", "b"):
        mine = [text for text in texts[::2] if text.startswith(name)]
        assert mine == [f"{name}.{n}" for n in range(30)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_shares_no_connection(url: str, namespace: str) -> None:
    """Else: parent and child read each other's answers."""
    code = (
        "import os, sys\n"
        "from agent_memory.stores.mongodb.store import MongoDBStore\n"
        "from agent_memory.testing.contract import draft\n"
        "store = MongoDBStore(sys.argv[1], sys.argv[2])\n"
        "store.append('s', [draft('a')])\n"
        "child = os.fork()\n"
        "for n in range(20):\n"
        "    store.append('s', [draft(f'{child == 0}{n}')])\n"
        "store.close()\n"
        "if child:\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code, url, namespace],
                   check=True, timeout=60)  # fmt: skip
    store = MongoDBStore(url, namespace)
    assert len(set(_texts(store))) == stored(store).end == 41
    store.close()


def _told(error: BaseException) -> str:
    """What a log shows of an error and its causes, but for lines of code."""
    return "".join(traceback.format_exception(error, limit=0))


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        (f"127.0.0.1:{free_port()}/x?serverSelectionTimeoutMS=100", "Check that it runs"),
        ("127.0.0.1:port/x", "percent-encode"),
        ("wor@d@127.0.0.1/x", "percent-encode"),
        ("127.0.0.1/a.b", "cannot use the URL"),
        ("[::1/x", "cannot use the URL"),
    ],
)
def test_urls_that_lead_nowhere(rest: str, says: str) -> None:
    """Else: the user learns nothing, waits for minutes, or finds the password in the log."""
    with pytest.raises(StoreUnavailable, match=says) as caught:
        MongoDBStore(f"mongodb://bob:s3cret@{rest}")
    assert "`store`" in str(caught.value)
    assert "s3cret" not in _told(caught.value)


@pytest.mark.parametrize(("code", "says"), [(18, "password"), (13, "readWrite"), (59, "refused")])
def test_a_server_that_refuses(code: int, says: str) -> None:
    """Else: a wrong password or a missing permission is taken for an outage, or is printed."""
    server = RefusingServer(code)
    with pytest.raises(StoreError, match=says) as caught:
        MongoDBStore(f"mongodb://127.0.0.1:{server.port}/x?appname=s3cret")
    assert isinstance(caught.value, StoreUnavailable) == (code != 59)
    assert "s3cret" not in _told(caught.value)
    server.close()


def test_errors_do_not_tell_messages(store: Store) -> None:
    """Else: what users said turns up in logs of database errors."""
    with pytest.raises(StoreError) as caught:
        store.append("s", [draft("my secret " * 2**21)])
    assert "secret" not in _told(caught.value)
    assert store.head("s") is None


def test_a_newer_layout_is_refused(server: MongoDBServer) -> None:
    """Else: an old release reads what a newer one wrote, and spoils it."""
    url = server.url.replace("agent_memory_test", "agent_memory_newer")
    MongoDBStore(url).close()
    MongoDBStore(url).close()
    with MongoClient[Doc](url) as client:
        meta = client.get_default_database()["agent_memory_meta"]
        meta.update_one({"_id": "layout"}, {"$set": {"version": 2}})
    with pytest.raises(SchemaTooNew, match="newer"):
        MongoDBStore(url)


def test_two_that_start_at_once(url: str) -> None:
    """Else: of two processes that make the indexes at once one fails."""
    opens = [partial(MongoDBStore, url, uuid4().hex[:8]) for _ in range(4)]
    for store in together(opens):
        store.close()


def test_a_closed_store_says_so(url: str, namespace: str) -> None:
    """Else: a background thread connects again behind a closed store."""
    store = MongoDBStore(url, namespace)
    store.close()
    for call in (lambda: store.head("s"), lambda: store.append("s", [draft("a")])):
        with pytest.raises(StoreUnavailable, match="closed"):
            call()
