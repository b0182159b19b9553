"""Fixtures for the tests of the MongoDB store: a server, a database and handles.

The server is a private nx-27017, which speaks the protocol over SQLite and is not MongoDB's own
server. Set AGENT_MEMORY_TEST_MONGODB to a server's URL to run the contract there. Its user must be
allowed to create and drop a database `agent_memory_test_...`. Tests that stop the server are
skipped then.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import numpy as np
import pymongo.common
import pytest
from pymongo import MongoClient
from tenacity import Retrying, stop_after_delay

from agent_memory.core.records import Draft
from agent_memory.stores.base import Store
from agent_memory.stores.mongodb.connection import Table
from agent_memory.stores.mongodb.kernel import MongoDBKernel, MongoDBStore
from agent_memory.testing.contract import draft
from tests.servers.mongodb import Link, MongoDBServer
from tests.servers.process import CannotStart, untested

Doc = dict[str, Any]

THEIRS = os.environ.get("AGENT_MEMORY_TEST_MONGODB")
VECTORS = np.eye(2, dtype=np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoDBServer]:
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
    """The URL of the module's own database."""
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
    """Make the driver look for a lost server continuously, not twice a second."""
    monkeypatch.setattr(pymongo.common, "MIN_HEARTBEAT_INTERVAL", 0.02)


@pytest.fixture
def documents(url: str) -> Iterator[Callable[[str], list[Doc]]]:
    with MongoClient[Doc](url) as client:
        database = client.get_default_database()
        yield lambda name: list(database[f"agent_memory_{name}"].find())


@contextmanager
def linked(
    server: MongoDBServer, namespace: str = "", **how: Any
) -> Iterator[tuple[MongoDBStore, MongoDBStore, Link]]:
    """Yield a store on the server, one of the same namespace behind a proxy, and the proxy."""
    namespace, link = namespace or uuid4().hex[:8], Link(server.port)
    patient = Retrying(stop=stop_after_delay(20), reraise=True)  # the limit of `url_at` is short
    with (
        closing(link),
        closing(MongoDBStore(server.url, namespace)) as direct,
        closing(patient(MongoDBStore, server.url_at(link.port, **how), namespace)) as far,
    ):
        yield direct, far, link


def long_drafts(name: str, count: int) -> list[Draft]:
    return [draft(f"{name}{n} " + "x" * 1000) for n in range(count)]


def texts_of(store: Store) -> list[str]:
    return [entry.message.text().split()[0] for entry in store.read("s")]


def kernel_of(store: Store) -> MongoDBKernel:
    return store._kernel


def table_of(store: Store) -> Table:
    return kernel_of(store).table


def namespace_of(store: Store) -> str:
    return kernel_of(store)._namespace
