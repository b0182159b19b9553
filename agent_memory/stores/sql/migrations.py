"""Brings a database to the schema this release knows. Steps are appended, never changed."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory.errors import SchemaTooNew
from agent_memory.stores.sql.database import SQLConnection

Step = Sequence[str]

_SESSIONS_FALL_DUE = (  # at once, for what was there
    "ALTER TABLE agent_memory_sessions ADD COLUMN due_at BIGINT",
    "CREATE INDEX agent_memory_sessions_due ON agent_memory_sessions (namespace, due_at)",
    "UPDATE agent_memory_sessions SET due_at = 0",
)

_LOGS_BEGIN_LATER = (
    "ALTER TABLE agent_memory_sessions ADD COLUMN expired BIGINT NOT NULL DEFAULT 0",
)

STEPS: tuple[Step, ...] = (_SESSIONS_FALL_DUE, _LOGS_BEGIN_LATER)
"""The statements at index i bring version i + 1 to version i + 2."""


def stored_version(connection: SQLConnection) -> int | None:
    """The schema version of the database, or None for one without our tables."""
    if not connection.has_table("agent_memory_meta"):
        return None
    row = connection.row("version", {})
    return None if row is None else int(row.value)


def is_current(connection: SQLConnection, steps: Sequence[Step] = STEPS) -> bool:
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


def migrate(connection: SQLConnection, steps: Sequence[Step] = STEPS) -> None:
    """Create the tables or bring them up to date, within the caller's write transaction.

    Raises:
        SchemaTooNew: A newer release wrote the database.
    """
    if is_current(connection, steps):
        return
    version, newest = stored_version(connection), {"newest": 1 + len(steps)}
    if version is None:
        for text in connection.schema:
            connection.define(text)
        connection.run("first_version", newest)
        return
    for step in steps[version - 1 :]:
        for text in step:
            connection.define(text)
    connection.run("next_version", newest)
