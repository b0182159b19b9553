"""The contract suite on SQLite, and what only an SQL store does."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Connection, text
from sqlmodel import SQLModel

from agent_memory.errors import SchemaTooNew, StoreError, StoreUnavailable, UnknownStore
from agent_memory.stores import check_url, open_store
from agent_memory.stores.base import Counts, Store
from agent_memory.stores.sql import SQLStore
from agent_memory.stores.sql_engine import Database
from agent_memory.stores.sql_migrations import migrate, stored_version
from agent_memory.testing import FactStoreContract, SessionStoreContract, VectorStoreContract
from agent_memory.testing.contract import draft, stored

V1 = Path(__file__).with_name("schema_v1.sql")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


class TestSQLite(SessionStoreContract, FactStoreContract, VectorStoreContract):
    """`SQLStore` on a SQLite file keeps the contract."""

    @pytest.fixture
    def store(self, path: Path) -> Iterator[Store]:
        store = open_store(f"sqlite:///{path}")
        yield store
        store.close()

    @pytest.fixture
    def other(self, store: Store, path: Path) -> Iterator[Store]:
        other = open_store(f"sqlite:///{path}")
        yield other
        other.close()

    @pytest.fixture
    def elsewhere(self, store: Store, path: Path) -> Iterator[Store]:
        elsewhere = open_store(f"sqlite:///{path}", "elsewhere")
        yield elsewhere
        elsewhere.close()


def _schema(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name LIKE 'agent_memory_%' AND sql IS NOT NULL"
        ).fetchall()
    finally:
        connection.close()
    return sorted(" ".join(row[0].split()) for row in rows)


def _run(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    try:
        connection.executescript(script)
    finally:
        connection.close()


def test_schema_is_the_one_of_version_1(path: Path, tmp_path: Path) -> None:
    """Else: a table was changed without a migration step."""
    SQLStore(f"sqlite:///{path}").close()
    first = tmp_path / "v1.db"
    _run(first, V1.read_text())
    assert _schema(path) == _schema(first)
    assert len(_schema(path)) >= 7


def test_a_database_of_version_1_opens(path: Path) -> None:
    """Else: an upgrade loses what an older release wrote."""
    _run(path, V1.read_text())
    store = SQLStore(f"sqlite:///{path}", "prod")
    head = stored(store, "s-1")
    assert (head.user_id, head.end, head.total, head.start) == ("sarah", 2, 9, 1)
    assert head.summary is not None
    assert head.summary.text == "She said hello."
    assert [e.message.content for e in store.read("s-1")] == ["héllo", "hi"]
    assert store.append("s-1", [draft("more", 4)]).total == 13
    assert [r.text for r in store.facts("facts", "user:sarah")] == ["Sarah says hello."]
    store.open_vectors("vector", 2, "m")
    ((found, score),) = store.search_vectors(
        "vector", "user:sarah", np.array([0.6, 0.8], dtype=np.float32), 3
    )
    assert (found.text, score) == ("hello", pytest.approx(0.6))
    store.close()


def test_steps_run_once_and_in_order(path: Path) -> None:
    """Else: a migration is skipped, repeated, or leaves the version behind."""
    ran: list[str] = []

    def second(connection: Connection) -> None:
        ran.append("second")
        connection.execute(text("CREATE TABLE agent_memory_more (x INTEGER)"))

    def third(connection: Connection) -> None:
        ran.append("third")
        connection.execute(text("INSERT INTO agent_memory_more VALUES (3)"))

    _run(path, V1.read_text())
    database = Database(str(path))
    database.write(lambda connection: migrate(connection, [second]))
    database.write(lambda connection: migrate(connection, [second, third]))
    database.write(lambda connection: migrate(connection, [second, third]))
    assert ran == ["second", "third"]
    assert database.read(stored_version) == 3
    database.close()


def test_a_failed_step_changes_nothing(path: Path) -> None:
    """Else: a crash amid a migration leaves half a schema."""

    def broken(connection: Connection) -> None:
        connection.execute(text("DROP TABLE agent_memory_facts"))
        raise RuntimeError("power cut")

    _run(path, V1.read_text())
    before = _schema(path)
    database = Database(str(path))
    with pytest.raises(RuntimeError, match="power cut"):
        database.write(lambda connection: migrate(connection, [broken]))
    assert database.read(stored_version) == 1
    database.close()
    assert _schema(path) == before


def test_a_newer_schema_is_refused(path: Path) -> None:
    """Else: an old release writes into tables it does not know."""
    SQLStore(f"sqlite:///{path}").close()
    _run(path, "UPDATE agent_memory_meta SET value = 999 WHERE name = 'schema_version'")
    with pytest.raises(SchemaTooNew, match="999"):
        SQLStore(f"sqlite:///{path}")


def test_data_outlives_the_handle(path: Path) -> None:
    """Else: closing and opening loses data, or tables are made anew."""
    store = SQLStore(f"sqlite:///{path}")
    head = store.append("s", [draft("a"), draft("rules", 2, "system")], "u")
    store.close()
    again = SQLStore(f"sqlite:///{path}")
    assert stored(again) == head
    assert again.counts() == Counts(sessions=1, entries=2)
    again.close()


def test_a_deleted_session_leaves_no_rows(path: Path) -> None:
    """Else: what a user asked to forget stays in the file, out of sight."""
    store = SQLStore(f"sqlite:///{path}")
    store.append("s", [draft("a"), draft("b")], "u")
    store.delete("s")
    store.close()
    connection = sqlite3.connect(path)
    try:
        for table in ("agent_memory_sessions", "agent_memory_entries"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    finally:
        connection.close()


def test_a_closed_store_says_so(path: Path) -> None:
    """Else: a background thread opens the file again behind a closed store."""
    store = SQLStore(f"sqlite:///{path}")
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.head("s")
    with pytest.raises(StoreUnavailable, match="closed"):
        store.append("s", [draft("a")])


def test_missing_folder(tmp_path: Path) -> None:
    """Else: the user reads 'unable to open database file' and learns nothing."""
    with pytest.raises(StoreUnavailable, match="nowhere"):
        SQLStore(f"sqlite:///{tmp_path}/nowhere/memory.db")
    assert list(tmp_path.iterdir()) == []


def test_not_a_database(tmp_path: Path) -> None:
    """Else: a driver's error reaches the caller."""
    file = tmp_path / "notes.txt"
    file.write_text("This is not a database, " * 100)
    with pytest.raises(StoreError, match=r"notes\.txt"):
        SQLStore(f"sqlite:///{file}")
    with pytest.raises(StoreUnavailable, match="unable to open"):
        SQLStore(f"sqlite:///{tmp_path}")
    assert file.read_text().startswith("This is not")


