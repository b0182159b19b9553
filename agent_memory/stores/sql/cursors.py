"""A block's cursor, of a session's row, in the words of each dialect."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class Cursor(FunctionElement[int]):
    """The number under a block's name in a column of cursors, which are JSON; 0 without one, and
    where they are damaged: one session's must not fail a question to all.

    Names of blocks are lower-case letters, digits and underscores, so that they can be paths.
    """

    name = "cursor"
    type = BigInteger()
    inherit_cache = True


def _parts(element: Any, compiler: Any, **how: Any) -> list[str]:
    return [compiler.process(part, **how) for part in element.clauses]


@compiles(Cursor, "sqlite")
def _sqlite(element: Any, compiler: Any, **how: Any) -> str:
    cursors, block = _parts(element, compiler, **how)
    found = f"json_extract({cursors}, '$.' || {block})"
    return f"coalesce(CASE WHEN json_valid({cursors}) THEN {found} END, 0)"


@compiles(Cursor, "postgresql")
def _postgresql(element: Any, compiler: Any, **how: Any) -> str:
    cursors, block = _parts(element, compiler, **how)
    # before PostgreSQL 16 nothing tells what is JSON without failing
    named = f"'\"' || cast({block} AS text) || '\":([0-9]{{1,18}})'"
    return f"coalesce(cast(substring({cursors} from {named}) AS bigint), 0)"


@compiles(Cursor, "mysql")
@compiles(Cursor, "mariadb")
def _mysql(element: Any, compiler: Any, **how: Any) -> str:
    cursors, block = _parts(element, compiler, **how)
    found = f"cast(json_extract({cursors}, concat('$.', {block})) AS signed)"
    return f"coalesce(CASE WHEN json_valid({cursors}) THEN {found} END, 0)"
