"""Brings a database to the schema this release knows. Steps are appended, never changed."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory.errors import SchemaTooNew, StoreError
from agent_memory.stores.sql.database import SQLConnection

Step = Sequence[str]

FIRST = 7
"""The schema version of a database without any step, which `tables` describes."""

STEPS: tuple[Step, ...] = ()
"""The statements at index i bring version FIRST + i to the next one.

In them `[id]` follows the type of a column whose values are compared as they are, and `[table]` a
new table; `[long]` is the type of a long text, `[bytes]` that of bytes: see `tables`. `[sessions]`
is the table of sessions, and so on: see `table_name`. `[on sessions]` follows the name of an index
of that table which is dropped; what begins with the name of a dialect in brackets is for that
alone.
"""

TABLES = (
    "sessions",
    "entries",
    "pieces",
    "keys",
    "facts",
    "vectors",
    "segments",
    "vector_scopes",
    "collections",
    "locks",
)
"""All but the one with the schema's version, which each release can read."""

_INNODB = " ENGINE=InnoDB CHARSET=utf8mb4 COLLATE "
_IDS = {"postgresql": ' COLLATE "C"'}
_LONG = {"mysql": "LONGTEXT", "mariadb": "LONGTEXT"}
_BYTES = {"mysql": "MEDIUMBLOB", "mariadb": "MEDIUMBLOB", "postgresql": "BYTEA"}
_TABLES = {"mysql": f"{_INNODB}utf8mb4_0900_bin", "mariadb": f"{_INNODB}utf8mb4_nopad_bin"}
_ALTERED = "it was altered or damaged. Put a backup back."


def table_name(table: str, version: int = FIRST + len(STEPS)) -> str:
    """What one of `TABLES` is called in a schema version.

    Each version has names of its own. So a process of an older release, which has the database open
    while a newer one migrates it, finds no table from then on: it can write nothing that the newer
    one would not understand, and no call pays for that.
    """
    return f"agent_memory_{table}_v{version}"


def stored_version(connection: SQLConnection) -> int | None:
    """The schema version of the database, or None for one without our tables.

    Raises:
        StoreError: It has our tables, and no version that there ever was.
    """
    version = _noted_version(connection)
    # on MySQL tables are no part of a transaction, and one cut short is to go on
    if version is None and connection.dialect not in _TABLES:
        if not connection.has_table(table_name("sessions")):
            return None
        version = _noted_version(connection)  # another process may have made all just now
        if version is None:
            told = f"The database has tables of agent-memory but no schema version: {_ALTERED}"
            raise StoreError(told)
    if version is not None and (type(version) is not int or version < FIRST):
        raise StoreError(f"The database's schema version is {version!r}: {_ALTERED}")
    return version


def _noted_version(connection: SQLConnection) -> int | None:
    if not connection.has_table("agent_memory_meta"):
        return None
    row = connection.row("version", {})
    return None if row is None else row.value


def is_current(connection: SQLConnection, steps: Sequence[Step] = STEPS) -> bool:
    """Whether there is nothing to do.

    Raises:
        SchemaTooNew: A newer release wrote the database.
    """
    version, newest = stored_version(connection), FIRST + len(steps)
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
    version, newest = stored_version(connection), FIRST + len(steps)
    if version is None:
        for text in connection.schema:
            connection.define(text)
        connection.run("first_version", {"newest": newest})
        return
    for table in TABLES:  # first of all: from here on no older release writes
        after = table_name(table, newest)
        # what a run that was cut short has renamed has the name of a version between
        names = {table_name(table, before) for before in range(version, newest)} - {after}
        for name in filter(connection.has_table, sorted(names)):
            connection.define(f"ALTER TABLE {name} RENAME TO {after}")
    _take(connection, steps[version - FIRST :], newest)
    connection.run("next_version", {"newest": newest})


def _take(connection: SQLConnection, steps: Sequence[Step], newest: int) -> None:
    dialect = connection.dialect
    marks = {"[id]": _IDS.get(dialect, ""), "[long]": _LONG.get(dialect, "TEXT")}
    marks |= {"[table]": _TABLES.get(dialect, ""), "[bytes]": _BYTES.get(dialect, "BLOB")}
    for table in TABLES:
        name = marks[f"[{table}]"] = table_name(table, newest)
        marks[f"[on {table}]"] = f" ON {name}" if dialect in _TABLES else ""
    marks[f"[{dialect}]"] = ""
    for text in (text for step in steps for text in step):
        for mark, meant in marks.items():
            text = text.replace(mark, meant)
        if not text.startswith("["):  # for another dialect
            connection.define(text)
