"""The tables, declared with SQLModel. A change here requires a new step in `migrations`.

Times are microseconds since 1970 (UTC).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Index, LargeBinary, String, Text, text
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import registry
from sqlalchemy.types import TypeEngine
from sqlmodel import Field, SQLModel

from agent_memory.stores.sql.migrations import TABLES, table_name

_MYSQL = ("mysql", "mariadb")
_LONG_TEXT = Text().with_variant(mysql.LONGTEXT(), *_MYSQL)
_BYTES = LargeBinary().with_variant(mysql.MEDIUMBLOB(), *_MYSQL)
# Ids are compared exactly, including trailing blanks, and sorted by code points.
_INNODB = {
    f"{dialect}_{name}": value
    for dialect, collation in (("mysql", "utf8mb4_0900_bin"), ("mariadb", "utf8mb4_nopad_bin"))
    for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", collation))
}


def _name(length: int) -> TypeEngine[str]:
    return String(length).with_variant(String(length, collation="C"), "postgresql")


def _index(name: str, *columns: str, **settings: Any) -> Index:
    """Return an index of documents; only of those with a value in the last column, if supported."""
    where = text(f"{columns[2]} IS NOT NULL")
    return Index(
        f"agent_memory_documents_{name}",
        *columns,
        sqlite_where=where,
        postgresql_where=where,
        **settings,
    )


class _Base(SQLModel, registry=registry()):
    """The base of the tables. Its own registry keeps them out of the application's
    `SQLModel.metadata`.
    """


class MetaRow(_Base, table=True):
    """Facts about the database itself, such as its schema version."""

    __tablename__ = "agent_memory_meta"  # pyright: ignore[reportAssignmentType]
    __table_args__ = _INNODB

    name: str = Field(sa_type=_name(64), primary_key=True)
    value: int = Field(sa_type=BigInteger)


class MessageRow(_Base, table=True):
    """A message at its place in a session's log; see `kernel.contract.Line`."""

    __tablename__ = table_name("messages")  # pyright: ignore[reportAssignmentType]
    __table_args__ = _INNODB

    namespace: str = Field(sa_type=_name(64), primary_key=True)
    session: str = Field(sa_type=_name(255), primary_key=True)
    seq: int = Field(sa_type=BigInteger, primary_key=True)
    role: str = Field(sa_type=_name(32))
    text: str = Field(sa_type=_LONG_TEXT)
    created_at: int = Field(sa_type=BigInteger)
    tokens: int = Field(sa_type=BigInteger)
    total: int = Field(sa_type=BigInteger)
    encoding: str = Field(sa_type=_name(255))
    body: str = Field(sa_type=_LONG_TEXT)


class DocumentRow(_Base, table=True):
    """Any data except a message; see `kernel.contract.Document`.

    `due` is the time at which a worker should process it. `holder` and `held_until` are its lease.
    """

    __tablename__ = table_name("documents")  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        # An index of MySQL has at most 3,072 bytes.
        _index(
            *("owner", "namespace", "collection", "owner", "id"),
            mysql_length={"id": 160},
            mariadb_length={"id": 160},
        ),
        _index("session", "namespace", "collection", "session", "first"),
        _index("due", "namespace", "collection", "due"),
        _INNODB,
    )

    namespace: str = Field(sa_type=_name(64), primary_key=True)
    collection: str = Field(sa_type=_name(80), primary_key=True)
    id: str = Field(sa_type=_name(340), primary_key=True)
    owner: str | None = Field(default=None, sa_type=_name(320))
    session: str | None = Field(default=None, sa_type=_name(255))
    first: int = Field(sa_type=BigInteger)
    last: int = Field(sa_type=BigInteger)
    version: int = Field(sa_type=BigInteger)
    due: int | None = Field(default=None, sa_type=BigInteger)
    holder: str = Field(sa_type=_name(255))
    held_until: int = Field(sa_type=BigInteger)
    about: str = Field(sa_type=_LONG_TEXT)
    body: str = Field(sa_type=_LONG_TEXT)
    data: bytes = Field(sa_type=_BYTES)


metadata = _Base.metadata
DOCUMENTS = table_name("documents")
assert {table_name(name) for name in TABLES} == metadata.tables.keys() - {"agent_memory_meta"}
