"""`SQLStore`: sessions and their logs in an SQL database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from agent_memory.core.damage import Damage
from agent_memory.core.once import Append, Appended, KeptKey, Once
from agent_memory.core.records import Draft, Entry, Head, Lag, Lease
from agent_memory.errors import Damaged, StoreUnavailable
from agent_memory.stores.base import Counts, Durability
from agent_memory.stores.coding import latest_micros, micros_of, now_micros, to_micros
from agent_memory.stores.damage import due_of, page_of, undamaged
from agent_memory.stores.log import with_tail
from agent_memory.stores.sql.appending import Appender, swap
from agent_memory.stores.sql.compiled import chunks
from agent_memory.stores.sql.database import SQLConnection, SQLDatabase
from agent_memory.stores.sql.keys import read_keys, write_keys
from agent_memory.stores.sql.migrations import is_current, migrate
from agent_memory.stores.sql.pieces import read_whole, write_entries
from agent_memory.stores.sql.rows import entry_of, head_of, lag_of
from agent_memory.stores.sql.sqlite import Database
from agent_memory.stores.sql.vectors import SQLVectors

_ALL = 2**62


class SQLStore(SQLVectors):
    """A store in an SQL database.

    Args:
        url: `sqlite:///path.db`, `postgresql://user:password@host/database` or
            `mysql://user:password@host/database` (MariaDB too).
        namespace: Stores of different namespaces see nothing of each other.
        durability: See `Durability`. On a server it is the server's own; "power" asks for it.

    Raises:
        StoreUnavailable: The database cannot be opened.
        ConfigError: The URL cannot be read, or the server is not set up for what is asked.
        MissingExtra: The driver is not installed.
        SchemaTooNew: A newer release wrote it.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability = "process"
    ) -> None:
        super().__init__(_database(url, durability), namespace)
        self._appender = Appender(namespace)
        try:
            if not self._database.read(is_current):
                self._database.patiently(migrate)
        except BaseException:
            self._database.close()
            raise

    @property
    def remote(self) -> bool:
        return not isinstance(self._database, Database)

    def append(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Head:
        return self._append(Append(session_id, drafts, user_id, within=within)).head

    def append_once(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Appended:
        return self._append(Append(session_id, drafts, user_id, once, within=within))

    def _append(self, one: Append) -> Appended:
        return self._database.alone(lambda connection: self._appender.append(connection, one))

    def append_all(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        """See `GroupingStore.append_all`."""
        # in one order everywhere, so that no two transactions wait for each other's sessions
        order = sorted(range(len(appends)), key=lambda place: appends[place].session_id)
        some = [appends[place] for place in order]
        try:
            done = self._database.alone(lambda it: self._appender.append_all(it, some))
        except StoreUnavailable as error:
            return [error for _ in appends]
        except Exception:  # noqa: BLE001 - one of them is to blame: each by itself then
            done = [self._alone(one) for one in some]
        found = dict(zip(order, done, strict=True))
        return [found[place] for place in range(len(appends))]

    def _alone(self, one: Append) -> Appended | Exception:
        try:
            return self._append(one)
        except Exception as error:  # noqa: BLE001 - it is that append's alone
            return error

    def keys(self, session_id: str, names: Collection[str] | None = None) -> list[KeptKey]:
        return self._database.read(lambda it: read_keys(it, self._at(session_id), names))

    def put_keys(
        self, session_id: str, keys: Sequence[KeptKey], *, lease: Lease | None = None
    ) -> None:
        at = self._at(session_id)

        def work(connection: SQLConnection) -> None:
            row = connection.row("head", at) if connection.lock(at) else None
            self._guard(connection, lease)
            if row is not None and keys:
                for names in chunks([one.name for one in keys]):
                    connection.run("drop_keys", {"of_key": row.key, "names": names})
                write_keys(connection, row.key, keys)

        self._database.write(work)

    def head(self, session_id: str) -> Head | None:
        return self._database.read(lambda connection: self._find(connection, session_id))

    def existing(self, session_ids: Collection[str]) -> set[str]:
        rows = self._database.read(
            lambda connection: [
                row
                for ids in chunks(session_ids)
                for row in connection.rows("existing", {"ns": self._namespace, "ids": ids})
            ]
        )
        return {row.session_id for row in rows}

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        most = _ALL if limit is None else limit
        values = {**self._at(session_id), "after": after, "most": most}
        rows = self._database.read(
            lambda it: read_whole(it, self._namespace, lambda: it.rows("read", values), session_id)
        )
        return [entry_of(session_id, row) for row in rows]

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        def read(connection: SQLConnection) -> list[Any]:
            return [
                row
                for some in chunks(sorted(set(seqs)))
                for row in connection.rows("pick", {**self._at(session_id), "seqs": some})
            ]

        rows = self._database.read(
            lambda it: read_whole(it, self._namespace, lambda: read(it), session_id)
        )
        return [entry_of(session_id, row) for row in rows]

    def lagging(
        self, block: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> list[Lag]:
        """See `SessionStore.lagging`."""
        name = "lagging_of_user" if session_id is None else "lagging_of_session"
        values = {"ns": self._namespace, "of_block": block, "of_user": user_id, "sid": session_id}
        rows = self._database.read(lambda connection: connection.rows(name, values))
        return undamaged(rows, lag_of)

    def tails(
        self, block: str, session_ids: Collection[str], *, before: int, limit: int
    ) -> list[Entry]:
        """See `SessionStore.tails`."""
        values = {"ns": self._namespace, "of_block": block, "before": before, "most": limit}

        def read(connection: SQLConnection) -> list[Any]:
            return [
                row
                for ids in chunks(session_ids)
                for row in connection.rows("tails", {**values, "ids": ids})
            ]

        rows = self._database.read(lambda it: read_whole(it, self._namespace, lambda: read(it)))
        return undamaged(rows, lambda row: entry_of(row.session_id, row))

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:

        def work(connection: SQLConnection) -> Head | None:
            if lease is not None:
                connection.lock(self._at(head.session_id))
                self._guard(connection, lease)
            return self._swap(connection, head)

        moved = self._database.write(work)
        if moved is not None:
            self._appender.moved(moved)
        return moved

    def rewrite(
        self,
        head: Head,
        after: int,
        entries: Sequence[Entry] = (),
        *,
        lease: Lease | None = None,
    ) -> Head | None:
        at = self._at(head.session_id)

        def work(connection: SQLConnection) -> Head | None:
            there = connection.lock(at)
            self._guard(connection, lease)
            before = connection.row("head", at) if there else None
            if head.version == 0:
                if before is not None:
                    return None
                self._appender.begin(connection, replace(head, version=1), now_micros())
            # a cut must not take unseen messages
            elif before is None or before.end != head.end or self._swap(connection, head) is None:
                return None
            else:
                self._cut(connection, at, after)
            if entries:
                key = connection.row("head", at).key
                write_entries(connection, key, entries)
            stored = self._find(connection, head.session_id)
            if stored is not None and stored.end < head.end:
                connection.run("cut_keys", {**at, "end": stored.end})
            return stored

        return self._database.write(work)

    def _cut(self, connection: SQLConnection, at: dict[str, Any], end: int) -> None:
        """Remove the entries after a seq."""
        connection.run("cut", {**at, "end": end})
        if connection.most_text is not None:
            connection.run("cut_pieces", {**at, "end": end})

    def _swap(self, connection: SQLConnection, head: Head) -> Head | None:
        at, after = self._at(head.session_id), replace(head, version=head.version + 1)
        if not connection.run("move", {**at, **swap(head, after)}):
            return None
        if head.deleting:
            connection.run("fall_due", {**at, "by": now_micros()})
        if head.expired:
            connection.run("expire", {**at, "upto": head.expired})
            if connection.most_text is not None:
                connection.run("expire_pieces", {**at, "upto": head.expired})
        log = connection.row("tail", at)
        return with_tail(after, log.end, log.total)

    def lease(self, session_id: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        now = now_micros()
        values = {**self._at(session_id), "taker": owner, "now": now, "latest": latest_micros(now)}
        values["until"] = now + micros_of(seconds)
        name = "renew_lease" if renew else "lease"
        return self._database.alone(lambda connection: connection.run(name, values) == 1)

    def release(self, session_id: str, owner: str) -> None:
        values = {**self._at(session_id), "taker": owner}
        self._database.alone(lambda connection: connection.run("release", values))

    def lock(self, name: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        now = now_micros()
        values = {"ns": self._namespace, "of_name": name, "taker": owner, "now": now}
        values["latest"] = latest_micros(now)
        values["till"] = now + micros_of(seconds)

        def work(connection: SQLConnection) -> bool:
            if renew:
                return connection.run("renew_lock", values) == 1
            taken = connection.run("take_lock", values) or connection.run("begin_lock", values)
            return taken == 1

        return self._database.alone(work)

    def unlock(self, name: str, owner: str) -> None:
        values = {"ns": self._namespace, "of_name": name, "taker": owner}
        self._database.alone(lambda connection: connection.run("drop_lock", values))

    def due(self, limit: int = 100) -> list[Head]:
        def read() -> list[Head]:
            now = now_micros()
            latest = latest_micros(now)
            values = {"ns": self._namespace, "now": now, "latest": latest, "most": limit}
            rows = self._database.read(lambda connection: connection.rows("due", values))
            return undamaged(rows, head_of)

        return due_of(self, read)

    def schedule(self, head: Head, seconds: float | None) -> bool:
        at = None if seconds is None else now_micros() + micros_of(seconds)
        begun = to_micros(head.created_at)
        values = {"was": head.version, "begun": begun, "end": head.end, "at": at}
        values |= self._at(head.session_id)

        def work(connection: SQLConnection) -> bool:
            connection.lock(values)  # what is being appended is to be seen
            return connection.run("schedule", values) == 1

        return self._database.write(work)

    def schedule_all(self) -> None:
        values = {"ns": self._namespace, "now": now_micros()}
        self._database.alone(lambda connection: connection.schedule_all(values))

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        values = self._at(session_id)

        def work(connection: SQLConnection) -> None:
            there = connection.lock(values)
            self._guard(connection, lease)
            if there:
                self._cut(connection, values, 0)
                connection.run("cut_keys", {**values, "end": 0})
                connection.run("drop", values)
            self._appender.forget(session_id)

        self._database.write(work)

    def secure_erase(self) -> None:
        """See `SessionStore.secure_erase`.

        Nothing on servers: what they keep of deleted rows for a while (until rows are vacuumed or
        purged, in logs, replicas and backups) is theirs to erase.
        """
        self._database.secure_erase()

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        of_user = "" if user_id is None else "_of_user"

        def read(last: str, most: int) -> list[Any]:
            values = {"ns": self._namespace, "after": last, "most": most, "of_user": user_id}
            try:
                return self._database.read(lambda it: it.rows(f"sessions{of_user}", values))
            except Damaged:  # pages of the file; those that the names stand in may be sound
                return self._database.read(lambda it: it.rows(f"names{of_user}", values))

        def decode(row: Any) -> Head:
            return head_of(row if hasattr(row, "cursors") else self._by_itself(row.session_id))

        return page_of(read, decode, lambda row: str(row.session_id), after or "", limit)

    def _by_itself(self, session_id: str) -> Any:
        damage = Damage("session", session_id, broken=("pages of the file",))
        try:
            row = self._database.read(lambda it: it.row("head", self._at(session_id)))
        except Damaged as error:
            raise damage.error() from error
        if row is None:  # an index names what its table does not have, or it was deleted just now
            raise damage.error()
        return row

    def counts(self) -> Counts:
        values = {"ns": self._namespace}
        row = self._database.read(lambda connection: connection.row("counts", values))
        return Counts(sessions=row.sessions, entries=row.entries)

    def close(self) -> None:
        self._database.close()

    def _at(self, session_id: str) -> dict[str, Any]:
        return {"ns": self._namespace, "sid": session_id}

    def _find(self, connection: SQLConnection, session_id: str) -> Head | None:
        row = connection.row("head", self._at(session_id))
        return None if row is None else head_of(row)


def _database(url: str, durability: Durability) -> SQLDatabase:
    if url.startswith("sqlite:"):
        return Database(url.removeprefix("sqlite:///"), durability)
    from agent_memory.stores.sql.server import open_server

    return open_server(url, durability)
