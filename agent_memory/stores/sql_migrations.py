"""Brings a database to the schema this release knows. Steps are appended, never changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, insert, inspect, select, text, update

from agent_memory.errors import SchemaTooNew
from agent_memory.stores.sql_tables import META, metadata

Step = Callable[[Connection], None]


def _sessions_fall_due(connection: Connection) -> None:
    """Version 2: sessions say when a worker should look at them; at once, for what was there."""
    connection.execute(text("ALTER TABLE agent_memory_sessions ADD COLUMN due_at BIGINT"))
    connection.execute(
        text("CREATE INDEX agent_memory_sessions_due ON agent_memory_sessions (namespace, due_at)")
    )
    connection.execute(text("UPDATE agent_memory_sessions SET due_at = 0"))


STEPS: tuple[Step, ...] = (_sessions_fall_due,)
"""The step at index i brings version i + 1 to version i + 2."""

_VERSION = "schema_version"


def stored_version(connection: Connection) -> int | None:
    """The schema version of the database, or None for one without our tables."""
    if not inspect(connection).has_table(META.name):
        return None
    value: int | None = connection.scalar(select(META.c.value).where(META.c.name == _VERSION))
    return value


def is_current(connection: Connection, steps: Sequence[Step] = STEPS) -> bool:
    """Whether there is nothing to do.

    Raises:
        SchemaTooNew: A newer release wrote the database.
    """
    version, newest = stored_version(connection), 1 + len(steps)
    if version is not None and version > newest:
        raise SchemaTooNew(
            f"The database has schema version {version}, and this release of agent-memory knows "
            f"versions up to {newest}. Install a newer agent-memory."
        )
    return version == newest


def migrate(connection: Connection, steps: Sequence[Step] = STEPS) -> None:
    """Create the tables or bring them up to date, within the caller's write transaction.

    Raises:
        SchemaTooNew: A newer release wrote the database.
    """
    if is_current(connection, steps):
        return
    version, newest = stored_version(connection), 1 + len(steps)
    if version is None:
        metadata.create_all(connection)
        connection.execute(insert(META).values(name=_VERSION, value=newest))
        return
    for step in steps[version - 1 :]:
        step(connection)
    connection.execute(update(META).where(META.c.name == _VERSION).values(value=newest))
