"""The statements for vectors and their segments; see `statements`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, bindparam, delete, insert, literal_column, select, update
from sqlalchemy.sql.expression import ClauseElement

from agent_memory.stores.sql.compiled import named
from agent_memory.stores.sql.record_statements import (
    by_ids,
    choices,
    matching,
    of_block,
    of_owner,
    record_columns,
)
from agent_memory.stores.sql.tables import COLLECTIONS, SCOPES, SEGMENTS, VECTORS

_v, _scope, _segment = VECTORS.c, SCOPES.c, SEGMENTS.c
_most = bindparam("most", type_=BigInteger)
_NUMBERED = (_v.id, _v.owner, _v.at)
_ZERO: Any = literal_column("0")
_NAMES = _segment.name.in_(bindparam("names", expanding=True))


VECTOR_STATEMENTS: dict[str, ClauseElement] = {
    "put_vectors": insert(VECTORS),
    "drop_vectors": delete(VECTORS).where(by_ids(VECTORS)),
    "vectors": select(*record_columns(VECTORS), _v.at).where(by_ids(VECTORS)),
    "numbers_of_ids": select(*_NUMBERED).where(by_ids(VECTORS)),
    **{
        named("numbers", given): select(*_NUMBERED).where(matching(VECTORS, given))
        for given in choices("owner", "session_id")
    },
    "any_of_owner": select(_v.id).where(of_owner(VECTORS)).limit(literal_column("1")),
    "numbers": select(_v.id, _v.at).where(of_owner(VECTORS)),
    "numbers_page": select(*_NUMBERED)
    .where(of_owner(VECTORS), _v.at > bindparam("after"))
    .order_by(_v.at)
    .limit(_most),
    # what an earlier release wrote
    "loose": select(_v.id, _v.vector).where(of_owner(VECTORS), _v.at == _ZERO).limit(_most),
    "number_vector": update(VECTORS)
    .where(of_block(VECTORS), _v.id == bindparam("of_id"))
    .values(at=bindparam("new_at", type_=_v.at.type), vector=bindparam("none", b"")),
    "segments": select(_segment.name, _segment.body).where(of_owner(SEGMENTS), _NAMES),
    "segment_names": select(_segment.name).where(of_owner(SEGMENTS)),
    "put_segments": insert(SEGMENTS),
    "drop_segments": delete(SEGMENTS).where(of_owner(SEGMENTS), _NAMES),
    "forget_segments": delete(SEGMENTS).where(of_owner(SEGMENTS)),
    "scope": select(_scope.version, _scope.catalog).where(of_owner(SCOPES)),
    "held_scope": select(_scope.version, _scope.catalog).where(of_owner(SCOPES)).with_for_update(),
    "scopes_page": select(_scope.owner)
    .where(of_block(SCOPES), _scope.owner > bindparam("after"))
    .order_by(_scope.owner)
    .limit(_most),
    "begin_scope": insert(SCOPES),
    "change_scope": update(SCOPES)
    .where(of_owner(SCOPES))
    .values(
        version=bindparam("version", type_=_scope.version.type),
        catalog=bindparam("catalog", type_=_scope.catalog.type),
    ),
    "forget_scope": delete(SCOPES).where(of_owner(SCOPES)),
    "blocks": select(COLLECTIONS.c.block, COLLECTIONS.c.dimension, COLLECTIONS.c.model).where(
        COLLECTIONS.c.namespace == bindparam("ns")
    ),
    # held until its vectors are written, so that nobody clears the block meanwhile
    "collection": select(COLLECTIONS.c.dimension, COLLECTIONS.c.model)
    .where(of_block(COLLECTIONS))
    .with_for_update(read=True),
    "announce": insert(COLLECTIONS),
    "clear_vectors": delete(VECTORS).where(of_block(VECTORS)),
    "clear_segments": delete(SEGMENTS).where(of_block(SEGMENTS)),
    "clear_scopes": delete(SCOPES).where(of_block(SCOPES)),
    "clear_collections": delete(COLLECTIONS).where(of_block(COLLECTIONS)),
}
