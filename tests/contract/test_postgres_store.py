"""The contract suite on PostgreSQL, and what only it does."""

import re
from collections.abc import Iterator
from uuid import uuid4

import pytest

from agent_memory.errors import ConfigError, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import draft
from tests.contract.sql_migration_contract import MigrationContract
from tests.contract.sql_outage_contract import OutageContract
from tests.contract.sql_server_contract import ServerContract
from tests.kit import run
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.servers.sql import Served, empty_database, execute, line_to, opened, serve

pytest.importorskip("psycopg")


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    yield from serve(PostgresServer, "AGENT_MEMORY_TEST_POSTGRES")


@pytest.fixture
def database(server: Served) -> str:
    return empty_database(server)


class TestPostgres(ServerContract):
    """On PostgreSQL."""

    schemes = ("postgres", "postgresql", "postgresql+psycopg")


class TestPostgresOutages(OutageContract):
    """On PostgreSQL."""


class TestPostgresMigrations(MigrationContract):
    """On PostgreSQL."""


def test_doctor_reports_a_read_only_database(database: str) -> None:
    """Wrong: `doctor` calls a database usable that accepts no write, such as a standby."""
    SQLStore(database).close()
    url = f"{database}?options=-cdefault_transaction_read_only%3Don"
    assert "read-only" in run("doctor", "--store", url, code=1)


def test_a_missing_create_permission_is_reported_clearly(server: Served, database: str) -> None:
    """Wrong: a missing permission raises a driver's error that names no setting."""
    own = server.private()
    guest = f"guest_{uuid4().hex}"
    role = f"CREATE ROLE {guest} LOGIN PASSWORD '{PASSWORD}'"
    execute(database, role, "REVOKE CREATE ON SCHEMA public FROM public")
    url = own.url_of(database.rpartition("/")[2], user=guest)
    with pytest.raises(StoreUnavailable, match=r"permission denied .*setting `store`"):
        SQLStore(url)
    SQLStore(database).close()
    with pytest.raises(StoreUnavailable, match=r"permission denied .*Grant it"):
        SQLStore(url)


def test_a_database_with_another_encoding_is_refused(server: Served) -> None:
    """Wrong: a database with another encoding is accepted, and refuses some messages later."""
    own, name = server.private(), f"latin_{uuid4().hex}"
    latin = f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'"
    execute(own.url, latin)
    with pytest.raises(ConfigError, match="LATIN1"):
        SQLStore(own.url_of(name))


@pytest.mark.parametrize(("durability", "commit"), [("process", "off"), ("power", "on")])
def test_durability_is_set(
    server: Served, database: str, durability: Durability, commit: str
) -> None:
    """Wrong: an update that should survive a power loss is only in the server's memory."""
    server.private()
    name = database.rpartition("/")[2]
    execute(database, f"ALTER DATABASE {name} SET synchronous_commit = off")
    with opened(database, durability) as postgres:
        assert postgres.read(lambda c: c.value("SHOW synchronous_commit")) == commit


def test_database_settings_do_not_change_the_behaviour(server: Served, database: str) -> None:
    """Wrong: settings of the database change the isolation level, timeouts or encoding."""
    server.private()
    name = database.rpartition("/")[2]
    settings = (
        "default_transaction_isolation = 'serializable'", "statement_timeout = 9000",
        "client_encoding = 'latin1'", "standard_conforming_strings = off",
    )  # fmt: skip
    execute(database, *(f"ALTER DATABASE {name} SET {setting}" for setting in settings))
    with opened(database) as postgres:
        assert postgres.read(lambda c: c.value("SHOW transaction_isolation")) == "read committed"
        assert postgres.read(lambda c: c.value("SHOW statement_timeout")) == "20s"
    store = SQLStore(database)
    store.append("s", [draft("\\ ' 😀")])
    assert [e.message.content for e in store.read("s")] == ["\\ ' 😀"]
    store.close()


@pytest.mark.parametrize("option", ["", "?pgbouncer=true"])
def test_no_session_state_is_left_in_a_pooler(server: Served, option: str) -> None:
    """Wrong: behind a pooler, settings or prepared statements reach or need another session."""
    with line_to(server.private()) as line:
        if not option:  # a pooler names a process id of its own
            line.rewrite = lambda data: re.sub(
                rb"(?s)K\0\0\0\x0c....", b"K\0\0\0\x0c\0\0\0\0", data
            )
        store = SQLStore(line.url + option, uuid4().hex)
        for n in range(8):
            store.append("s", [draft(f"{n}")])
        with opened(line.url + option) as postgres:
            assert postgres.read(lambda c: c.value("SHOW statement_timeout")) == "0"
            text = "SELECT count(*) FROM pg_prepared_statements WHERE ? = 1"
            assert [postgres.read(lambda c: c.value(text, [1])) for _ in range(8)] == [0] * 8
        store.close()


def test_a_write_that_waits_too_long_fails(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a forgotten transaction blocks all writers of a session forever."""
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


def test_a_commit_that_the_server_refuses_is_retried(database: str) -> None:
    """Wrong: a commit that the server refused is acknowledged, or leaves a gap in the log."""
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
    execute(database, *refuse)
    assert store.append("s", [draft("b")]).end == 2
    assert store.append("s", [draft("rules", role="system")]).end == 3
    assert store.append("t", [draft("c")]).end == 1
    assert [e.message.text() for e in store.read("s")] == ["a", "b", "rules"]
    store.close()
