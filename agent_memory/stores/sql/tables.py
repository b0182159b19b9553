"""The tables, declared with SQLModel. Statements on them are Core: several times faster.

A change here is a new step in `migrations`. Times are microseconds since 1970 (UTC).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import registry
from sqlalchemy.types import TypeEngine
from sqlmodel import Field, SQLModel

from agent_memory.stores.sql.migrations import TABLES, table_name

_MYSQL = ("mysql", "mariadb")
_KEY = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only for INTEGER
_LONG_TEXT = Text().with_variant(mysql.LONGTEXT(), *_MYSQL)
_BYTES = LargeBinary().with_variant(mysql.MEDIUMBLOB(), *_MYSQL)
# ids are compared as they are, blanks at their end included, and sorted by code points
_INNODB = {
    f"{dialect}_{name}": value
    for dialect, collation in (("mysql", "utf8mb4_0900_bin"), ("mariadb", "utf8mb4_nopad_bin"))
    for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", collation))
}


def _name(length: int) -> TypeEngine[str]:
    return String(length).with_variant(String(length, collation="C"), "postgresql")


class _Base(SQLModel, registry=registry()):
    """A registry of our own keeps these tables out of the application's `SQLModel.metadata`."""


class MetaRow(_Base, table=True):
    """What is known about the database itself, such as its schema version."""

    __tablename__ = "agent_memory_meta"  # pyright: ignore[reportAssignmentType]
    __table_args__ = _INNODB

    name: str = Field(sa_type=_name(64), primary_key=True)
    value: int = Field(sa_type=BigInteger)


class SessionRow(_Base, table=True):
    """A session's head, but for its end and total, which are its last entry's."""

    __tablename__ = table_name("sessions")  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        UniqueConstraint("namespace", "session_id", name="agent_memory_sessions_id"),
        Index("agent_memory_sessions_user", "namespace", "user_id", "session_id"),
        Index("agent_memory_sessions_due", "namespace", "due_at"),
        {
            **_INNODB,
            "sqlite_autoincrement": True,
        },  # a key is never used twice, not even after a deletion
    )

    key: int | None = Field(default=None, sa_column=Column("key", _KEY, primary_key=True))
    namespace: str = Field(sa_type=_name(64))
    session_id: str = Field(sa_type=_name(255))
    user_id: str | None = Field(default=None, sa_type=_name(255))
    start: int = Field(default=0, sa_type=BigInteger)
    start_total: int = Field(default=0, sa_type=BigInteger)
    pinned: str = Field(default="[]", sa_type=_LONG_TEXT)
    pinned_tokens: int = Field(default=0, sa_type=BigInteger)
    system: str | None = Field(default=None, sa_type=_LONG_TEXT)
    system_at: int = Field(default=0, sa_type=BigInteger)
    system_tokens: int = Field(default=0, sa_type=BigInteger)
    summary: str | None = Field(default=None, sa_type=_LONG_TEXT)
    cursors: str = Field(default="{}", sa_type=_LONG_TEXT)
    version: int = Field(default=1, sa_type=BigInteger)
    deleting: bool = False
    created_at: int = Field(sa_type=BigInteger)
    lease_owner: str | None = Field(default=None, sa_type=_name(255))
    lease_until: int = Field(default=0, sa_type=BigInteger)
    due_at: int | None = Field(default=None, sa_type=BigInteger)
    expired: int = Field(
        default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")}
    )


class EntryRow(_Base, table=True):
    """A message at its place in a session's log."""

    __tablename__ = table_name("entries")  # pyright: ignore[reportAssignmentType]
    __table_args__ = _INNODB

    session: int = Field(
        sa_column=Column("session", BigInteger, primary_key=True, autoincrement=False)
    )
    seq: int = Field(sa_column=Column("seq", BigInteger, primary_key=True, autoincrement=False))
    tokens: int = Field(sa_type=BigInteger)
    total: int = Field(sa_type=BigInteger)
    encoding: str = Field(sa_type=_name(255))
    created_at: int = Field(sa_type=BigInteger)
    message: str = Field(sa_type=_LONG_TEXT)


class PieceRow(_Base, table=True):
    """A part of a message that is larger than a statement may be: its entry says how many."""

    __tablename__ = table_name("pieces")  # pyright: ignore[reportAssignmentType]
    __table_args__ = _INNODB

    session: int = Field(
        sa_column=Column("session", BigInteger, primary_key=True, autoincrement=False)
    )
    seq: int = Field(sa_column=Column("seq", BigInteger, primary_key=True, autoincrement=False))
    part: int = Field(sa_column=Column("part", BigInteger, primary_key=True, autoincrement=False))
    text: str = Field(sa_type=_LONG_TEXT)


