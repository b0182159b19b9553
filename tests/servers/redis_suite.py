"""Fixtures for the tests of the Redis store: started servers, and the contract."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest

from agent_memory.stores.base import Store
from agent_memory.stores.redis.kernel import RedisStore
from agent_memory.testing import StoreContract
from tests.contract.import_contract import ImportContract
from tests.contract.whole_deletion_contract import WholeDeletionContract
from tests.kit import Handles
from tests.servers.process import CannotStart, untested
from tests.servers.redis import RedisNodes, RedisServer, redis_binaries

S = TypeVar("S", RedisServer, RedisNodes)

GIVEN = os.environ.get("AGENT_MEMORY_TEST_REDIS")
"""The user's server, to test on instead of a private one."""


def available() -> dict[str, Path]:
    """Return servers by name. Without one, the tests fail in CI and are skipped elsewhere."""
    if GIVEN:
        pytest.skip("NOT TESTED: AGENT_MEMORY_TEST_REDIS names a server that is not ours to stop")
    try:
        return redis_binaries()
    except CannotStart as error:
        untested("Redis", error)


def begun(make: Callable[[Path], S]) -> S:
    server = make(next(iter(available().values())))
    server.start()
    return server


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the server that the environment names, or of a private one."""
    if GIVEN:
        yield GIVEN
        return
    folder = tmp_path_factory.mktemp("redis")
    server = begun(lambda binary: RedisServer(folder, binary))
    yield server.url
    server.stop()


@pytest.fixture
def namespace() -> str:
    return f"test {uuid4().hex}"


Start = Callable[..., RedisServer]
"""Starts a server of the test's own, with settings, and `user="user:password@"` of its URL."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start servers that are stopped after the test."""
    servers: list[RedisServer] = []

    def started(*options: str, user: str = "") -> RedisServer:
        servers.append(begun(lambda binary: RedisServer(tmp_path, binary, options, user)))
        return servers[-1]

    yield started
    for one in servers:
        one.stop()


@pytest.fixture
def server(start: Start) -> RedisServer:
    """A server that a test may stop, kill and configure."""
    return start()


@pytest.fixture
def store(server: RedisServer) -> Iterator[RedisStore]:
    """A store on the test's own server."""
    with closing(RedisStore(server.url)) as store:
        yield store


class RedisContract(Handles, StoreContract, ImportContract, WholeDeletionContract):
    """Contract of a `RedisStore` on the server at `url`."""

    @pytest.fixture
    def opens(self, url: str, namespace: str) -> Callable[[str], Store]:
        return lambda more: RedisStore(url, namespace + more)
