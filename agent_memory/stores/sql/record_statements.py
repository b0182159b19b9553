"""The statements for facts; see `statements`."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Table,
    and_,
    bindparam,
    delete,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.sql.expression import ClauseElement

from agent_memory.stores.sql.compiled import named
from agent_memory.stores.sql.tables import FACTS

_most = bindparam("most", type_=BigInteger)
_CONTENT = ("owner", "session_id", "first", "last", "created_at", "body")


def of_block(table: Table) -> ColumnElement[bool]:
    """Whether a row is of a block."""
    return and_(table.c.namespace == bindparam("ns"), table.c.block == bindparam("of_block"))


def of_owner(table: Table) -> ColumnElement[bool]:
    """Whether a row is of a block's owner."""
    return and_(of_block(table), table.c.owner == bindparam("of_owner"))


def by_ids(table: Table) -> ColumnElement[bool]:
    """Whether a record is one of some."""
    # with the owner in it, SQLite would walk all of the owner's records
    return and_(of_block(table), table.c.id.in_(bindparam("ids", expanding=True)))


def record_columns(table: Table) -> list[Any]:
    """What a record is read from."""
    names = ("id", "owner", "session_id", "first", "last", "created_at", "body")
    return [table.c[name] for name in names]


def matching(table: Table, given: tuple[str, ...]) -> ColumnElement[bool]:
    """Whether a record matches all that is given."""
    which = [table.c[name] == bindparam(f"of_{name}") for name in given]
    return and_(of_block(table), *which, table.c.last > bindparam("after"))


def _new(*names: str) -> dict[str, Any]:
    """What a record is written with, under names of their own."""
    return {name: bindparam(f"new_{name}", type_=FACTS.c[name].type) for name in names}


def choices(*names: str) -> list[tuple[str, ...]]:
    """Every choice of at least one of them."""
    return [given for n in range(len(names)) for given in combinations(names, n + 1)]


RECORD_STATEMENTS: dict[str, ClauseElement] = {
    "facts": select(*record_columns(FACTS))
    .where(of_owner(FACTS))
    .order_by(FACTS.c.created_at, FACTS.c.id),
    "fact": select(*record_columns(FACTS)).where(of_block(FACTS), FACTS.c.id == bindparam("of_id")),
    "next_owner": select(FACTS.c.owner)
    .where(of_block(FACTS), FACTS.c.owner >= bindparam("since"))
    .order_by(FACTS.c.owner)
    .limit(literal_column("1")),
    "facts_page": select(*record_columns(FACTS))
    .where(of_block(FACTS), FACTS.c.id > bindparam("after"))
    .order_by(FACTS.c.id)
    .limit(_most),
    "next_block": select(FACTS.c.block)
    .where(FACTS.c.namespace == bindparam("ns"), FACTS.c.block > bindparam("of_block"))
    .order_by(FACTS.c.block)
    .limit(literal_column("1")),
    "replace_facts": delete(FACTS).where(
        of_block(FACTS),
        FACTS.c.session_id == bindparam("sid"),
        FACTS.c.first <= bindparam("until"),
        FACTS.c.last >= bindparam("since"),
    ),
    "drop_facts": delete(FACTS).where(by_ids(FACTS)),
    # where there is none yet; whoever comes second changes nothing, and gets no error
    "begin_fact": insert(FACTS)
    .prefix_with("OR IGNORE", dialect="sqlite")
    .prefix_with("IGNORE", dialect="mysql")
    .prefix_with("IGNORE", dialect="mariadb")
    .from_select(
        ["namespace", "block", "id", *_CONTENT],
        select(*_new("namespace", "block", "id", *_CONTENT).values()).suffix_with(
            "ON CONFLICT DO NOTHING", dialect="postgresql"
        ),
    ),
    "swap_fact": update(FACTS)
    .where(
        of_block(FACTS),
        FACTS.c.id == bindparam("of_id"),
        FACTS.c.last == bindparam("of_last"),
    )
    .values(**_new(*_CONTENT)),
    "put_facts": insert(FACTS),
    **{
        named("forget_facts", given): delete(FACTS).where(matching(FACTS, given))
        for given in choices("id", "owner", "session_id")
    },
}
