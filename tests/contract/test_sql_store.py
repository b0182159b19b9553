"""The contract suite on SQLite, and what only an SQL store does."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import SQLModel

from agent_memory import AgentMemory, Message
from agent_memory.core.idempotency import Idempotency, key_of
from agent_memory.core.records import Draft, Record
from agent_memory.errors import SchemaTooNew, StoreError, StoreUnavailable, UnknownStore
from agent_memory.stores import Durability, SQLStore, Store, check_url, open_store
from agent_memory.stores.sql import sqlite, sqlite_file
from agent_memory.stores.sql.migrations import FIRST, TABLES, migrate, stored_version, table_name
from agent_memory.stores.sql.sqlite import Database
from agent_memory.stores.sql.tables import FILE, source
from agent_memory.testing.contract import draft, for_words, stored, together, worded
from tests.contract.long_log_contract import Steps
from tests.contract.sql_server_contract import SQLContract
from tests.kit import Handles


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


class TestSQLite(Handles, SQLContract):
    """`SQLStore` on a SQLite file keeps the contract."""

    @pytest.fixture
    def opens(self, path: Path) -> Callable[[str], Store]:
        return lambda more: open_store(f"sqlite:///{path}", f"default{more}")

    @pytest.fixture
    def steps(self, store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
        """Return the number of SQLite's virtual machine instructions, in tens."""
        seen: list[None] = []

        def connected(*args: Any) -> tuple[sqlite3.Connection, int]:
            connection, application_id = connect(*args)
            connection.set_progress_handler(lambda: seen.append(None), 10)
            return connection, application_id

        connect = sqlite.connect
        monkeypatch.setattr(sqlite, "connect", connected)
        counted = SQLStore(f"sqlite:///{path}")

        def steps(call: Callable[[Store], Any]) -> int:
            seen.clear()
            call(counted)
            return len(seen)

        yield steps
        counted.close()


def test_a_deleted_session_or_lock_leaves_no_rows(path: Path) -> None:
    """Wrong: a deleted session or a released lock leaves rows in the file."""
    store = SQLStore(f"sqlite:///{path}")
    store.append("s", [draft("a"), draft("b")], "u")
    store.delete("s")
    store.close()
    for seconds in (60, 0):
        with closing(sqlite3.connect(path)) as connection:
            for table in map(table_name, TABLES):
                assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        store = SQLStore(f"sqlite:///{path}")
        assert store.lock("l", "w", seconds)
        store.unlock("l", "w")
        store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM agent_memory_documents").fetchone() == (0,)


def test_an_invalid_database_file_is_named_in_the_error(tmp_path: Path) -> None:
    """Wrong: an invalid file raises only 'unable to open database file'."""
    with pytest.raises(StoreUnavailable, match="nowhere"):
        SQLStore(f"sqlite:///{tmp_path}/nowhere/memory.db")
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "notes.txt"
    file.write_text("This is not a database, " * 100)
    with pytest.raises(StoreError, match=r"notes\.txt"):
        SQLStore(f"sqlite:///{file}")
    with pytest.raises(StoreUnavailable, match="is a folder"):
        SQLStore(f"sqlite:///{tmp_path}")
    assert file.read_text().startswith("This is not")


def test_locked_files_raise_store_unavailable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a locked file raises a driver's error, or makes the handle unusable."""
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.05)
    store = SQLStore(f"sqlite:///{path}")
    store.append("s", [draft("a")])
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    for session in ("s", "t"):
        with pytest.raises(StoreUnavailable, match=r"memory\.db.*locked.*End its"):
            store.append(session, [draft("b"), draft("c")])
    assert (stored(store).end, store.head("t")) == (1, None)
    holder.close()
    assert store.append("s", [draft("b")]).end == 2
    store.close()


def test_a_full_disk_stores_no_part_of_an_append(path: Path) -> None:
    """Wrong: a full disk stores part of a list, or makes the handle unusable."""
    store = SQLStore(f"sqlite:///{path}")
    head = store.append("s", [draft("a")])
    store._database.alone(lambda c: c.value("PRAGMA max_page_count=1"))  # no more than there are
    for session in ("s", "t"):
        with pytest.raises(StoreUnavailable, match="Free space on the disk") as caught:
            store.append(session, [draft("b"), draft("my secret " * 10_000)])
        assert "my secret" not in f"{caught.value} {caught.value.__cause__}"
        assert str(path.parent) not in str(caught.value)  # a model may see it
    assert (stored(store), store.head("t"), len(store.read("s"))) == (head, None, 1)
    store._database.alone(lambda c: c.value("PRAGMA max_page_count=1000000"))
    assert store.append("s", [draft("b")]).end == 2
    store.close()


