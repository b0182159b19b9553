"""The public contract suite on PostgreSQL tables that are partitioned as in `docs/growing.md`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing import StoreContract
from agent_memory.testing.contract import draft
from tests.servers.postgres import PostgresServer
from tests.servers.sql import Served, ServerFixtures, opened, serve

pytest.importorskip("psycopg")

_PAGE = Path(__file__).parents[2] / "docs" / "growing.md"
_SQL = _PAGE.read_text("utf-8").partition("```postgresql\n")[2].partition("```")[0]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    for served in serve(PostgresServer, "AGENT_MEMORY_TEST_POSTGRES_DIVIDED"):
        store = SQLStore(served.url, "before")
        store.append("s", [draft("said before")], "ada")
        store.close()
        with opened(served.url) as postgres:
            postgres.read(lambda connection: connection.define(_SQL))
        yield served


class TestPartitionedTables(ServerFixtures, StoreContract):
    """On tables of 16 parts each."""


def test_partitioning_the_tables_keeps_the_data(server: Served) -> None:
    """Wrong: partitioning the tables loses data."""
    store = SQLStore(server.url, "before")
    assert [entry.message.content for entry in store.read("s")] == ["said before"]
    assert store.append("s", [draft("after")], "ada").end == 2
    with opened(server.url) as postgres:
        counted = "SELECT count(*) FROM pg_partitioned_table"
        assert postgres.read(lambda connection: connection.value(counted)) == 2
    store.close()
