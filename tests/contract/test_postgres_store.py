"""The contract suite on PostgreSQL, and what only it does."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest

from agent_memory.errors import ConfigError, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.kernel.contract import DocId
from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.server import ServerConnection, ServerDatabase
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import draft, record, worded
from tests.contract.sql_migration_contract import MigrationContract
from tests.contract.sql_outage_contract import OutageContract
from tests.contract.sql_server_contract import ServerContract
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.servers.sql import Served, empty_database, opened, serve

pytest.importorskip("psycopg")


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    yield from serve(PostgresServer, "AGENT_MEMORY_TEST_POSTGRES")


@pytest.fixture
def database(server: Served) -> str:
    """The URL of an empty database."""
    return empty_database(server)


class TestPostgres(ServerContract):
    """On PostgreSQL."""


class TestPostgresOutages(OutageContract):
    """On PostgreSQL."""


class TestPostgresMigrations(MigrationContract):
    """On PostgreSQL."""


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_schemes(server: Served, scheme: str) -> None:
    """Else: a URL as SQLAlchemy or a hosting service writes it has to be rewritten."""
    url = f"{scheme}://{server.url.partition('://')[2]}"
    SQLStore(url, uuid4().hex).close()


def test_who_may_not_make_tables(server: Served, database: str) -> None:
    """Else: a missing permission is a driver's error that names no setting."""
    own = server.private()
    guest = f"guest_{uuid4().hex}"
    with opened(database) as postgres:
        for statement in (
            f"CREATE ROLE {guest} LOGIN PASSWORD '{PASSWORD}'",
            "REVOKE CREATE ON SCHEMA public FROM public",
        ):
            postgres.read(lambda c, statement=statement: c.value(statement))
    url = own.url_of(database.rpartition("/")[2], user=guest)
    with pytest.raises(StoreUnavailable, match=r"permission denied .*setting `store`"):
        SQLStore(url)
    SQLStore(database).close()
    with pytest.raises(StoreUnavailable, match=r"permission denied .*Grant it"):
        SQLStore(url)


def test_a_database_of_another_encoding(server: Served) -> None:
    """Else: messages are refused later, one by one, for their characters."""
    own, name = server.private(), f"latin_{uuid4().hex}"
    latin = f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'"
    with opened(own.url) as postgres:
        postgres.read(lambda c: c.value(latin))
    with pytest.raises(ConfigError, match="LATIN1"):
        SQLStore(own.url_of(name))


@pytest.mark.parametrize(("durability", "commit"), [("process", "off"), ("power", "on")])
def test_durability_is_the_one_asked_for(
    server: Served, database: str, durability: Durability, commit: str
) -> None:
    """Else: an update that was to survive a power loss is only in the server's memory."""
    server.private()
    with opened(database) as postgres:
        name = database.rpartition("/")[2]
        off = f"ALTER DATABASE {name} SET synchronous_commit = off"
        postgres.read(lambda c: c.value(off))
    with opened(database, durability) as postgres:
        assert postgres.read(lambda c: c.value("SHOW synchronous_commit")) == commit


def test_settings_of_the_user_do_not_matter(server: Served, database: str) -> None:
    """Else: fences that rely on what a statement sees fall where a database is set up otherwise."""
    server.private()
    name = database.rpartition("/")[2]
    with opened(database) as postgres:
        for setting in (
            "default_transaction_isolation = 'serializable'", "statement_timeout = 9000",
            "client_encoding = 'latin1'", "standard_conforming_strings = off",
        ):  # fmt: skip
            text = f"ALTER DATABASE {name} SET {setting}"
            postgres.read(lambda c, text=text: c.value(text))
    with opened(database) as postgres:
        assert postgres.read(lambda c: c.value("SHOW transaction_isolation")) == "read committed"
        assert postgres.read(lambda c: c.value("SHOW statement_timeout")) == "20s"
    store = SQLStore(database)
    store.append("s", [draft("\\ ' 😀")])
    assert [e.message.content for e in store.read("s")] == ["\\ ' 😀"]
    store.close()


