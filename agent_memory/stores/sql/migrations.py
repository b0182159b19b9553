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

_LOCKS_HAVE_NAMES = (
    "CREATE TABLE agent_memory_locks (namespace VARCHAR(64)[id] NOT NULL, "
    "name VARCHAR(64)[id] NOT NULL, owner VARCHAR(255)[id] NOT NULL, until BIGINT NOT NULL, "
    "PRIMARY KEY (namespace, name))[table]",
)

STEPS: tuple[Step, ...] = (_SESSIONS_FALL_DUE, _LOGS_BEGIN_LATER, _LOCKS_HAVE_NAMES)
"""The statements at index i bring version i + 1 to version i + 2.

In them `[id]` follows the type of a column whose values are compared as they are, and `[table]` a
new table: see `tables`.
"""

_INNODB = " ENGINE=InnoDB CHARSET=utf8mb4 COLLATE "
_IDS = {"postgresql": ' COLLATE "C"'}
_TABLES = {"mysql": f"{_INNODB}utf8mb4_0900_bin", "mariadb": f"{_INNODB}utf8mb4_nopad_bin"}


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
    dialect = connection.dialect
    for step in steps[version - 1 :]:
        for text in step:
            worded = text.replace("[id]", _IDS.get(dialect, ""))
            connection.define(worded.replace("[table]", _TABLES.get(dialect, "")))
    connection.run("next_version", newest)
