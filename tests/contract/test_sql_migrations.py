"""The schema of a SQLite database: its version, and steps to a later one."""

import shutil
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_memory.core.idempotency import Once, key_of
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Record
from agent_memory.errors import SchemaTooNew, StoreError, StoreUnavailable
from agent_memory.stores.sql.migrations import FIRST, migrate, stored_version
from agent_memory.stores.sql.sqlite import Database
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import draft, for_words, stored, together, worded


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def _run(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def _shape(path: Path) -> dict[str, Any]:
    """Return columns, keys and indexes, regardless of the wording of their statements."""
    with closing(sqlite3.connect(path)) as connection:

        def rows(statement: str) -> list[tuple[Any, ...]]:
            return connection.execute(statement).fetchall()

        def indexes(table: str) -> dict[str, Any]:
            return {
                name: (*how, rows(f"PRAGMA index_xinfo({name})"))
                for _, name, *how in rows(f"PRAGMA index_list({table})")
            }

        assert rows("PRAGMA integrity_check") == [("ok",)]
        tables = "type = 'table' AND name LIKE 'agent_memory_%'"
        return {
            table: ("AUTOINCREMENT" in sql, rows(f"PRAGMA table_xinfo({table})"), indexes(table))
            for table, sql in rows(f"SELECT name, sql FROM sqlite_master WHERE {tables}")
        }


def test_many_migrate_at_once(path: Path) -> None:
    """Wrong: all but one of the workers that start together after an upgrade fail."""
    store = SQLStore(f"sqlite:///{path}")
    head = store.append("s", [draft("a")], "u")
    assert stored(store) == head
    store.close()
    steps = [("ALTER TABLE [documents] ADD COLUMN more BIGINT",)]
    databases = [Database(str(path)) for _ in range(4)]
    together([partial(one.write, lambda c: migrate(c, steps)) for one in databases])
    count = "SELECT count(*) FROM agent_memory_documents_v2 WHERE more IS NULL"
    assert [one.read(lambda c: c.value(count)) for one in databases] == [1] * 4
    for one in databases:
        one.close()


def test_a_migration_is_whole_or_nothing(path: Path) -> None:
    """Wrong: a migration is skipped or repeated, or one that fails leaves half a schema."""
    broken = ("DROP TABLE [messages]", "DROP TABLE agent_memory_nothing")
    SQLStore(f"sqlite:///{path}").close()
    before = _shape(path)
    database = Database(str(path))
    with pytest.raises(StoreUnavailable, match="nothing"):
        database.write(lambda connection: migrate(connection, [broken]))
    assert database.read(stored_version) == FIRST
    database.close()
    assert _shape(path) == before
    second = ("CREATE TABLE more (x INTEGER)", "INSERT INTO more VALUES (2)")
    third = ("INSERT INTO more VALUES (3)",)
    database = Database(str(path))
    database.write(lambda connection: migrate(connection, [second]))
    database.write(lambda connection: migrate(connection, [second, third]))
    database.write(lambda connection: migrate(connection, [second, third]))
    assert database.read(stored_version) == FIRST + 2
    assert database.read(lambda c: c.value("SELECT group_concat(x) FROM more")) == "2,3"
    database.close()


def test_a_newer_schema_is_refused(path: Path) -> None:
    """Wrong: an old release writes into tables that it does not know."""
    SQLStore(f"sqlite:///{path}").close()
    _run(path, "UPDATE agent_memory_meta SET value = 999 WHERE name = 'schema_version'")
    with pytest.raises(SchemaTooNew, match="999"):
        SQLStore(f"sqlite:///{path}")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE agent_memory_meta SET value = -5", "schema version is -5"),
        ("UPDATE agent_memory_meta SET value = 0", "schema version is 0"),
        ("UPDATE agent_memory_meta SET value = 'six'", "schema version is 'six'"),
        ("DELETE FROM agent_memory_meta", "no schema version"),
        ("DROP TABLE agent_memory_meta", "no schema version"),
    ],
)
def test_a_version_that_never_was_is_named(path: Path, change: str, says: str) -> None:
    """Wrong: an impossible schema version is reported as an outage, or migrated."""
    SQLStore(f"sqlite:///{path}").close()
    _run(path, change)
    before = _shape(path)
    with pytest.raises(StoreError, match=says) as caught:
        SQLStore(f"sqlite:///{path}")
    assert not isinstance(caught.value, StoreUnavailable)
    assert "Restore a backup." in str(caught.value)
    assert _shape(path) == before


FILE = Path(__file__).with_name("release_1.db")
_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_PARTS = [{"type": "text", "text": "A fox."}, {"type": "image_url", "image_url": {"url": "x"}}]
_SAID = [
    Message(role="system", content="Be brief.", created_at=_AT),
    Message(role="user", content="I moved to Lisbon."),
    Message(role="user", content=_PARTS, name="ana"),
]
_FACT = Record("f", "user:ana", "monday", 2, 2, "Lives in Lisbon.", (2,), _AT, {"sure": True})
_VECTOR = Record("v", "user:ana", "monday", 3, 3, "A fox.", (3,), _AT)


def _drafts() -> list[Draft]:
    return [Draft(message, 5, "test") for message in _SAID]


def _once() -> Once:
    return Once(key=key_of("k", _SAID), at=_AT)


def _write(path: Path) -> None:
    with closing(SQLStore(f"sqlite:///{path}")) as store:
        store.append_once("monday", _drafts(), _once(), "ana")
        store.put_records("facts", [_FACT])
        store.open_vectors("v", 0, "m")
        store.put_vectors("v", [_VECTOR], worded(["fox"]))
        store.secure_erase()


def test_a_database_of_this_release_opens(tmp_path: Path) -> None:
    """Wrong: after an upgrade earlier data is not found, or a retry is stored twice."""
    path = tmp_path / "memory.db"
    shutil.copy(FILE, path)
    with closing(SQLStore(f"sqlite:///{path}")) as store:
        entries = store.read("monday")
        assert [one.message.content for one in entries] == [one.content for one in _SAID]
        assert entries[0].message.to_dict() == _SAID[0].to_dict()
        head = stored(store, "monday")
        assert (head.user_id, head.end, head.system) == ("ana", 3, _SAID[0])
        assert store.records("facts", "user:ana") == [_FACT]
        assert [one for some, _ in store.all_vectors("v") for one in some] == [_VECTOR]
        (hit,) = store.search_vectors("v", "user:ana", for_words("fox"), 9)
        assert hit.record == _VECTOR
        assert store.append_once("monday", _drafts(), _once(), "ana").places == ()
        assert store.append("monday", _drafts()[1:2]).end == 4


if __name__ == "__main__":
    _write(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
