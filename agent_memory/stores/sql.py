"""`SQLStore`: sessions and their logs in an SQL database."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from agent_memory.messages import Message, compact_json
from agent_memory.records import Draft, Entry, Head, Lease, Summary, empty_head
from agent_memory.stores.base import Counts, Durability
from agent_memory.stores.coding import from_micros, to_micros
from agent_memory.stores.log import extend
from agent_memory.stores.sql_engine import Database
from agent_memory.stores.sql_migrations import is_current, migrate
from agent_memory.stores.sql_records import SQLRecords
from agent_memory.stores.sql_tables import ENTRIES, HEAD_COLUMNS, SESSIONS

_ALL = 2**62
_CHUNK = 500

_s, _e = SESSIONS.c, ENTRIES.c
_OF_SESSION = and_(_s.namespace == bindparam("ns"), _s.session_id == bindparam("sid"))


def _last(column: Any) -> Any:
    found = select(column).where(_e.session == _s.key).order_by(_e.seq.desc()).limit(1)
    return func.coalesce(found.correlate(SESSIONS).scalar_subquery(), 0)


_HEADS = select(SESSIONS, _last(_e.seq).label("end"), _last(_e.total).label("total"))
_HEAD = _HEADS.where(_OF_SESSION)
_PAGE = (
    _HEADS.where(_s.namespace == bindparam("ns"), _s.session_id > bindparam("after"))
    .order_by(_s.session_id)
    .limit(bindparam("most", type_=BigInteger))
)
_PAGE_OF_USER = _PAGE.where(_s.user_id == bindparam("user"))

_LOG = (
    select(_e.seq, _e.message, _e.tokens, _e.total, _e.encoding, _e.created_at)
    .join_from(ENTRIES, SESSIONS, _e.session == _s.key)
    .where(_OF_SESSION)
    .order_by(_e.seq)
)
_READ = _LOG.where(_e.seq > bindparam("after")).limit(bindparam("most", type_=BigInteger))
_PICK = _LOG.where(_e.seq.in_(bindparam("seqs", expanding=True)))

_BEGIN, _EXTEND = insert(SESSIONS), insert(ENTRIES)
_MOVE = (
    update(SESSIONS)
    .where(
        _OF_SESSION,
        _s.version == bindparam("was"),
        # a session that was deleted and begun anew has another time of creation
        _s.created_at == bindparam("begun"),
    )
    .values({name: bindparam(f"new_{name}") for name in HEAD_COLUMNS})
)
_CUT = delete(ENTRIES).where(
    _e.session == select(_s.key).where(_OF_SESSION).scalar_subquery(),
    _e.seq > bindparam("end"),
)
_NOW = bindparam("now", type_=BigInteger)
_OWNER = case((_s.user_id.is_(None), "s" + _s.session_id), else_="u" + _s.user_id)
_WAITING = (
    select(
        _s.key,
        _s.due_at,
        func.row_number().over(partition_by=_OWNER, order_by=(_s.due_at, _s.key)).label("turn"),
    )
    .where(
        _s.namespace == bindparam("ns"),
        _s.due_at <= _NOW,
        or_(_s.lease_owner.is_(None), _s.lease_until <= _NOW),
    )
    .subquery()
)
_TURNS = (_WAITING.c.turn, _WAITING.c.due_at, _WAITING.c.key)
_NEXT = select(_WAITING).order_by(*_TURNS).limit(bindparam("most", type_=BigInteger)).subquery()
_DUE = (  # heads of the chosen only: of thousands that wait, the system messages stay unread
    _HEADS.join(_NEXT, _NEXT.c.key == _s.key).order_by(_NEXT.c.turn, _NEXT.c.due_at, _NEXT.c.key)
)
_PUT_OFF = (
    update(SESSIONS)
    .where(
        _OF_SESSION,
        _s.version == bindparam("was"),
        _s.created_at == bindparam("begun"),
        _last(_e.seq) == bindparam("end"),
    )
    .values(due_at=bindparam("at"))
)
_ON_TIME = or_(_s.due_at.is_(None), _s.due_at > _NOW)
_FALL_DUE = update(SESSIONS).where(_OF_SESSION, _ON_TIME).values(due_at=_NOW)
_WAKE = update(SESSIONS).where(_s.namespace == bindparam("ns"), _ON_TIME).values(due_at=_NOW)
_DROP = delete(SESSIONS).where(_OF_SESSION)
_TAKERS = _s.lease_owner == bindparam("taker")
_HOLD = (
    update(SESSIONS)
    .where(_OF_SESSION)
    .values(lease_owner=bindparam("taker"), lease_until=bindparam("until"))
)
_LEASE = _HOLD.where(or_(_s.lease_owner.is_(None), _TAKERS, _s.lease_until <= _NOW))
_RENEW = _HOLD.where(_TAKERS)
_RELEASE = update(SESSIONS).where(_OF_SESSION, _TAKERS).values(lease_owner=None, lease_until=0)
_COUNTS = select(
    select(func.count()).where(_s.namespace == bindparam("ns")).scalar_subquery().label("sessions"),
    select(func.count())
    .select_from(ENTRIES)
    .join(SESSIONS, _e.session == _s.key)
    .where(_s.namespace == bindparam("ns"))
    .scalar_subquery()
    .label("entries"),
)


class SQLStore(SQLRecords):
    """A store in an SQL database.

    Args:
        url: `sqlite:///path.db`.
        namespace: Stores of different namespaces see nothing of each other.
        durability: See `Durability`.

    Raises:
        StoreUnavailable: The database cannot be opened.
        SchemaTooNew: A newer release wrote it.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability = "process"
    ) -> None:
        super().__init__(Database(url.removeprefix("sqlite:///"), durability), namespace)
        try:
            if not self._database.read(is_current):
                self._database.write(migrate)
        except BaseException:
            self._database.close()
            raise

    def append(self, session_id: str, drafts: Sequence[Draft], user_id: str | None = None) -> Head:
        """See `SessionStore.append`."""
        texts = [draft.message.to_json() for draft in drafts]

        def work(connection: Connection) -> Head:
            row = connection.execute(_HEAD, self._at(session_id)).first()
            before = empty_head(session_id, None, datetime.now(UTC)) if row is None else _head(row)
            head, entries = extend(before, drafts, user_id)
            if row is None:
                begun = to_micros(head.created_at)
                new = {"namespace": self._namespace, "session_id": session_id, "created_at": begun}
                new["due_at"] = _now()
                inserted: Any = connection.execute(_BEGIN, new | _columns(head))
                key = inserted.inserted_primary_key[0]
            else:
                key = row.key
                if head.version != before.version or head.system is not before.system:
                    connection.execute(_MOVE, self._swap(before, head))
                if row.due_at is None or row.due_at > _now():
                    connection.execute(_FALL_DUE, {**self._at(session_id), "now": _now()})
            if entries:
                rows = [
                    _entry_columns(key, entry, text)
                    for entry, text in zip(entries, texts, strict=True)
                ]
                connection.execute(_EXTEND, rows)
            return head

        return self._database.write(work)

    def head(self, session_id: str) -> Head | None:
        """See `SessionStore.head`."""
        return self._database.read(lambda connection: self._find(connection, session_id))

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """See `SessionStore.read`."""
        most = _ALL if limit is None else limit
        values = {**self._at(session_id), "after": after, "most": most}
        rows = self._database.read(lambda connection: connection.execute(_READ, values).all())
        return [_entry(session_id, row) for row in rows]

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        """See `SessionStore.pick`."""
        wanted = sorted(set(seqs))
        found: list[Entry] = []
        for start in range(0, len(wanted), _CHUNK):
            values = {**self._at(session_id), "seqs": wanted[start : start + _CHUNK]}
            rows = self._database.read(partial(_all, _PICK, values))
            found.extend(_entry(session_id, row) for row in rows)
        return found

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:
        """See `SessionStore.move`."""
        return self._database.write(lambda connection: self._move(connection, head, lease))

    def truncate(self, head: Head, end: int, *, lease: Lease | None = None) -> Head | None:
        """See `SessionStore.truncate`."""

        def work(connection: Connection) -> Head | None:
            self._guard(connection, lease)
            before = self._find(connection, head.session_id)
            if before is None or before.end != head.end:  # a cut must not take unseen messages
                return None
            if self._move(connection, head, lease) is None:
                return None
            connection.execute(_CUT, {**self._at(head.session_id), "end": end})
            return self._find(connection, head.session_id)

        return self._database.write(work)

    def _move(self, connection: Connection, head: Head, lease: Lease | None) -> Head | None:
        self._guard(connection, lease)
        after = replace(head, version=head.version + 1)
        if connection.execute(_MOVE, self._swap(head, after)).rowcount == 0:
            return None
        if head.deleting:
            connection.execute(_FALL_DUE, {**self._at(head.session_id), "now": _now()})
        return self._find(connection, head.session_id)

    def lease(self, session_id: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        """See `SessionStore.lease`."""
        now = _now()
        values = {**self._at(session_id), "taker": owner, "now": now}
        values["until"] = now + int(seconds * 1e6)
        statement = _RENEW if renew else _LEASE
        return self._database.write(
            lambda connection: connection.execute(statement, values).rowcount == 1
        )

    def release(self, session_id: str, owner: str) -> None:
        """See `SessionStore.release`."""
        values = {**self._at(session_id), "taker": owner}
        self._database.write(lambda connection: connection.execute(_RELEASE, values))

    def due(self, limit: int = 100) -> list[Head]:
        """See `SessionStore.due`."""
        values = {"ns": self._namespace, "now": _now(), "most": limit}
        return [_head(row) for row in self._database.read(partial(_all, _DUE, values))]

    def put_off(self, head: Head, seconds: float | None) -> bool:
        """See `SessionStore.put_off`."""
        at = None if seconds is None else _now() + int(seconds * 1e6)
        begun = to_micros(head.created_at)
        values = {"was": head.version, "begun": begun, "end": head.end, "at": at}
        values |= self._at(head.session_id)
        return self._database.write(
            lambda connection: connection.execute(_PUT_OFF, values).rowcount == 1
        )

    def wake(self) -> None:
        """See `SessionStore.wake`."""
        values = {"ns": self._namespace, "now": _now()}
        self._database.write(lambda connection: connection.execute(_WAKE, values))

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        """See `SessionStore.delete`."""
        values = self._at(session_id)

        def work(connection: Connection) -> None:
            self._guard(connection, lease)
            connection.execute(_CUT, {**values, "end": 0})
            connection.execute(_DROP, values)

        self._database.write(work)

    def scrub(self) -> None:
        """See `SessionStore.scrub`."""
        self._database.scrub()

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """See `SessionStore.sessions`."""
        values = {"ns": self._namespace, "after": after or "", "most": limit}
        statement = _PAGE
        if user_id is not None:
            statement = _PAGE_OF_USER
            values["user"] = user_id
        rows = self._database.read(partial(_all, statement, values))
        return [_head(row) for row in rows]

    def counts(self) -> Counts:
        """See `SessionStore.counts`."""
        values = {"ns": self._namespace}
        row = self._database.read(lambda connection: connection.execute(_COUNTS, values).one())
        return Counts(sessions=row.sessions, entries=row.entries)

    def close(self) -> None:
        """See `SessionStore.close`."""
        self._database.close()

    def _at(self, session_id: str) -> dict[str, Any]:
        return {"ns": self._namespace, "sid": session_id}

    def _find(self, connection: Connection, session_id: str) -> Head | None:
        row = connection.execute(_HEAD, self._at(session_id)).first()
        return None if row is None else _head(row)

    def _swap(self, before: Head, after: Head) -> dict[str, Any]:
        begun = to_micros(before.created_at)
        where = {**self._at(before.session_id), "was": before.version, "begun": begun}
        return {**where, **{f"new_{name}": value for name, value in _columns(after).items()}}


def _now() -> int:
    return int(time.time() * 1e6)


def _all(statement: Any, values: dict[str, Any], connection: Connection) -> Sequence[Any]:
    return connection.execute(statement, values).all()


def _columns(head: Head) -> dict[str, Any]:
    system, summary = head.system, head.summary
    return {
        "user_id": head.user_id,
        "start": head.start,
        "start_total": head.start_total,
        "pinned": compact_json(head.pinned),
        "pinned_tokens": head.pinned_tokens,
        "system": None if system is None else system.to_json(),
        "system_at": 0 if system is None else to_micros(system.created_at),
        "system_tokens": head.system_tokens,
        "summary": None if summary is None else compact_json(asdict(summary)),
        "cursors": compact_json(head.cursors),
        "version": head.version,
        "deleting": head.deleting,
    }


def _head(row: Any) -> Head:
    summary = None if row.summary is None else Summary(**json.loads(row.summary))
    system = None
    if row.system is not None:
        system = Message.from_json(row.system, from_micros(row.system_at))
    return Head(
        session_id=row.session_id,
        user_id=row.user_id,
        end=row.end,
        total=row.total,
        start=row.start,
        start_total=row.start_total,
        pinned=tuple(json.loads(row.pinned)),
        pinned_tokens=row.pinned_tokens,
        system=system,
        system_tokens=row.system_tokens,
        summary=summary,
        cursors=json.loads(row.cursors),
        version=row.version,
        deleting=row.deleting,
        created_at=from_micros(row.created_at),
    )


def _entry_columns(key: int, entry: Entry, text: str) -> dict[str, Any]:
    return {
        "session": key,
        "seq": entry.seq,
        "tokens": entry.tokens,
        "total": entry.total,
        "encoding": entry.encoding,
        "created_at": to_micros(entry.created_at),
        "message": text,
    }


def _entry(session_id: str, row: Any) -> Entry:
    created_at = from_micros(row.created_at)
    return Entry(
        session_id=session_id,
        seq=row.seq,
        message=Message.from_json(row.message, created_at),
        tokens=row.tokens,
        total=row.total,
        encoding=row.encoding,
        created_at=created_at,
    )