def test_settings_of_the_file(path: Path) -> None:
    """Else: appends wait for the disk, readers for writers, or our tables are the application's."""
    database = Database(str(path))

    def pragma(name: str) -> object:
        return database.read(lambda c: c.exec_driver_sql(f"PRAGMA {name}").scalar())

    assert pragma("journal_mode") == "wal"
    assert pragma("synchronous") == 1
    assert pragma("busy_timeout") == 30_000
    database.close()
    assert not [name for name in SQLModel.metadata.tables if name.startswith("agent_memory")]


def test_errors_do_not_tell_messages(path: Path) -> None:
    """Else: what users said turns up in logs of database errors."""
    store = SQLStore(f"sqlite:///{path}")
    _run(path, "ALTER TABLE agent_memory_entries RENAME COLUMN encoding TO other")
    with pytest.raises(StoreUnavailable) as caught:
        store.append("s", [draft("my secret")])
    assert "my secret" not in f"{caught.value} {caught.value.__cause__}"
    store.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite://", "memory://"),
        ("sqlite:///", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite://:memory:", "memory://"),
        ("sqlite://memory.db", "three slashes"),
        ("sqlite:///file:x?mode=memory&uri=true", "plain path"),
        ("sqlite:///memory.db?timeout=5", "plain path"),
        ("memory://shared", "alone"),
        ("oracle://scott:tiger@db/x", "sqlite:///path.db"),
        ("memory.db", "sqlite:///path.db"),
        ("", "memory://"),
    ],
)
def test_urls_that_nobody_serves(url: str, says: str) -> None:
    """Else: a misspelt URL silently keeps memory elsewhere, or its password is printed."""
    with pytest.raises(UnknownStore) as caught:
        open_store(url)
    assert says in str(caught.value)
    assert "tiger" not in str(caught.value)


def test_urls_are_checked_without_drivers() -> None:
    """Else: validating a configuration pays for a database driver."""
    check_url("sqlite:////var/lib/memory.db")
    check_url("memory://")
    code = (
        "import sys, agent_memory.stores as stores\n"
        "stores.check_url('sqlite:///x.db')\n"
        "stores.open_store('memory://').close()\n"
        "heavy = {'sqlalchemy', 'sqlmodel', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
