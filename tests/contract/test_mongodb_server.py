"""A MongoDB server that is down, restarts, refuses, or cannot be found."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agent_memory.errors import StoreError, StoreUnavailable
from agent_memory.stores.base import Store
from agent_memory.stores.mongodb import connection
from agent_memory.stores.mongodb.store import MongoDBStore
from agent_memory.testing.contract import draft, record, stored
from tests.contract.memory_outage_contract import MemoryOutageContract
from tests.contract.mongodb_suite import brisk, namespace, other, server, store, url
from tests.servers.mongodb import MongoDBServer, RefusingServer
from tests.servers.process import free_port
from tests.servers.sql import told_nothing

_AT_ONCE = "serverSelectionTimeoutMS=100"

__all__ = ["brisk", "namespace", "other", "server", "store", "url"]


@pytest.mark.usefixtures("brisk")
class TestMemory(MemoryOutageContract):
    """Over MongoDB's protocol."""

    @pytest.fixture
    def away(self, server: MongoDBServer) -> tuple[Any, str]:
        return server, server.url_at(server.port, seconds=0.2)


@pytest.mark.usefixtures("brisk")
def test_goes_on_after_a_restart(server: MongoDBServer, store: Store, other: Store) -> None:
    """Wrong: after a restart of the server the application must restart, too."""
    store.append("s", [draft("a")], "u")
    server.restart()
    assert store.append("s", [draft("b")], "u").end == 2
    assert [e.message.text() for e in other.read("s")] == ["a", "b"]
    server.kill()
    server.start()
    assert other.append("s", [draft("c")], "u").end == 3
    assert stored(store).end == 3


def test_a_server_that_hangs(
    server: MongoDBServer, store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: an update waits forever, or the next call reads the previous reply."""
    monkeypatch.setitem(connection._SETTINGS, "socketTimeoutMS", 200)
    far = MongoDBStore(f"{server.url}?{_AT_ONCE}", namespace)
    far.append("s", [draft("a")])
    with _paused(server):
        for call in (lambda: far.head("s"), lambda: far.append("s", [draft("late")])):
            with pytest.raises(StoreUnavailable, match="Check that it runs") as caught:
                call()
            assert told_nothing(caught.value, "late")
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
    [(f"127.0.0.1:{{nobody}}/x?{_AT_ONCE}", "Check that it runs"),
     ("127.0.0.1:port/x", "percent-encode"), ("wor@d@127.0.0.1/x", "percent-encode"),
     ("127.0.0.1/a.b", "cannot use the URL"), ("[::1/x", "cannot use the URL")],
)  # fmt: skip
def test_urls_that_lead_nowhere(rest: str, says: str) -> None:
    """Wrong: a wrong URL gives no clear error, waits for minutes, or logs the password."""
    with pytest.raises(StoreUnavailable, match=says) as caught:
        MongoDBStore(f"mongodb://bob:s3cret@{rest}".replace("{nobody}", str(free_port())))
    assert "`store`" in str(caught.value)
    assert told_nothing(caught.value, "s3cret")


@pytest.mark.parametrize("password", ["s3c#ret", "12/s3cret", "12?s3cret", "s3c/ret", "s3c?ret"])
def test_a_password_that_is_not_encoded(password: str) -> None:
    """Wrong: the error takes part of the password for the host, and shows it."""
    with pytest.raises(StoreUnavailable) as caught:
        MongoDBStore(f"mongodb://bob:{password}@127.0.0.1:{free_port()}/x?{_AT_ONCE}")
    if "#" in password:  # the driver accepts it as it is
        assert "at 127.0.0.1:" in str(caught.value)
        assert "(database 'x')" in str(caught.value)
    else:
        assert "percent-encode" in str(caught.value)
    assert told_nothing(caught.value, "s3c", "12/", "bob:12")


@pytest.mark.parametrize(("code", "says"), [(18, "password"), (13, "readWrite"), (59, "refused")])
def test_a_server_that_refuses(code: int, says: str) -> None:
    """Wrong: a refused login counts as an outage, or its error shows the password."""
    server = RefusingServer(code)
    with pytest.raises(StoreError, match=says) as caught:
        MongoDBStore(f"mongodb://127.0.0.1:{server.port}/x?appname=s3cret")
    assert isinstance(caught.value, StoreUnavailable) == (code != 59)
    assert told_nothing(caught.value, "s3cret")
    server.close()


def test_errors_do_not_tell_messages(store: Store) -> None:
    """Wrong: a database error in a log contains a user's message."""
    with pytest.raises(StoreError) as caught:
        store.put_records("facts", [record("f1", text="my secret " * 2**21)])
    assert told_nothing(caught.value, "secret")
    assert store.records("facts", "user:a") == []
