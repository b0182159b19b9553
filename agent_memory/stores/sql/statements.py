"""Every statement of an SQL store, by name: written once, with SQLAlchemy Core, for all dialects.

They are compiled when a release is made or a store is opened, see `compiling`; what runs is
their text, by the driver itself, since SQLAlchemy's share of a short statement is most of its time.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.sql.expression import ClauseElement

from agent_memory.stores.sql.cursors import Cursor
from agent_memory.stores.sql.key_statements import KEY_STATEMENTS
from agent_memory.stores.sql.lock_statements import LOCK_STATEMENTS
from agent_memory.stores.sql.piece_statements import PIECE_STATEMENTS
from agent_memory.stores.sql.record_statements import RECORD_STATEMENTS
from agent_memory.stores.sql.tables import ENTRIES, HEAD_COLUMNS, META, SESSIONS
from agent_memory.stores.sql.vector_statements import VECTOR_STATEMENTS

_s, _e = SESSIONS.c, ENTRIES.c
_zero: Any = literal_column("0")
_one: Any = literal_column("1")
_OF_SESSION = and_(_s.namespace == bindparam("ns"), _s.session_id == bindparam("sid"))
_now = bindparam("now", type_=BigInteger)
_by = bindparam("by", type_=BigInteger)
_most = bindparam("most", type_=BigInteger)


def _last(column: Any) -> Any:
    found = select(column).where(_e.session == _s.key).order_by(_e.seq.desc()).limit(_one)
    return func.coalesce(found.correlate(SESSIONS).scalar_subquery(), _zero)


_TAIL = (_last(_e.seq).label("end"), _last(_e.total).label("total"))
_HEADS = select(SESSIONS, *_TAIL)
_PAGE = (
    _HEADS.where(_s.namespace == bindparam("ns"), _s.session_id > bindparam("after"))
    .order_by(_s.session_id)
    .limit(_most)
)
_NAMES = (
    select(_s.session_id)
    .where(_s.namespace == bindparam("ns"), _s.session_id > bindparam("after"))
    .order_by(_s.session_id)
    .limit(_most)
)
_LOG = (
    select(_e.seq, _e.message, _e.tokens, _e.total, _e.encoding, _e.created_at)
    .join_from(ENTRIES, SESSIONS, _e.session == _s.key)
    .where(_OF_SESSION)
    .order_by(_e.seq)
)
_ENTRY = ("seq", "tokens", "total", "encoding", "created_at", "message")
_OF_BLOCK: Any = bindparam("of_block")
_CURSOR: Any = Cursor(_s.cursors, _OF_BLOCK)
_ENDS = select(
    _s.key,
    _s.session_id,
    _s.version,
    _s.created_at,
    _s.expired,
    _CURSOR.label("absorbed"),
    *_TAIL,
).where(_s.namespace == bindparam("ns"), _s.deleting.is_(literal_column("FALSE")))


def _lagging(which: Any) -> Any:
    one = _ENDS.where(which).subquery()
    fields = ("session_id", "version", "created_at", "expired", "absorbed", "end", "total")
    return (
        select(*[one.c[name] for name in fields])
        .where(one.c.end > one.c.absorbed, one.c.end > one.c.expired)
        .order_by(one.c.key.desc())
    )


_UNCHANGED = and_(
    _OF_SESSION,
    _s.version == bindparam("was"),
    # a session that was deleted and begun anew has another time of creation
    _s.created_at == bindparam("begun"),
)
_OWNER = case(
    (_s.user_id.is_(None), literal_column("'s'") + _s.session_id),
    else_=literal_column("'u'") + _s.user_id,
)
_FREE = or_(
    _s.lease_owner.is_(None),
    _s.lease_until <= _now,
    _s.lease_until > bindparam("latest", type_=BigInteger),
)
_WAITING = (
    select(
        _s.key,
        _s.due_at,
        func.row_number().over(partition_by=_OWNER, order_by=(_s.due_at, _s.key)).label("turn"),
    )
    .where(
        _s.namespace == bindparam("ns"),
        _s.due_at <= _now,
        _FREE,
    )
    .subquery()
)
_TURNS = (_WAITING.c.turn, _WAITING.c.due_at, _WAITING.c.key)
_NEXT = select(_WAITING).order_by(*_TURNS).limit(_most).subquery()


def _due_after(at: Any) -> Any:
    return or_(_s.due_at.is_(None), _s.due_at > at)


_ON_TIME = _due_after(_now)
_TAKER: Any = bindparam("taker")
_HOLD = (
    update(SESSIONS)
    .where(_OF_SESSION)
    .values(lease_owner=_TAKER, lease_until=bindparam("until", type_=BigInteger))
)


def _append(which: Any, *, alone: bool) -> ClauseElement:
    """An entry after the end of a session that is as it is known, and due.

    Args:
        which: What is true of the session.
        alone: Servers let no other append hold the head until the transaction ends.
    """
    return (
        insert(ENTRIES)
        .prefix_with("OR IGNORE", dialect="sqlite")
        .prefix_with("IGNORE", dialect="mysql")
        .prefix_with("IGNORE", dialect="mariadb")
        .from_select(
            ["session", *_ENTRY],
            select(_s.key, *[bindparam(name, type_=_e[name].type) for name in _ENTRY])
            .where(which, _s.due_at <= _by)
            .with_for_update(read=not alone, key_share=alone)
            .suffix_with("ON CONFLICT DO NOTHING", dialect="postgresql"),
        )
    )


_VERSION: Any = literal_column("'schema_version'")

STATEMENTS: dict[str, ClauseElement] = {
    "version": select(META.c.value).where(META.c.name == _VERSION),
    "first_version": insert(META).from_select(
        ["name", "value"], select(_VERSION, bindparam("newest", type_=BigInteger))
    ),
    "next_version": update(META)
    .where(META.c.name == _VERSION)
    .values(value=bindparam("newest", type_=BigInteger)),
    "begin": insert(SESSIONS),
    "extend": insert(ENTRIES),
    # One statement, no transaction around it: the head's version says that the session is as it is
    # known, and the log's primary key that nobody appended to it meanwhile. Servers hold the head
    # until the entry is in the log.
    "append": _append(
        and_(_s.key == bindparam("of_key"), _s.version == bindparam("was")), alone=False
    ),
    # In a transaction that may change the head afterwards: two that shared it would wait for each
    # other for ever, and so would one that found it by its key and one that found it by its name,
    # where an index is locked beside its row.
    "append_alone": _append(_UNCHANGED, alone=True),
    "head": _HEADS.where(_OF_SESSION),
    "tail": select(*_TAIL).where(_OF_SESSION),
    "sessions": _PAGE,
    "sessions_of_user": _PAGE.where(_s.user_id == bindparam("of_user")),
    "names": _NAMES,
    "names_of_user": _NAMES.where(_s.user_id == bindparam("of_user")),
    "existing": select(_s.session_id).where(
        _s.namespace == bindparam("ns"),
        _s.session_id.in_(bindparam("ids", expanding=True)),
        _s.deleting.is_(literal_column("FALSE")),
    ),
    "read": _LOG.where(_e.seq > bindparam("after")).limit(_most),
    "lagging_of_user": _lagging(_s.user_id == bindparam("of_user")),
    "lagging_of_session": _lagging(_s.session_id == bindparam("sid")),
    "tails": select(
        _s.session_id, _e.seq, _e.message, _e.tokens, _e.total, _e.encoding, _e.created_at
    )
    .join_from(SESSIONS, ENTRIES, _e.session == _s.key)
    .where(
        _s.namespace == bindparam("ns"),
        _s.session_id.in_(bindparam("ids", expanding=True)),
        _e.seq > _CURSOR - bindparam("before", type_=BigInteger),
        _e.seq > _last(_e.seq) - _most,
    )
    .order_by(_s.key, _e.seq),
    "pick": _LOG.where(_e.seq.in_(bindparam("seqs", expanding=True))),
    "move": update(SESSIONS)
    .where(_UNCHANGED)
    .values({name: bindparam(f"new_{name}") for name in HEAD_COLUMNS}),
    "cut": delete(ENTRIES).where(
        _e.session == select(_s.key).where(_OF_SESSION).scalar_subquery(),
        _e.seq > bindparam("end"),
    ),
    "expire": delete(ENTRIES).where(
        _e.session == select(_s.key).where(_OF_SESSION).scalar_subquery(),
        _e.seq <= bindparam("upto"),
    ),
    # heads of the chosen only: of thousands that wait, the system messages stay unread
    "due": _HEADS.join(_NEXT, _NEXT.c.key == _s.key).order_by(
        _NEXT.c.turn, _NEXT.c.due_at, _NEXT.c.key
    ),
    "schedule": update(SESSIONS)
    .where(_UNCHANGED, _last(_e.seq) == bindparam("end"))
    .values(due_at=bindparam("at")),
    "fall_due": update(SESSIONS).where(_OF_SESSION, _due_after(_by)).values(due_at=_by),
    "schedule_all": update(SESSIONS)
    .where(_s.namespace == bindparam("ns"), _ON_TIME)
    .values(due_at=_now),
    "drop": delete(SESSIONS).where(_OF_SESSION),
    "lease": _HOLD.where(or_(_s.lease_owner == _TAKER, _FREE)),
    "renew_lease": _HOLD.where(_s.lease_owner == _TAKER),
    "release": update(SESSIONS)
    .where(_OF_SESSION, _s.lease_owner == _TAKER)
    .values(lease_owner=null(), lease_until=_zero),
    "held": select(_s.key)
    .where(_OF_SESSION, _s.lease_owner == bindparam("owner"))
    .with_for_update(read=True),
    "counts": select(
        select(func.count())
        .where(_s.namespace == bindparam("ns"))
        .scalar_subquery()
        .label("sessions"),
        select(func.count())
        .select_from(ENTRIES)
        .join(SESSIONS, _e.session == _s.key)
        .where(_s.namespace == bindparam("ns"))
        .scalar_subquery()
        .label("entries"),
    ),
    **KEY_STATEMENTS,
    **LOCK_STATEMENTS,
    **PIECE_STATEMENTS,
    **RECORD_STATEMENTS,
    **VECTOR_STATEMENTS,
}

SERVER_STATEMENTS: dict[str, ClauseElement] = {
    **STATEMENTS,
    "lock": select(_s.key).where(_OF_SESSION).with_for_update(),
    "asleep": select(_s.key)
    .where(_s.namespace == bindparam("ns"), _ON_TIME, _s.key > bindparam("after"))
    .order_by(_s.key)
    .limit(_most),
    "wake_some": update(SESSIONS)
    .where(_s.key.in_(bindparam("keys", expanding=True)), _ON_TIME)
    .values(due_at=_now),
}
"""Those that run on a server, which lets many write at the same time."""
