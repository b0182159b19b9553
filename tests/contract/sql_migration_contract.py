"""What becomes of a server's tables from release to release, as tests."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from agent_memory.errors import SchemaTooNew, StoreError
from agent_memory.stores.base import Counts
from agent_memory.stores.sql.migrations import STEPS, migrate, stored_version, table_name
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import draft, stored, together
from tests.servers.sql import opened, scheme_of, told_nothing

_COLUMN = (
    "SELECT CONCAT_WS(' ', data_type, character_maximum_length, collation_name, is_nullable) "
    f"FROM information_schema.columns WHERE table_name = '{table_name('locks')}' "
    "AND table_schema = {} AND column_name = '{}'"
)
_WHERE = {"postgresql": "CURRENT_SCHEMA()", "mysql": "DATABASE()"}


def _as_version_3(scheme: str) -> Iterator[str]:
    """What takes away from a database what later releases added."""
    for table in ("segments", "locks", "keys", "pieces"):
        yield f"DROP TABLE {table_name(table)}"
    for table, column in (("vectors", "at"), ("vector_scopes", "catalog")):
        yield f"ALTER TABLE {table_name(table)} DROP COLUMN {column}"
    for column in ("owner", "session"):
        name, of = f"agent_memory_vectors_{column}", table_name("vectors")
        yield f"DROP INDEX {'IF EXISTS ' if scheme == 'postgresql' else ''}{name}" + (
            f" ON {of}" if scheme == "mysql" else ""
        )
        key = "owner" if column == "owner" else "session_id"
        yield f"CREATE INDEX {name} ON {of} (namespace, block, {key})"
    for table in ("sessions", "entries", "facts", "vectors", "vector_scopes", "collections"):
        yield f"ALTER TABLE {table_name(table)} RENAME TO {table_name(table, 3)}"
    yield "UPDATE agent_memory_meta SET value = 3 WHERE name = 'schema_version'"


class MigrationContract:
    """Tables are made and changed as on SQLite; `database` is the URL of an empty one."""

    def test_many_make_the_tables_at_once(self, database: str) -> None:
        """Else: of workers that start together for the first time, all but one fail."""
        stores = together([partial(SQLStore, database) for _ in range(6)])
        together([partial(s.append, "s", [draft("a")]) for s in stores])
        assert stores[0].counts() == Counts(sessions=1, entries=6)
        for store in stores:
            store.close()

    def test_a_later_step(self, database: str) -> None:
        """Else: the next release's change of a table does not run here, or loses what there is."""
        store = SQLStore(database)
        store.append("s", [draft("a")], "u")
        store.close()
        steps = (
            *STEPS,
            (
                "ALTER TABLE [sessions] ADD COLUMN expires_at BIGINT",
                "CREATE INDEX agent_memory_sessions_expiry ON [sessions] (namespace, expires_at)",
                "UPDATE [sessions] SET expires_at = 7",
            ),
            ("ALTER TABLE [facts] ADD COLUMN weight BIGINT",),
        )
        with opened(database) as server:
            for known in (steps[:-1], steps, steps):
                server.patiently(lambda c, known=known: migrate(c, known))
            assert server.read(stored_version) == 1 + len(steps)
            text = f"SELECT expires_at FROM {table_name('sessions', 1 + len(steps))}"
            assert server.read(lambda c: c.value(text)) == 7
        with pytest.raises(SchemaTooNew, match=f"version {1 + len(steps)}"):
            SQLStore(database)

    def test_a_database_of_version_3_opens(self, database: str) -> None:
        """Else: an upgraded server takes names that look alike for one, or two for one lock."""
        names = ("namespace", "name", "owner", "until")

        def columns() -> list[str]:
            texts = [_COLUMN.format(_WHERE[scheme_of(database)], name) for name in names]
            with opened(database) as server:
                return [server.read(lambda c, text=text: c.value(text)) for text in texts]

        store = SQLStore(database)
        before = store.append("s", [draft("a")], "u")
        store.close()
        fresh = columns()
        assert all(fresh)
        with opened(database) as server:
            for text in _as_version_3(scheme_of(database)):
                server.read(lambda c, text=text: c.define(text))
            assert server.read(stored_version) == 3
        stores = together([partial(SQLStore, database) for _ in range(4)])
        assert columns() == fresh
        assert stored(stores[0]) == before
        for name in ("l", "L", "l "):
            taken = [s.lock(name, f"w{n}", 60) for n, s in enumerate(stores)]
            assert taken == [True, False, False, False]
        assert not stores[0].lock("l", "W0", 60)
        with opened(database) as server:
            assert server.read(stored_version) == 1 + len(STEPS)
        for one in stores:
            one.close()

    def test_a_failed_step(self, database: str) -> None:
        """Else: a change that failed counts as done."""
        SQLStore(database).close()
        broken = (*STEPS, ("ALTER TABLE agent_memory_nothing ADD COLUMN x BIGINT",))
        with opened(database) as server:
            with pytest.raises(StoreError, match="agent_memory_nothing"):
                server.patiently(lambda c: migrate(c, broken))
            assert server.read(stored_version) == 1 + len(STEPS)

    def test_errors_do_not_tell_messages(self, database: str) -> None:
        """Else: what users said turns up in logs of database errors."""
        store = SQLStore(database)
        store.append("s", [draft("a")])
        short = f"ALTER TABLE {table_name('entries')} ADD CONSTRAINT short CHECK (seq < 2)"
        with opened(database) as server:
            server.patiently(lambda c: c.define(short))
        for session in ("s", "t"):
            with pytest.raises(StoreError) as caught:
                store.append(session, [draft("my secret"), draft("my secret")])
            assert told_nothing(caught.value, "my secret")
        assert store.counts() == Counts(sessions=1, entries=1)
        store.close()
