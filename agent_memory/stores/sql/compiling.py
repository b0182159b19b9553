"""Writing the statements in a dialect's words.

They are kept as files, such as `sqlite_words`: to make them whenever a database is opened would
take half a second. After a change of tables or statements write them anew with
`python -m agent_memory.stores.sql.compiling`; a test fails until that is done.
"""

from __future__ import annotations

import re
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from sqlalchemy import Insert, Select
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.expression import ClauseElement

from agent_memory.stores.sql.compiled import Statement
from agent_memory.stores.sql.statements import SERVER_STATEMENTS, STATEMENTS
from agent_memory.stores.sql.tables import SEGMENTS, metadata

_HEADER = '''\
"""Tables and statements in {name}'s words. Made by `compiling`: not to be edited."""

from agent_memory.stores.sql.compiled import Statement, Words
'''
_LIST = re.compile(r"__\[POSTCOMPILE_(\w+)\]")
_NUMBERED_BY_THE_DATABASE = "key"
_MARKS = {"qmark": "?", "format": "%s"}
_DIALECTS = {
    "sqlite": ("SQLite", "sqlite://"),
    "postgresql": ("PostgreSQL", "postgresql+psycopg://"),
    "mysql": ("MySQL", "mysql+pymysql://"),
    "mariadb": ("MariaDB", "mariadb+pymysql://"),
}
"""What each is called, and a URL of SQLAlchemy."""


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


def files() -> dict[Path, str]:
    """What the files of all dialects should hold."""
    return {Path(__file__).with_name(f"{name}_words.py"): _source(name) for name in _DIALECTS}


def _source(name: str) -> str:
    told, _ = _DIALECTS[name]
    dialect, said = _dialect(name), _said(name)
    lines = [_HEADER.format(name=told), "\nSCHEMA = (\n"]
    lines += [f"    {text!r},\n" for text in schema(dialect)]
    lines += [")\n\n", "STATEMENTS = {\n"]
    if name == "mariadb":  # nearly all as MySQL says them
        lines[1:1] = ["from agent_memory.stores.sql.mysql_words import STATEMENTS as MYSQL\n"]
        lines += ["    **MYSQL,\n"]
        mysql = _said("mysql")
        said = {key: one for key, one in said.items() if one != mysql[key]}
    lines += [f"    {key!r}: {one!r},\n" for key, one in said.items()]
    return "".join([*lines, f"}}\n\nWORDS = Words({name!r}, SCHEMA, STATEMENTS)\n"])


def _said(name: str) -> dict[str, Statement]:
    statements = STATEMENTS if name == "sqlite" else SERVER_STATEMENTS
    dialect = _dialect(name)
    return {key: compiled(one, dialect) for key, one in statements.items()}


def _dialect(name: str) -> Dialect:
    kind: Any = make_url(_DIALECTS[name][1]).get_dialect()
    dialect: Dialect = kind() if name == "sqlite" else kind(paramstyle="format")
    return dialect


if __name__ == "__main__":
    for file, source in files().items():
        file.write_text(source, encoding="utf-8")
