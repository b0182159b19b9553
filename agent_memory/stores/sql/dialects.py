"""The statements that differ between dialects."""

from __future__ import annotations

from dataclasses import dataclass

from agent_memory.stores.sql.migrations import table_name

MESSAGES, DOCUMENTS = table_name("messages"), table_name("documents")

_LINE = "namespace, session, seq, role, text, created_at, tokens, total, encoding, body"
_STATE = "owner, session, first, last, version, about, body, data"
DOCUMENT_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', 0)"
INSERT = (
    f"INSERT INTO {DOCUMENTS} (namespace, collection, id, {_STATE}, due, holder, held_until) "
    f"VALUES {DOCUMENT_VALUES}"
)
LINE_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
APPEND = f"INSERT INTO {MESSAGES} ({_LINE}) VALUES {LINE_VALUES}"


@dataclass(frozen=True)
class Dialect:
    """The statements and clauses of one dialect."""

    upsert: str  # inserts a document, or overwrites the document with its id
    # Appends a line if the head has a given version, is due by a given time, and the line's seq is
    # free. The primary key detects a seq that is taken. The head is locked until the line is in the
    # log.
    extend: str
    find: str  # the function that returns the position of a text in another text, or 0
    marked: str  # the expression that joins a parameter, a number and a comma to one text
    # the clause that locks selected rows against changes and locks by other transactions
    lock: str = ""
    share: str = ""  # the clause that locks selected rows against changes by other transactions
    # The clause that names the index for a scan by owner. It is empty if the database's planner
    # chooses this index without the clause.
    by_owner: str = ""


def _extend(insert: str, values: str, after: str) -> str:
    return (
        f"{insert} INTO {MESSAGES} ({_LINE}) SELECT {values} FROM {DOCUMENTS} "
        f"WHERE namespace = ? AND collection = ? AND id = ? AND version = ? AND due <= ?{after}"
    )


def _upsert(clause: str, value: str) -> str:
    return f"{INSERT} {clause} " + ", ".join(
        f"{name} = {value.format(name)}" for name in _STATE.split(", ")
    )


_VALUES = ", ".join("?" * 10)
_CONFLICT = "ON CONFLICT (namespace, collection, id) DO UPDATE SET"
_MYSQL = Dialect(
    _upsert("ON DUPLICATE KEY UPDATE", "VALUES({})"),
    _extend("INSERT IGNORE", _VALUES, " LOCK IN SHARE MODE"),
    "instr",
    "concat(?, {}, ',')",
    lock=" FOR UPDATE",
    share=" LOCK IN SHARE MODE",
)
_DIALECTS = {
    "sqlite": Dialect(
        _upsert(_CONFLICT, "excluded.{}"),
        _extend("INSERT OR IGNORE", _VALUES, ""),
        "instr",
        "? || {} || ','",
        by_owner=" INDEXED BY agent_memory_documents_owner",
    ),
    "postgresql": Dialect(
        _upsert(_CONFLICT, "excluded.{}"),
        _extend(
            "INSERT",
            "?, ?, ?::bigint, ?, ?, ?::bigint, ?::bigint, ?::bigint, ?, ?",
            " FOR SHARE ON CONFLICT DO NOTHING",
        ),
        "strpos",
        "?::text || {} || ','",
        lock=" FOR UPDATE",
        share=" FOR SHARE",
    ),
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
}


def dialect_of(name: str) -> Dialect:
    return _DIALECTS[name]
