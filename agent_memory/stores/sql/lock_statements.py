"""The statements for named locks; see `statements`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, and_, bindparam, delete, insert, or_, select, update
from sqlalchemy.sql.expression import ClauseElement

from agent_memory.stores.sql.tables import LOCKS

_l = LOCKS.c
_TAKER: Any = bindparam("taker", type_=_l.owner.type)
_TILL: Any = bindparam("till", type_=_l.until.type)
_OF_LOCK = and_(_l.namespace == bindparam("ns"), _l.name == bindparam("of_name"))
_HOLD = update(LOCKS).where(_OF_LOCK).values(owner=_TAKER, until=_TILL)

LOCK_STATEMENTS: dict[str, ClauseElement] = {
    "take_lock": _HOLD.where(
        or_(
            _l.owner == _TAKER,
            _l.until <= bindparam("now", type_=BigInteger),
            _l.until > bindparam("latest", type_=BigInteger),
        )
    ),
    "renew_lock": _HOLD.where(_l.owner == _TAKER),
    # where there is none yet; whoever comes second changes nothing, and gets no error
    "begin_lock": insert(LOCKS)
    .prefix_with("OR IGNORE", dialect="sqlite")
    .prefix_with("IGNORE", dialect="mysql")
    .prefix_with("IGNORE", dialect="mariadb")
    .from_select(
        ["namespace", "name", "owner", "until"],
        select(
            bindparam("ns", type_=_l.namespace.type),
            bindparam("of_name", type_=_l.name.type),
            _TAKER,
            _TILL,
        ).suffix_with("ON CONFLICT DO NOTHING", dialect="postgresql"),
    ),
    "drop_lock": delete(LOCKS).where(_OF_LOCK, _l.owner == _TAKER),
}
