"""Writing the statements in a dialect's words.

SQLite's are kept as a file, `sqlite_statements`, so that opening a database does not import
SQLAlchemy, which takes most of a second. After a change of tables or statements write it anew with
`python -m agent_memory.stores.sql.compiling`; a test fails until that is done.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from sqlalchemy import Insert, Select
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.expression import ClauseElement

from agent_memory.stores.sql.compiled import Statement
from agent_memory.stores.sql.statements import SERVER_STATEMENTS, STATEMENTS
from agent_memory.stores.sql.tables import SEGMENTS, metadata

SQLITE_FILE = Path(__file__).with_name("sqlite_statements.py")

_HEADER = '''\
"""Tables and statements in SQLite's words. Made by `compiling`: not to be edited."""

from agent_memory.stores.sql.compiled import Statement

'''
_LIST = re.compile(r"__\[POSTCOMPILE_(\w+)\]")
_NUMBERED_BY_THE_DATABASE = "key"
_MARKS = {"qmark": "?", "format": "%s"}


def compiled(statement: ClauseElement, dialect: Dialect) -> Statement:
    """One statement in a dialect's words, with the marks of its driver."""
    columns, mark = None, _MARKS[dialect.paramstyle]
    if isinstance(statement, Insert) and statement.select is None:
        names = [column.name for column in statement.table.columns]
        columns = [name for name in names if name != _NUMBERED_BY_THE_DATABASE]
    done: Any = statement.compile(dialect=dialect, column_keys=columns)
    text = " ".join(str(done).split())
    lists = _LIST.findall(text)
    names = []
    pieces = _LIST.sub(r"[\1]", text).split(mark)
    marks = []
    for name in done.positiontup:
        value = done.binds[name].value
        written = type(value) is int  # the OFFSET of every LIMIT is 0
        if not written:
            names.append(name)
        if name not in lists:
            marks.append(str(value) if written else mark)
    text = "".join(chain.from_iterable(zip_longest(pieces, marks, fillvalue="")))
    returned = statement.selected_columns if isinstance(statement, Select) else ()
    fields = tuple(column.name for column in returned)
    return Statement(text, tuple(names), fields, lists[0] if lists else None, mark)


def schema(dialect: Dialect) -> list[str]:
    """What makes all tables and indexes, in order."""
    made: list[str] = []
    for table in metadata.sorted_tables:
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        ddl: list[ClauseElement] = [CreateTable(table), *map(CreateIndex, indexes)]
        made += [" ".join(str(one.compile(dialect=dialect)).split()) for one in ddl]
    if dialect.name == "postgresql":  # to compress segments takes long, and saves little
        made.append(f"ALTER TABLE {SEGMENTS.name} ALTER COLUMN body SET STORAGE EXTERNAL")
    return made


@dataclass(frozen=True)
class Words:
    """All that a dialect needs: its name, and see `schema` and `compiled`."""

    dialect: str
    schema: list[str]
    statements: dict[str, Statement]


@cache
def words(dialect: Dialect) -> Words:
    """Tables and statements in a server's words."""
    statements = {name: compiled(one, dialect) for name, one in SERVER_STATEMENTS.items()}
    return Words(dialect.name, schema(dialect), statements)


def sqlite_source() -> str:
    """What the file of SQLite's statements should hold."""
    dialect = sqlite.dialect()
    lines = [_HEADER, "SCHEMA = (\n", *(f"    {text!r},\n" for text in schema(dialect)), ")\n\n"]
    lines.append("STATEMENTS = {\n")
    for name, statement in STATEMENTS.items():
        one = compiled(statement, dialect)
        lines.append(f"    {name!r}: {one!r},\n")
    return "".join([*lines, "}\n"])


if __name__ == "__main__":
    SQLITE_FILE.write_text(sqlite_source(), encoding="utf-8")
