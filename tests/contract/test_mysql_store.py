"""The contract suite on MariaDB, and what only it does."""

import ssl
from collections.abc import Iterator
from uuid import uuid4

import pytest

from agent_memory.errors import ConfigError, StoreError, StoreUnavailable
from agent_memory.stores.sql.migrations import FIRST, STEPS, migrate, stored_version, table_name
from agent_memory.stores.sql.schema import SCHEMAS
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import draft
from tests.contract.sql_migration_contract import MigrationContract
from tests.contract.sql_outage_contract import OutageContract
from tests.contract.sql_server_contract import ServerContract
from tests.servers.mariadb import LONGEST, PASSWORD, MariaDBServer
from tests.servers.sql import Served, empty_database, execute, opened, serve

mysql = pytest.importorskip("agent_memory.stores.sql.mysql")


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    yield from serve(MariaDBServer, "AGENT_MEMORY_TEST_MYSQL")


@pytest.fixture
def database(server: Served) -> str:
    return empty_database(server)


class TestMySQL(ServerContract):
    """On MariaDB."""

    schemes = ("mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql")


class TestMySQLOutages(OutageContract):
    """On MariaDB."""


class TestMySQLMigrations(MigrationContract):
    """On MariaDB."""


def test_a_missing_create_permission_is_reported_clearly(server: Served, database: str) -> None:
    """Wrong: a missing permission raises a driver's error that names no setting."""
    own = server.private()
    guest, name = f"guest_{uuid4().hex[:8]}", database.rpartition("/")[2]
    user = f"CREATE USER {guest}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'"
    execute(database, user, f"GRANT SELECT ON {name}.* TO {guest}@'127.0.0.1'")
    url = own.url_of(name, user=guest)
    with pytest.raises(StoreUnavailable, match=r"CREATE command denied .*setting `store`"):
        SQLStore(url)
    SQLStore(database).close()
    reader = SQLStore(url)
    with pytest.raises(StoreUnavailable, match=r"denied .*Grant it"):
        reader.append("s", [draft("a")])
    reader.close()


def test_a_message_above_max_allowed_packet_is_not_an_outage(server: Served) -> None:
    """Wrong: a message above `max_allowed_packet` is reported as an outage."""
    server.private()
    store = SQLStore(server.url, uuid4().hex)
    store.append("s", [draft("a")])
    with pytest.raises(StoreError, match="max_allowed_packet") as caught:
        store.append("s", [draft("b"), draft("é" * (LONGEST // 2), role="system")])
    assert not isinstance(caught.value, StoreUnavailable)
    assert store.append("s", [draft("c" * LONGEST)]).end == 2
    assert [e.message.text()[0] for e in store.read("s")] == ["a", "c"]
    store.close()


def test_ssl_verify_identity_checks_the_host_name() -> None:
    """Wrong: without `ssl_ca`, a server may show a certificate of any host."""
    tls = mysql._Connection(defer_connect=True, ssl_verify_identity=True).ctx
    assert (tls.check_hostname, tls.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_partly_created_tables_are_completed(server: Served, database: str) -> None:
    """Wrong: a process that died while it created the tables blocks all others."""
    server.private()
    execute(database, *SCHEMAS["mariadb"][:3])
    store = SQLStore(database)
    assert store.append("s", [draft("a")]).end == 1
    with opened(database) as mariadb:
        assert mariadb.read(stored_version) == FIRST + len(STEPS)
        steps = (*STEPS, ("ALTER TABLE [documents] ADD COLUMN weight BIGINT",))
        done = steps[-1][0].replace("[documents]", table_name("documents"))
        mariadb.read(lambda c: c.define(done))
        mariadb.write(lambda c: migrate(c, steps))
        assert mariadb.read(stored_version) == FIRST + len(steps)
    store.close()


def test_durability_is_set(server: Served) -> None:
    """Wrong: an update that should survive a power loss is only in the server's memory."""
    server.private()
    with pytest.raises(ConfigError, match="innodb_flush_log_at_trx_commit"):
        SQLStore(server.url, durability="power")


def test_server_settings_do_not_change_the_behaviour(server: Served) -> None:
    """Wrong: settings of the server truncate values, or change the isolation level."""
    server.private()
    before = "SELECT CONCAT(@@global.sql_mode, ';', @@global.tx_isolation)"
    with opened(server.url) as mariadb:
        mode, isolation = mariadb.read(lambda c: c.value(before)).split(";")
        settings = "SET GLOBAL sql_mode = '{}', tx_isolation = '{}'"

        def configure(*values: str) -> None:
            mariadb.read(lambda c: c.value(settings.format(*values)))

        configure("NO_BACKSLASH_ESCAPES,ANSI_QUOTES", "SERIALIZABLE")
        try:
            store = SQLStore(server.url, uuid4().hex)
            store.append("s", [draft("\\ ' \" 😀")])
            assert [e.message.content for e in store.read("s")] == ["\\ ' \" 😀"]
            with opened(server.url) as other:
                now = other.read(lambda c: c.value("SELECT CONCAT(@@sql_mode, @@tx_isolation)"))
            store.close()
        finally:
            configure(mode, isolation)
    assert now == "STRICT_ALL_TABLESREAD-COMMITTED"
