"""The statements on keys, beside those in `statements`."""

from __future__ import annotations

from sqlalchemy import and_, bindparam, delete, insert, select
from sqlalchemy.sql.expression import ClauseElement

from agent_memory.stores.sql.tables import KEYS, SESSIONS

_s, _k = SESSIONS.c, KEYS.c
_OF_SESSION = and_(_s.namespace == bindparam("ns"), _s.session_id == bindparam("sid"))
_SESSION = select(_s.key).where(_OF_SESSION).scalar_subquery()
_KEYS = (
    select(_k.name, _k.digest, _k.seq, _k.upto, _k.total, _k.created_at)
    .join_from(KEYS, SESSIONS, _k.session == _s.key)
    .where(_OF_SESSION)
)
_NAMED = _k.name.in_(bindparam("names", expanding=True))

KEY_STATEMENTS: dict[str, ClauseElement] = {
    "keys": _KEYS,
    "named_keys": _KEYS.where(_NAMED),
    "put_key": insert(KEYS),
    "drop_keys": delete(KEYS).where(_k.session == bindparam("of_key"), _NAMED),
    "prune_keys": delete(KEYS).where(
        _k.session == bindparam("of_key"), _k.created_at < bindparam("since")
    ),
    "cut_keys": delete(KEYS).where(_k.session == _SESSION, _k.seq > bindparam("end")),
}
