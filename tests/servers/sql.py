"""Fixtures for the tests of SQL servers: the server, proxies to it, and processes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from agent_memory.stores.base import Durability, Store
from agent_memory.stores.sql.server import ServerDatabase
from agent_memory.stores.sql.store import SQLStore, open_server
from tests.kit import Handles
from tests.servers.line import Line
from tests.servers.process import CannotStart, untested


@dataclass
class Served:
    """The server of the tests. `own` is None if it is the user's."""

    url: str
    own: Any = None

    def private(self) -> Any:
        """Return the private server, for tests that stop it or create users."""
        if self.own is None:
            pytest.skip(
                "NOT TESTED: this stops the server or makes users, and it is not the suite's"
            )
        return self.own


def serve(kind: Callable[[], Any], variable: str) -> Iterator[Served]:
    """Yield the server that an environment variable names, or a private one."""
    given = os.environ.get(variable)
    if given:
        yield Served(given)
        return
    try:
        own = kind()
        own.start()
    except CannotStart as reason:
        untested(kind.__name__, reason)
    yield Served(own.url, own)
    own.remove()


def empty_database(server: Served) -> str:
    """Yield the URL of a new database on the private server."""
    own, name = server.private(), f"empty_{uuid4().hex}"
    execute(own.url, f"CREATE DATABASE {name}")
    return own.url_of(name)


class ServerFixtures(Handles):
    """Handles on the test's own namespace."""

    @pytest.fixture
    def namespace(self) -> str:
        return uuid4().hex

    @pytest.fixture
    def opens(self, server: Served, namespace: str) -> Callable[[str], Store]:
        return lambda more: SQLStore(server.url, namespace + more)


def started(code: str, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", code, *args]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> None:
    """Wait for the process. It must end without an error."""
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, errors) == (0, "")


@contextmanager
def opened(url: str, durability: Durability = "process") -> Iterator[ServerDatabase]:
    """Yield the database of a URL, for a test's own statements."""
    database = open_server(url, durability)
    yield database
    database.close()


def execute(url: str, *statements: str) -> None:
    with opened(url) as database:
        for text in statements:
            database.read(lambda c, text=text: c.value(text))


@contextmanager
def line_to(own: Any) -> Iterator[Any]:
    """Yield a proxy to a private server. Its `url` names that server's database."""
    line = Line(own.port)
    line.url = own.url.replace(f":{own.port}/", f":{line.port}/")
    yield line
    line.close()


def scheme_of(url: str) -> str:
    return url.partition("://")[0]


def hides(error: BaseException | None, *secrets: str) -> bool:
    """Return whether no error of the chain contains a secret."""
    told = ""
    while error is not None:
        told += f"{error!r} {error}"
        error = error.__cause__ or error.__context__
    return not any(secret in told for secret in ("s3cr3t", "tiger", *secrets))
