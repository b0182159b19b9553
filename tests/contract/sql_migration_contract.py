"""Schema changes of a server's tables between releases, as tests."""

from functools import partial

import pytest

from agent_memory.errors import SchemaTooNew, StoreError
from agent_memory.stores.base import Counts
from agent_memory.stores.sql.migrations import FIRST, STEPS, migrate, stored_version, table_name
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import draft, together
from tests.servers.sql import hides, opened


class MigrationContract:
    """Tables are created and migrated as on SQLite. `database` is the URL of an empty one."""

    def test_concurrent_stores_create_the_tables_once(self, database: str) -> None:
        """Wrong: all but one of the workers that start together fail."""
        stores = together([partial(SQLStore, database) for _ in range(6)])
        together([partial(s.append, "s", [draft("a")]) for s in stores])
        assert stores[0].counts() == Counts(sessions=1, entries=6)
        for store in stores:
            store.close()

    def test_a_later_schema_change_keeps_the_data(self, database: str) -> None:
        """Wrong: a later schema change fails on this database, or loses data."""
        store = SQLStore(database)
        store.append("s", [draft("a")], "u")
        store.close()
        steps = (
            *STEPS,
            (
                "ALTER TABLE [documents] ADD COLUMN expires_at BIGINT",
                "CREATE INDEX agent_memory_expiry ON [documents] (namespace, expires_at)",
                "UPDATE [documents] SET expires_at = 7",
            ),
            ("ALTER TABLE [messages] ADD COLUMN weight BIGINT",),
        )
        with opened(database) as server:
            for known in (steps[:-1], steps, steps):
                server.write(lambda c, known=known: migrate(c, known))
            assert server.read(stored_version) == FIRST + len(steps)
            text = f"SELECT expires_at FROM {table_name('documents', FIRST + len(steps))}"
            assert server.read(lambda c: c.value(text)) == 7
        with pytest.raises(SchemaTooNew, match=f"version {FIRST + len(steps)}"):
            SQLStore(database)

    def test_a_failed_schema_change_is_not_recorded(self, database: str) -> None:
        """Wrong: a schema change that failed counts as done."""
        SQLStore(database).close()
        broken = (*STEPS, ("ALTER TABLE agent_memory_nothing ADD COLUMN x BIGINT",))
        with opened(database) as server:
            with pytest.raises(StoreError, match="agent_memory_nothing"):
                server.write(lambda c: migrate(c, broken))
            assert server.read(stored_version) == FIRST + len(STEPS)

    def test_database_errors_do_not_contain_messages(self, database: str) -> None:
        """Wrong: a database error in a log contains a user's message."""
        store = SQLStore(database)
        store.append("s", [draft("a")])
        short = f"ALTER TABLE {table_name('messages')} ADD CONSTRAINT short CHECK (seq < 2)"
        with opened(database) as server:
            server.write(lambda c: c.define(short))
        for session in ("s", "t"):
            with pytest.raises(StoreError) as caught:
                store.append(session, [draft("my secret"), draft("my secret")])
            assert hides(caught.value, "my secret")
        assert store.counts() == Counts(sessions=1, entries=1)
        store.close()