class KeyRow(_Base, table=True):
    """What was appended to a session under a key."""

    __tablename__ = table_name("keys")  # pyright: ignore[reportAssignmentType]
    __table_args__ = (Index("agent_memory_keys_age", "session", "created_at"), _INNODB)

    session: int = Field(
        sa_column=Column("session", BigInteger, primary_key=True, autoincrement=False)
    )
    name: str = Field(sa_type=_name(64), primary_key=True)
    digest: str = Field(sa_type=_name(255))
    seq: int = Field(sa_type=BigInteger)
    upto: int = Field(sa_type=BigInteger)
    total: int = Field(sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)


class _RecordRow(_Base):
    namespace: str = Field(sa_type=_name(64), primary_key=True)
    block: str = Field(sa_type=_name(64), primary_key=True)
    id: str = Field(sa_type=_name(255), primary_key=True)
    owner: str = Field(sa_type=_name(320))
    session_id: str = Field(sa_type=_name(255))
    first: int = Field(sa_type=BigInteger)
    last: int = Field(sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)
    body: str = Field(sa_type=_LONG_TEXT)


class FactRow(_RecordRow, table=True):
    """A record of a block that lists its records."""

    __tablename__ = table_name("facts")  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        Index("agent_memory_facts_owner", "namespace", "block", "owner", "created_at", "id"),
        Index("agent_memory_facts_session", "namespace", "block", "session_id"),
        _INNODB,
    )


class VectorRow(_RecordRow, table=True):
    """A record of a block that searches its records by features, which stand in segments.

    What earlier releases wrote has them in `vector`, and 0 for a number, until it is packed.
    """

    __tablename__ = table_name("vectors")  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        # whose first column tells most: a planner must not take them to find records by id
        Index("agent_memory_vectors_owner", "owner", "namespace", "block", "at"),
        Index("agent_memory_vectors_session", "session_id", "namespace", "block"),
        _INNODB,
    )

    vector: bytes = Field(sa_type=_BYTES)
    at: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})


class SegmentRow(_Base, table=True):
    """What some records of an owner are found by, as one value; see `segment_bytes`."""

    __tablename__ = table_name("segments")  # pyright: ignore[reportAssignmentType]
    __table_args__ = _INNODB

    namespace: str = Field(sa_type=_name(64), primary_key=True)
    block: str = Field(sa_type=_name(64), primary_key=True)
    owner: str = Field(sa_type=_name(320), primary_key=True)
    name: int = Field(sa_column=Column("name", BigInteger, primary_key=True, autoincrement=False))
    body: bytes = Field(sa_type=_BYTES)


class ScopeRow(_Base, table=True):
    """A catalog per block and owner, and a version, new with every change of it, for caches.

    Versions are random: a counter that began again after a deletion could equal a cached one.
    """

    __tablename__ = table_name("vector_scopes")  # pyright: ignore[reportAssignmentType]
    __table_args__ = _INNODB

    namespace: str = Field(sa_type=_name(64), primary_key=True)
    block: str = Field(sa_type=_name(64), primary_key=True)
    owner: str = Field(sa_type=_name(320), primary_key=True)
    version: int = Field(sa_type=BigInteger)
    catalog: str | None = Field(default=None, sa_type=_LONG_TEXT)


class CollectionRow(_Base, table=True):
    """Dimension and embedding model of a block's vectors."""

    __tablename__ = table_name("collections")  # pyright: ignore[reportAssignmentType]
    __table_args__ = _INNODB

    namespace: str = Field(sa_type=_name(64), primary_key=True)
    block: str = Field(sa_type=_name(64), primary_key=True)
    dimension: int = Field(sa_type=Integer)
    model: str = Field(sa_type=_name(255))


class LockRow(_Base, table=True):
    """A named lock that somebody holds, or has let run out."""

    __tablename__ = table_name("locks")  # pyright: ignore[reportAssignmentType]
    __table_args__ = _INNODB

    namespace: str = Field(sa_type=_name(64), primary_key=True)
    name: str = Field(sa_type=_name(64), primary_key=True)
    owner: str = Field(sa_type=_name(255))
    until: int = Field(sa_type=BigInteger)


metadata = _Base.metadata


def _table(name: str) -> Table:
    return metadata.tables[table_name(name) if name in TABLES else f"agent_memory_{name}"]


META = _table("meta")
SESSIONS = _table("sessions")
ENTRIES = _table("entries")
PIECES = _table("pieces")
KEYS = _table("keys")
FACTS = _table("facts")
VECTORS = _table("vectors")
SEGMENTS = _table("segments")
SCOPES = _table("vector_scopes")
COLLECTIONS = _table("collections")
LOCKS = _table("locks")

HEAD_COLUMNS = (
    "user_id",
    "expired",
    "start",
    "start_total",
    "pinned",
    "pinned_tokens",
    "system",
    "system_at",
    "system_tokens",
    "summary",
    "cursors",
    "version",
    "deleting",
)
"""What a change of the head writes."""
