"""Brings a database to the schema this release knows. Steps are appended, never changed."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory.errors import SchemaTooNew, StoreError
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

_APPENDS_HAVE_KEYS = (
    "CREATE TABLE agent_memory_keys (session BIGINT NOT NULL, name VARCHAR(64)[id] NOT NULL, "
    "digest VARCHAR(255)[id] NOT NULL, seq BIGINT NOT NULL, upto BIGINT NOT NULL, "
    "total BIGINT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (session, name))[table]",
    "CREATE INDEX agent_memory_keys_age ON agent_memory_keys (session, created_at)",
)

_MESSAGES_HAVE_PIECES = (
    "CREATE TABLE agent_memory_pieces (session BIGINT NOT NULL, seq BIGINT NOT NULL, "
    "part BIGINT NOT NULL, text [long] NOT NULL, PRIMARY KEY (session, seq, part))[table]",
)

_FEATURES_HAVE_SEGMENTS = (
    "ALTER TABLE [vectors] ADD COLUMN at BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE [vector_scopes] ADD COLUMN catalog [long]",
    "CREATE TABLE [segments] (namespace VARCHAR(64)[id] NOT NULL, block VARCHAR(64)[id] NOT NULL, "
    "owner VARCHAR(320)[id] NOT NULL, name BIGINT NOT NULL, body [bytes] NOT NULL, "
    "PRIMARY KEY (namespace, block, owner, name))[table]",
    "DROP INDEX agent_memory_vectors_owner[on vectors]",
    "CREATE INDEX agent_memory_vectors_owner ON [vectors] (owner, namespace, block, at)",
    "DROP INDEX agent_memory_vectors_session[on vectors]",
    "CREATE INDEX agent_memory_vectors_session ON [vectors] (session_id, namespace, block)",
    "[postgresql]ALTER TABLE [segments] ALTER COLUMN body SET STORAGE EXTERNAL",
)

STEPS: tuple[Step, ...] = (
    _SESSIONS_FALL_DUE,
    _LOGS_BEGIN_LATER,
    _LOCKS_HAVE_NAMES,
    _APPENDS_HAVE_KEYS,
    _MESSAGES_HAVE_PIECES,
    _FEATURES_HAVE_SEGMENTS,
)
"""The statements at index i bring version i + 1 to version i + 2.

In them `[id]` follows the type of a column whose values are compared as they are, and `[table]` a
new table; `[long]` is the type of a long text, `[bytes]` that of bytes: see `tables`. A step that
leads beyond version 6 writes `[sessions]` for the table of sessions, and so on: see `table_name`.
`[on sessions]` follows the name of an index of that table which is dropped; what begins with the
name of a dialect in brackets is for that alone.
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

_LAST_UNNUMBERED = 6

_INNODB = " ENGINE=InnoDB CHARSET=utf8mb4 COLLATE "
_IDS = {"postgresql": ' COLLATE "C"'}
_LONG = {"mysql": "LONGTEXT", "mariadb": "LONGTEXT"}
_BYTES = {"mysql": "MEDIUMBLOB", "mariadb": "MEDIUMBLOB", "postgresql": "BYTEA"}
_TABLES = {"mysql": f"{_INNODB}utf8mb4_0900_bin", "mariadb": f"{_INNODB}utf8mb4_nopad_bin"}
_ALTERED = "it was altered or damaged. Put a backup back."


def table_name(table: str, version: int = 1 + len(STEPS)) -> str:
    """What one of `TABLES` is called in a schema version.

    Each version has names of its own. So a process of an older release, which has the database open
    while a newer one migrates it, finds no table from then on: it can write nothing that the newer
    one would not understand, and no call pays for that.
    """
    return f"agent_memory_{table}" + (f"_v{version}" if version > _LAST_UNNUMBERED else "")


def stored_version(connection: SQLConnection) -> int | None:
    """The schema version of the database, or None for one without our tables.

    Raises:
        StoreError: It has our tables, and no version that there ever was.
    """
    version = _noted_version(connection)
    # on MySQL tables are no part of a transaction, and one cut short is to go on
    if version is None and connection.dialect not in _TABLES:
        names = {table_name("sessions"), table_name("sessions", _LAST_UNNUMBERED)}
        if not any(map(connection.has_table, names)):
            return None
        version = _noted_version(connection)  # another process may have made all just now
        if version is None:
            told = f"The database has tables of agent-memory but no schema version: {_ALTERED}"
            raise StoreError(told)
    if version is not None and (type(version) is not int or version < 1):
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
    version, newest = stored_version(connection), 1 + len(steps)
    if version is None:
        for text in connection.schema:
            connection.define(text)
        connection.run("first_version", {"newest": newest})
        return
    if version < _LAST_UNNUMBERED:
        _take(connection, steps[version - 1 : _LAST_UNNUMBERED - 1], newest)
        version = min(newest, _LAST_UNNUMBERED)
        connection.run("next_version", {"newest": version})
    for table in TABLES:  # first of all: from here on no older release writes
        after = table_name(table, newest)
        # what a run that was cut short has renamed has the name of a version between
        names = {table_name(table, before) for before in range(version, newest)} - {after}
        for name in filter(connection.has_table, sorted(names)):
            connection.define(f"ALTER TABLE {name} RENAME TO {after}")
    _take(connection, steps[version - 1 :], newest)
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
