"""An empty store, embedded or on a server, for tests of the engine on any of them."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from agent_memory import AgentMemory
from agent_memory.stores import Store, open_store
from agent_memory.testing import FakeLLM
from tests.servers.mariadb import MariaDBServer
from tests.servers.mongodb import MongoDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import CannotStart, PrivateServer, untested
from tests.servers.redis import RedisServer, redis_binaries
from tests.servers.sql import serve

KINDS = ("sqlite", "redis", "mongodb")
"""One store for each way to commit: transactions, scripts, and writes of single documents. The
contract suites run on every store."""


def _private(kind: str, variable: str, start: Callable[[], PrivateServer]) -> Iterator[str]:
    given = os.environ.get(variable)
    if given:
        yield given
        return
    try:
        server = start()
        server.start()
    except CannotStart as reason:
        untested(kind, reason)
    yield server.url
    server.stop()


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    def start() -> PrivateServer:
        return RedisServer(tmp_path_factory.mktemp("redis"), next(iter(redis_binaries().values())))

    yield from _private("Redis", "AGENT_MEMORY_TEST_REDIS", start)


@pytest.fixture(scope="module")
def mongodb_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the suite's own server: on another one databases would be left."""
    variable = "AGENT_MEMORY_TEST_MONGODB"
    if os.environ.get(variable):
        pytest.skip(f"NOT TESTED: {variable} names a server that is not ours")
    yield from _private(
        "MongoDB's protocol", "", lambda: MongoDBServer(tmp_path_factory.mktemp("mongodb"))
    )


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    pytest.importorskip("psycopg")
    yield from (one.url for one in serve(PostgresServer, "AGENT_MEMORY_TEST_POSTGRES"))


@pytest.fixture(scope="module")
def mysql_url() -> Iterator[str]:
    pytest.importorskip("pymysql")
    yield from (one.url for one in serve(MariaDBServer, "AGENT_MEMORY_TEST_MYSQL"))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/m.db"


@pytest.fixture
def memory(url: str) -> Iterator[AgentMemory]:
    """A memory without blocks."""
    with AgentMemory(store=url, blocks=[]) as opened:
        yield opened


@pytest.fixture
def fake() -> Iterator[FakeLLM]:
    """A model server, scripted by the test."""
    with FakeLLM() as server:
        yield server


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have calls that wait for another's change poll often."""
    monkeypatch.setattr("agent_memory.engine.leases._MOST_PAUSE_SECONDS", 0.02)


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let leases expire quickly, so that others take over interrupted work."""
    monkeypatch.setattr("agent_memory.engine.leases.LEASE_SECONDS", 0.005)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    kind, namespace = request.param, f"facts{uuid4().hex}"
    on_disk = f"sqlite:///{tmp_path}/facts.db"
    url = on_disk if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
    opened = open_store(url, namespace)
    yield opened
    opened.close()
