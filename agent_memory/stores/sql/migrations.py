"""Migrates a database to this release's schema. Steps are appended, never changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent_memory.errors import SchemaTooNew, StoreError
from agent_memory.stores.sql.schema import SCHEMAS

if TYPE_CHECKING:
    from agent_memory.stores.sql.database import SQLConnection

Step = Sequence[str]

FIRST = 1
"""The schema version before the first of `STEPS`."""

STEPS: tuple[Step, ...] = ()
"""The migration steps: the statements at index i lead from version FIRST + i to the next version.

In a statement, `[messages]` and `[documents]` stand for table names: see `table_name`.
"""

TABLES = ("messages", "documents")
"""The tables whose names depend on the schema version: all except `agent_memory_meta`."""

_MYSQL = ("mysql", "mariadb")
_ALTERED = "it was altered or damaged. Restore a backup."


def table_name(table: str, version: int = FIRST + len(STEPS)) -> str:
    """Return the name of one of `TABLES` in a schema version.

    Each version has its own names. After a newer release migrated the database, running processes
    of an older release no longer find their tables, and cannot write data of the old schema.
    """
    return f"agent_memory_{table}" + (f"_v{version}" if version > FIRST else "")


def stored_version(connection: SQLConnection) -> int | None:
    """Return the schema version of a database; None if it has no tables of agent-memory."""
    version = _read_version(connection)
    # MySQL creates tables outside of transactions. An interrupted creation must continue.
    if version is None and connection.dialect not in _MYSQL:
        if not connection.has_table(table_name("documents")):
            return None
        version = _read_version(connection)  # another process may have just created all tables
        if version is None:
            reason = f"The database has tables of agent-memory but no schema version: {_ALTERED}"
            raise StoreError(reason)
    if version is not None and (type(version) is not int or version < FIRST):
        raise StoreError(f"The database's schema version is {version!r}: {_ALTERED}")
    return version


def _read_version(connection: SQLConnection) -> int | None:
    if not connection.has_table("agent_memory_meta"):
        return None
    value: int | None = connection.value(
        "SELECT value FROM agent_memory_meta WHERE name = 'schema_version'"
    )
    return value


def is_current(connection: SQLConnection, steps: Sequence[Step] = STEPS) -> bool:
    """Return whether the schema is current. Raise `SchemaTooNew` if a newer release wrote it."""
    version, newest = stored_version(connection), FIRST + len(steps)
    if version is not None and version > newest:
        raise SchemaTooNew(
            f"The database has schema version {version}, and this release of agent-memory knows "
            f"versions up to {newest}. Install a newer agent-memory."
        )
    return version == newest


def migrate(connection: SQLConnection, steps: Sequence[Step] = STEPS) -> None:
    """Create the tables or migrate them, within the caller's write transaction."""
    if is_current(connection, steps):
        return
    version, newest = stored_version(connection), FIRST + len(steps)
    if version is None:
        for text in SCHEMAS[connection.dialect]:
            connection.define(text)
        connection.run(
            "INSERT INTO agent_memory_meta (name, value) VALUES ('schema_version', ?)", [newest]
        )
        return
    for table in TABLES:  # renamed first, so that no older release writes from now on
        after = table_name(table, newest)
        # An interrupted run may have renamed tables to the names of a version in between.
        names = {table_name(table, before) for before in range(version, newest)} - {after}
        for name in filter(connection.has_table, sorted(names)):
            connection.define(f"ALTER TABLE {name} RENAME TO {after}")
    for text in (text for step in steps[version - FIRST :] for text in step):
        for table in TABLES:
            text = text.replace(f"[{table}]", table_name(table, newest))
        connection.define(text)
    connection.run("UPDATE agent_memory_meta SET value = ? WHERE name = 'schema_version'", [newest])