@pytest.mark.parametrize(("durability", "synchronous"), [("process", 1), ("power", 2)])
def test_durability_is_set(path: Path, durability: Durability, synchronous: int) -> None:
    """Wrong: an update that should survive a power loss is not synced to the disk."""
    database = Database(str(path), durability)
    assert database.read(lambda c: c.value("PRAGMA synchronous")) == synchronous
    database.close()


def test_leases_are_not_synced_but_appends_are(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a power loss takes an append that followed a lease, even an interrupted one."""
    statements, connect = list[str](), sqlite.connect

    def connected(*args: Any) -> tuple[sqlite3.Connection, int]:
        connection, application_id = connect(*args)
        connection.set_trace_callback(statements.append)
        return connection, application_id

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sqlite, "connect", connected)
    with closing(SQLStore(f"sqlite:///{path}")) as store:
        store.append("s", [draft("a")])
        statements.clear()
        assert store.lease("s", "me", 10)
        store.release("s", "me")
        store.append("s", [draft("b")])
        store.append("s", [draft("c")])
        assert [text.split(" (")[0][:26] for text in statements if "SELECT id" not in text] == [
            "PRAGMA synchronous=NORMAL", "UPDATE agent_memory_docume", "UPDATE agent_memory_docume",
            "PRAGMA synchronous=FULL", "INSERT OR IGNORE INTO agen", "INSERT OR IGNORE INTO agen",
        ]  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            store._database.alone(interrupted, synced=False)
        statements.clear()
        store.append("s", [draft("d")])
        assert statements[0] == "PRAGMA synchronous=FULL"


@pytest.mark.parametrize("durability", ["process", "power"])
def test_deletions_and_checkpoints_are_synced_with_every_durability(
    path: Path, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a power loss restores deleted data, or takes messages after a checkpoint."""
    log, synced, fsync = Path(f"{path}-wal"), list[int](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda at: (synced.append(os.fstat(at).st_ino), fsync(at)))
    with AgentMemory(f"sqlite:///{path}", blocks=[], durability=durability) as memory:
        memory.update("s", "hello")
        memory.checkpoint("s")
        # with "power" SQLite itself has synced the log
        assert synced == ([log.stat().st_ino] if durability == "process" else [])
        memory.delete("s")
        lost = path.with_name("lost.db")  # without its log, as after a power loss
        lost.write_bytes(path.read_bytes())
    with AgentMemory(f"sqlite:///{lost}", blocks=[]) as memory:
        assert memory.head("s") is None


def test_the_sqlite_settings_are_applied(path: Path) -> None:
    """Wrong: a power loss takes appends, readers wait, or our tables mix with the application's."""
    database = Database(str(path))

    def pragma(name: str) -> object:
        return database.read(lambda c: c.value(f"PRAGMA {name}"))

    assert pragma("journal_mode") == "wal"
    assert pragma("synchronous") == 2
    assert pragma("busy_timeout") == 30_000
    assert pragma("secure_delete") == 1
    database.secure_erase()
    assert pragma("busy_timeout") == 30_000
    database.close()
    assert not [name for name in SQLModel.metadata.tables if name.startswith("agent_memory")]


@pytest.mark.parametrize(
    ("url", "says"),
    [("sqlite://", "memory://"), ("sqlite:///", "memory://"), ("sqlite:///:memory:", "memory://"),
     ("sqlite://:memory:", "memory://"), ("sqlite://memory.db", "three slashes"),
     ("sqlite:///file:x?mode=memory&uri=true", "plain path"),
     ("sqlite:///memory.db?timeout=5", "plain path"), ("memory://shared", "after the slashes"),
     ("oracle://scott:tiger@db/x", "sqlite:///path.db"), ("memory.db", "sqlite:///path.db"),
     ("", "memory://")],
)  # fmt: skip
def test_an_unknown_store_url_is_refused_without_the_password(url: str, says: str) -> None:
    """Wrong: a misspelt URL stores data elsewhere, or its error shows the password."""
    with pytest.raises(UnknownStore) as caught:
        open_store(url)
    assert says in str(caught.value)
    assert "tiger" not in str(caught.value)


def test_the_sqlite_store_imports_no_other_driver(path: Path) -> None:
    """Wrong: validating a configuration, or a first call, imports a driver, which takes long."""
    check_url("sqlite:////var/lib/memory.db")
    check_url("memory://")
    code = (
        "import sys, agent_memory.stores as stores\n"
        "stores.check_url('sqlite:///x.db')\n"
        "stores.open_store('memory://').close()\n"
        f"store = stores.open_store('sqlite:///' + {str(path)!r})\n"
        "store.counts(), store.due(), store.records('b', 'user:u'), store.close()\n"
        "heavy = {'sqlalchemy', 'sqlmodel', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def _plans(path: Path, call: Callable[[Store], object]) -> list[str]:
    """Return SQLite's query plan for each SELECT of a call."""
    store, said = SQLStore(f"sqlite:///{path}"), list[str]()
    store._database.read(lambda it: it._raw.set_trace_callback(said.append))  # type: ignore[attr-defined]
    call(store)
    store.close()
    asked = [text for text in said if text.startswith("SELECT")]
    with closing(sqlite3.connect(path)) as connection:
        plans = [connection.execute(f"EXPLAIN QUERY PLAN {text}").fetchall() for text in asked]
    return [row[3] for plan in plans for row in plan]


def test_due_reads_only_due_sessions(path: Path) -> None:
    """Wrong: a worker's query reads all sessions, or the heads of all due ones."""
    store = SQLStore(f"sqlite:///{path}")
    store.append("s", [draft("a")])
    store.close()
    found = [step for step in _plans(path, lambda store: store.due()) if "documents" in step]
    assert len(found) == 2
    assert "agent_memory_documents_due (namespace=? AND collection=? AND due<?)" in found[0]
    assert "(namespace=? AND collection=? AND id=?)" in found[1]


def test_the_schema_file_matches_the_tables() -> None:
    """Wrong: the tables differ from the schema that stores use."""
    written = FILE.read_text(encoding="utf-8")
    assert written == source(), "run: python -m agent_memory.stores.sql.tables"


def test_rows_of_an_owner_or_session_are_found_by_an_index(path: Path) -> None:
    """Wrong: the first batch of each session scans all vectors."""
    plan, *_ = _plans(path, lambda store: store.delete_vectors("v", session_id="s"))
    assert "agent_memory_documents_session (namespace=? AND collection=? AND session=?)" in plan
    for call in (
        lambda store: store.records("facts", "user:u"),
        lambda store: store.sessions(user_id="u"),
        lambda store: store.lagging("facts", user_id="u"),
    ):
        plan = _plans(path, call)[0]
        assert "agent_memory_documents_owner (namespace=? AND collection=? AND owner=?" in plan


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


def test_concurrent_migrations_run_once(path: Path) -> None:
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


def test_a_migration_is_atomic(path: Path) -> None:
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
def test_an_impossible_schema_version_raises_an_error(path: Path, change: str, says: str) -> None:
    """Wrong: an impossible schema version is reported as an outage, or migrated."""
    SQLStore(f"sqlite:///{path}").close()
    _run(path, change)
    before = _shape(path)
    with pytest.raises(StoreError, match=says) as caught:
        SQLStore(f"sqlite:///{path}")
    assert not isinstance(caught.value, StoreUnavailable)
    assert "Restore a backup." in str(caught.value)
    assert _shape(path) == before


RELEASE = Path(__file__).with_name("release_1.db")
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


def _keyed() -> Idempotency:
    return Idempotency(key=key_of("k", _SAID), at=_AT)


def _write(path: Path) -> None:
    with closing(SQLStore(f"sqlite:///{path}")) as store:
        store.append_idempotent("monday", _drafts(), _keyed(), "ana")
        store.put_records("facts", [_FACT])
        store.open_vectors("v", 0, "m")
        store.put_vectors("v", [_VECTOR], worded(["fox"]))
        store.secure_erase()


def test_a_database_of_this_release_can_be_opened(tmp_path: Path) -> None:
    """Wrong: after an upgrade earlier data is not found, or a retry is stored twice."""
    path = tmp_path / "memory.db"
    shutil.copy(RELEASE, path)
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
        assert store.append_idempotent("monday", _drafts(), _keyed(), "ana").places == ()
        assert store.append("monday", _drafts()[1:2]).end == 4


if __name__ == "__main__":
    _write(Path(sys.argv[1]) if len(sys.argv) > 1 else RELEASE)
