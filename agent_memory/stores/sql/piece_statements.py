"""The statements on pieces of messages, beside those in `statements`."""

from __future__ import annotations

from sqlalchemy import and_, bindparam, delete, insert, select
from sqlalchemy.sql.expression import ClauseElement

from agent_memory.stores.sql.tables import PIECES, SESSIONS

_s, _p = SESSIONS.c, PIECES.c
_OF_SESSION = and_(_s.namespace == bindparam("ns"), _s.session_id == bindparam("sid"))
_SESSION = select(_s.key).where(_OF_SESSION).scalar_subquery()

PIECE_STATEMENTS: dict[str, ClauseElement] = {
    "put_piece": insert(PIECES),
    "pieces": select(_p.seq, _p.part, _p.text)
    .join_from(PIECES, SESSIONS, _p.session == _s.key)
    .where(_OF_SESSION, _p.seq.in_(bindparam("seqs", expanding=True)))
    .order_by(_p.seq, _p.part),
    "cut_pieces": delete(PIECES).where(_p.session == _SESSION, _p.seq > bindparam("end")),
    "expire_pieces": delete(PIECES).where(_p.session == _SESSION, _p.seq <= bindparam("upto")),
}
