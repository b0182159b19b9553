"""The rows of a SQLite database, read only, one at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from agent_memory.errors import InvalidInput
from agent_memory.integrations.imports.chats import Unread
from agent_memory.integrations.imports.files import SourceFiles

_HEADER = b"SQLite format 3\x00"


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        where: Where it stands.
        values: What it holds, by column.
    """

    where: str
    values: dict[str, Any]


def is_database(source: SourceFiles) -> bool:
    """Whether it is a SQLite database."""
    if not source.path.is_file():
        return False
    with source.path.open("rb") as file:
        return file.read(len(_HEADER)) == _HEADER


def tables(path: Path) -> dict[str, list[str]]:
    """The columns of each table.

    Raises:
        InvalidInput: The file is damaged.
    """
    try:
        with closing(_opened(path)) as database:
            names = [
                name.decode()
                for (name,) in database.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
            ]
            return {name: _columns(database, name) for name in names}
    except sqlite3.Error as error:
        raise InvalidInput(f"{path} cannot be read: {error}. Is it a whole database?") from None


def rows(source: SourceFiles, table: str, order: str) -> Iterator[Row | Unread]:
    """The rows of a table in order, each with where it stands.

    Args:
        source: The database.
        table: The table.
        order: The columns to go by.
    """
    number, path = 0, source.path
    try:
        with closing(_opened(path)) as database:
            (count,) = database.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()
            share = path.stat().st_size // max(count, 1)
            cursor = database.execute(f"SELECT * FROM {_quoted(table)} ORDER BY {order}")
            names = [column[0] for column in cursor.description]
            for number, values in enumerate(cursor, 1):
                source.tell(share)
                where = f"{path.name}, {table}, row {number}"
                try:
                    yield Row(where, dict(zip(names, map(_value, values), strict=True)))
                except UnicodeDecodeError:
                    yield Unread(where, "not UTF-8 text")
    except sqlite3.Error as error:
        told = f"the database cannot be read from there on: {error}"
        yield Unread(f"{path.name}, {table}, after row {number}", told)


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1].decode() for row in database.execute(f"PRAGMA table_info({_quoted(table)})")]


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    database.text_factory = bytes  # so that a text that is none costs its row alone
    return database


def _value(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
