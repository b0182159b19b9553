"""The statements for facts and vectors; see `statements`."""

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
from agent_memory.stores.sql.tables import COLLECTIONS, FACTS, SCOPES, VECTORS

_v, _scope = VECTORS.c, SCOPES.c
_most = bindparam("most", type_=BigInteger)
_CONTENT = ("owner", "session_id", "first", "last", "created_at", "body")
_OVERWRITE = "ON DUPLICATE KEY UPDATE version = VALUES(version)"


def _of_block(table: Table) -> ColumnElement[bool]:
    return and_(table.c.namespace == bindparam("ns"), table.c.block == bindparam("of_block"))


def _of_owner(table: Table) -> ColumnElement[bool]:
    return and_(_of_block(table), table.c.owner == bindparam("of_owner"))


def _by_ids(table: Table) -> ColumnElement[bool]:
    # with the owner in it, SQLite would walk all of the owner's records
    return and_(_of_block(table), table.c.id.in_(bindparam("ids", expanding=True)))


def _columns(table: Table) -> list[Any]:
    names = ("id", "owner", "session_id", "first", "last", "created_at", "body")
    return [table.c[name] for name in names]


def _matching(table: Table, given: tuple[str, ...]) -> ColumnElement[bool]:
    which = [table.c[name] == bindparam(f"of_{name}") for name in given]
    return and_(_of_block(table), *which, table.c.last > bindparam("after"))


def _page_of_vectors(*which: ColumnElement[bool]) -> ClauseElement:
    page = select(*_columns(VECTORS), _v.vector).where(
        _of_block(VECTORS), *which, _v.id > bindparam("after")
    )
    return page.order_by(_v.id).limit(_most)


def _new(*names: str) -> dict[str, Any]:
    """What a record is written with, under names of their own."""
    return {name: bindparam(f"new_{name}", type_=FACTS.c[name].type) for name in names}


def _choices(*names: str) -> list[tuple[str, ...]]:
    return [given for n in range(len(names)) for given in combinations(names, n + 1)]


_FACTS_BY, _VECTORS_BY = _choices("id", "owner", "session_id"), _choices("owner", "session_id")

# owners are not asked for as distinct: SQLite would walk all of a block's records by owner
RECORD_STATEMENTS: dict[str, ClauseElement] = {
    "facts": select(*_columns(FACTS))
    .where(_of_owner(FACTS))
    .order_by(FACTS.c.created_at, FACTS.c.id),
    "fact": select(*_columns(FACTS)).where(_of_block(FACTS), FACTS.c.id == bindparam("of_id")),
    "next_owner": select(FACTS.c.owner)
    .where(_of_block(FACTS), FACTS.c.owner >= bindparam("since"))
    .order_by(FACTS.c.owner)
    .limit(literal_column("1")),
    "facts_page": select(*_columns(FACTS))
    .where(_of_block(FACTS), FACTS.c.id > bindparam("after"))
    .order_by(FACTS.c.id)
    .limit(_most),
    "next_block": select(FACTS.c.block)
    .where(FACTS.c.namespace == bindparam("ns"), FACTS.c.block > bindparam("of_block"))
    .order_by(FACTS.c.block)
    .limit(literal_column("1")),
    "replace_facts": delete(FACTS).where(
        _of_block(FACTS),
        FACTS.c.session_id == bindparam("sid"),
        FACTS.c.first <= bindparam("until"),
        FACTS.c.last >= bindparam("since"),
    ),
    "drop_facts": delete(FACTS).where(_by_ids(FACTS)),
    "drop_vectors": delete(VECTORS).where(_by_ids(VECTORS)),
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
        _of_block(FACTS),
        FACTS.c.id == bindparam("of_id"),
        FACTS.c.last == bindparam("of_last"),
    )
    .values(**_new(*_CONTENT)),
    "put_facts": insert(FACTS),
    "put_vectors": insert(VECTORS),
    **{
        named("forget_facts", given): delete(FACTS).where(_matching(FACTS, given))
        for given in _FACTS_BY
    },
    **{
        named("forget_vectors", given): delete(VECTORS).where(_matching(VECTORS, given))
        for given in _VECTORS_BY
    },
    **{
        named("owners", given): select(_v.owner).where(_matching(VECTORS, given))
        for given in _VECTORS_BY
    },
    "owners_of_ids": select(_v.owner).where(_by_ids(VECTORS)),
    "vectors": select(*_columns(VECTORS)).where(_by_ids(VECTORS)),
    "vectors_page": _page_of_vectors(),
    "vectors_page_of_session": _page_of_vectors(_v.session_id == bindparam("sid")),
    "blocks": select(COLLECTIONS.c.block, COLLECTIONS.c.dimension, COLLECTIONS.c.model).where(
        COLLECTIONS.c.namespace == bindparam("ns")
    ),
    # held until its vectors are written, so that nobody clears the block meanwhile
    "collection": select(COLLECTIONS.c.dimension, COLLECTIONS.c.model)
    .where(_of_block(COLLECTIONS))
    .with_for_update(read=True),
    "announce": insert(COLLECTIONS),
    "scope": select(_scope.version).where(_of_owner(SCOPES)),
    "held_scope": select(_scope.version).where(_of_owner(SCOPES)).with_for_update(),
    # one statement, so that the version is the one of these very vectors
    "traits": select(_scope.version, _v.id, _v.vector)
    .join_from(
        SCOPES,
        VECTORS,
        and_(
            _v.namespace == _scope.namespace,
            _v.block == _scope.block,
            _v.owner == _scope.owner,
        ),
    )
    .where(_of_owner(SCOPES)),
    "forget_scope": delete(SCOPES).where(_of_owner(SCOPES)),
    "renew_scope": insert(SCOPES).from_select(
        ["namespace", "block", "owner", "version"],
        select(_v.namespace, _v.block, _v.owner, bindparam("version", type_=_scope.version.type))
        .where(_of_owner(VECTORS))
        .limit(literal_column("1"))
        # another writer of the owner's vectors may have been quicker
        .suffix_with(
            "ON CONFLICT (namespace, block, owner) DO UPDATE SET version = excluded.version",
            dialect="postgresql",
        )
        .suffix_with(_OVERWRITE, dialect="mysql")
        .suffix_with(_OVERWRITE, dialect="mariadb"),
    ),
    **{
        f"clear_{table.name.removeprefix('agent_memory_')}": delete(table).where(_of_block(table))
        for table in (VECTORS, SCOPES, COLLECTIONS)
    },
}