def test_who_waits_too_long(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else: a forgotten transaction of somebody's stops all writers of a session for ever."""
    monkeypatch.setattr("agent_memory.stores.sql.postgres.LOCK_SECONDS", 1)
    namespace = uuid4().hex
    store = SQLStore(server.url, namespace)
    store.append("s", [draft("a")])
    held = "SELECT id FROM agent_memory_documents WHERE namespace = ? AND id = 's' FOR UPDATE"

    def hold(connection: SQLConnection) -> None:
        assert connection.rows(held, [namespace])
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            store.append("s", [draft("b")])

    with opened(server.url) as postgres:
        postgres.write(hold)
    assert store.append("s", [draft("c")]).end == 2
    store.close()


def test_a_commit_that_is_refused(database: str) -> None:
    """Else: what the server undid at the very end is acknowledged, or the log gets a gap."""
    store = SQLStore(database)
    store.append("s", [draft("a")], "u")
    refuse = (
        "CREATE SEQUENCE refusals",
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF nextval('refusals') % 2 = 1 THEN RAISE serialization_failure; END IF; "
        "RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER refusing AFTER INSERT ON agent_memory_messages "
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    with opened(database) as postgres:
        for text in refuse:
            postgres.read(lambda c, text=text: c.value(text))
    assert store.append("s", [draft("b")]).end == 2
    assert store.append("s", [draft("rules", role="system")]).end == 3
    assert store.append("t", [draft("c")]).end == 1
    assert [e.message.text() for e in store.read("s")] == ["a", "b", "rules"]
    store.close()


def test_many_vectors_are_put_at_one_pace(database: str) -> None:
    """Else: until the server analyses a new table of its own accord, each batch walks all of its
    block's records, and a bulk load takes longer and longer."""
    store = SQLStore(database)
    store.open_vectors("v", 0, "m")
    with opened(database) as postgres:
        off = "ALTER TABLE agent_memory_documents SET (autovacuum_enabled = false)"
        postgres.read(lambda c: c.define(off))
        for batch in range(10):
            some = [record(f"{batch}-{n}") for n in range(100)]
            store.put_vectors("v", some, worded(["fox"] * 100))
        ids = [DocId("vector:v", name) for name in ("1-1", "2-2")]
        plan = _plan(postgres, store, lambda: store._kernel.documents(ids))
    store.close()
    assert re.search(r"Index Cond'[^}]*\bid\b", plan), plan


def _plan(postgres: ServerDatabase, store: SQLStore, call: Callable[[], object]) -> str:
    """How the server finds the rows of the first query of a call."""
    asked: list[tuple[str, Sequence[Any]]] = []
    rows = ServerConnection.rows
    with pytest.MonkeyPatch.context() as patch:

        def noted(self: ServerConnection, text: str, values: Sequence[Any] = ()) -> Any:
            asked.append((text, values))
            return rows(self, text, values)

        patch.setattr(ServerConnection, "rows", noted)
        call()
    text, values = asked[0]
    given = iter(values)
    filled = re.sub(r"\?", lambda _: f"'{next(given)}'", text)
    return str(postgres.read(lambda c: c.value(f"EXPLAIN (FORMAT JSON) {filled}")))


def test_what_was_joined_makes_room_for_what_follows(database: str) -> None:
    """Else: a load takes four times the room of what it leaves."""
    store = SQLStore(database)
    store.open_vectors("v", 0, "m")
    table = "agent_memory_documents"
    with opened(database) as postgres:

        def bytes_of(what: str) -> int:
            return int(postgres.read(lambda c: c.value(f"SELECT {what} FROM {table}")))

        off = "autovacuum_enabled = false, toast.autovacuum_enabled = false"
        postgres.read(lambda c: c.define(f"ALTER TABLE {table} SET ({off})"))
        words = " ".join(f"word{n}" for n in range(200))
        for session in range(300):
            some = [record(f"{session}-{n}", "user:u") for n in range(100)]
            store.put_vectors("v", some, worded([words] * 100))
        taken = bytes_of(f"max(pg_total_relation_size('{table}'))")
        held = bytes_of("sum(length(data) + length(body))")
    store.close()
    assert taken < 2.5 * held


def test_due_reads_only_what_is_due(database: str) -> None:
    """Else: each look of a worker walks all sessions there are."""
    store = SQLStore(database)
    with opened(database) as postgres:
        for text in (
            "INSERT INTO agent_memory_documents SELECT 'default', 'head', 's' || n, 'user:u', NULL,"
            " 1, 1, 0, CASE WHEN n % 1000 = 0 THEN n END, '', 0, "
            """'{"deleting":false,"expired":0,"start":0,"start_total":0,"pinned":[],"""
            """"pinned_tokens":0,"system_tokens":0,"cursors":{}}', '', '' """
            "FROM generate_series(1, 20000) n",
            "ANALYZE agent_memory_documents",
        ):
            postgres.read(lambda c, text=text: c.value(text))
        plan = _plan(postgres, store, store.due)
    assert len(store.due()) == 20
    store.close()
    assert "agent_memory_documents_due" in plan
    assert "Seq Scan" not in plan


def test_postgres_loads_no_sqlalchemy(database: str) -> None:
    """Else: each process of a service waits half a second for an import and for statements."""
    code = (
        "import sys\n"
        "from agent_memory.stores import open_store\n"
        f"store = open_store({database!r})\n"
        "store.counts(), store.due(), store.records('b', 'user:u'), store.close()\n"
        "heavy = {'sqlalchemy', 'sqlmodel', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
