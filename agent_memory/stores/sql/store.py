"""`SQLStore`: sessions and their logs in an SQL database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from agent_memory.core.records import Draft, Entry, Head, Lease
from agent_memory.stores.base import Counts, Durability
from agent_memory.stores.coding import now_micros, to_micros
from agent_memory.stores.log import with_tail
from agent_memory.stores.sql.appending import Appender, swap
from agent_memory.stores.sql.compiled import chunks
from agent_memory.stores.sql.database import SQLConnection, SQLDatabase
from agent_memory.stores.sql.migrations import is_current, migrate
from agent_memory.stores.sql.records import SQLRecords
from agent_memory.stores.sql.rows import entry_of, entry_values, head_of
from agent_memory.stores.sql.sqlite import Database

_ALL = 2**62


class SQLStore(SQLRecords):
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
        """See `SessionStore.remote`."""
        return not isinstance(self._database, Database)

    def append(self, session_id: str, drafts: Sequence[Draft], user_id: str | None = None) -> Head:
        """See `SessionStore.append`."""
        return self._database.alone(
            lambda connection: self._appender.append(connection, session_id, drafts, user_id)
        )

    def head(self, session_id: str) -> Head | None:
        """See `SessionStore.head`."""
        return self._database.read(lambda connection: self._find(connection, session_id))

    def existing(self, session_ids: Collection[str]) -> set[str]:
        """See `SessionStore.existing`."""
        rows = self._database.read(
            lambda connection: [
                row
                for ids in chunks(session_ids)
                for row in connection.rows("existing", {"ns": self._namespace, "ids": ids})
            ]
        )
        return {row.session_id for row in rows}

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """See `SessionStore.read`."""
        most = _ALL if limit is None else limit
        values = {**self._at(session_id), "after": after, "most": most}
        rows = self._database.read(lambda connection: connection.rows("read", values))
        return [entry_of(session_id, row) for row in rows]

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        """See `SessionStore.pick`."""
        rows = self._database.read(
            lambda connection: [
                row
                for some in chunks(sorted(set(seqs)))
                for row in connection.rows("pick", {**self._at(session_id), "seqs": some})
            ]
        )
        return [entry_of(session_id, row) for row in rows]

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:
        """See `SessionStore.move`."""

        def work(connection: SQLConnection) -> Head | None:
            if lease is not None:
                connection.lock(self._at(head.session_id))
                self._guard(connection, lease)
            return self._swap(connection, head)

        return self._database.write(work)

    def rewrite(
        self,
        head: Head,
        after: int,
        entries: Sequence[Entry] = (),
        *,
        lease: Lease | None = None,
    ) -> Head | None:
        """See `SessionStore.rewrite`."""
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
                connection.run("cut", {**at, "end": after})
            if entries:
                key = connection.row("head", at).key
                rows = [{**entry_values(entry), "session": key} for entry in entries]
                connection.run_each("extend", rows)
            return self._find(connection, head.session_id)

        return self._database.write(work)

    def _swap(self, connection: SQLConnection, head: Head) -> Head | None:
        at, after = self._at(head.session_id), replace(head, version=head.version + 1)
        if not connection.run("move", {**at, **swap(head, after)}):
            return None
        if head.deleting:
            connection.run("fall_due", {**at, "now": now_micros()})
        if head.expired:
            connection.run("expire", {**at, "upto": head.expired})
        log = connection.row("tail", at)
        return with_tail(after, log.end, log.total)

    def lease(self, session_id: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        """See `SessionStore.lease`."""
        now = now_micros()
        values = {**self._at(session_id), "taker": owner, "now": now}
        values["until"] = now + int(seconds * 1e6)
        name = "renew_lease" if renew else "lease"
        return self._database.alone(lambda connection: connection.run(name, values) == 1)

    def release(self, session_id: str, owner: str) -> None:
        """See `SessionStore.release`."""
        values = {**self._at(session_id), "taker": owner}
        self._database.alone(lambda connection: connection.run("release", values))

    def lock(self, name: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        """See `SessionStore.lock`."""
        now = now_micros()
        values = {"ns": self._namespace, "of_name": name, "taker": owner, "now": now}
        values["till"] = now + int(seconds * 1e6)

        def work(connection: SQLConnection) -> bool:
            if renew:
                return connection.run("renew_lock", values) == 1
            taken = connection.run("take_lock", values) or connection.run("begin_lock", values)
            return taken == 1

        return self._database.alone(work)

    def unlock(self, name: str, owner: str) -> None:
        """See `SessionStore.unlock`."""
        values = {"ns": self._namespace, "of_name": name, "taker": owner}
        self._database.alone(lambda connection: connection.run("drop_lock", values))

    def due(self, limit: int = 100) -> list[Head]:
        """See `SessionStore.due`."""
        values = {"ns": self._namespace, "now": now_micros(), "most": limit}
        rows = self._database.read(lambda connection: connection.rows("due", values))
        return [head_of(row) for row in rows]

    def schedule(self, head: Head, seconds: float | None) -> bool:
        """See `SessionStore.schedule`."""
        at = None if seconds is None else now_micros() + int(seconds * 1e6)
        begun = to_micros(head.created_at)
        values = {"was": head.version, "begun": begun, "end": head.end, "at": at}
        values |= self._at(head.session_id)

        def work(connection: SQLConnection) -> bool:
            connection.lock(values)  # what is being appended is to be seen
            return connection.run("schedule", values) == 1

        return self._database.write(work)

    def schedule_all(self) -> None:
        """See `SessionStore.schedule_all`."""
        values = {"ns": self._namespace, "now": now_micros()}
        self._database.alone(lambda connection: connection.schedule_all(values))

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        """See `SessionStore.delete`."""
        values = self._at(session_id)

        def work(connection: SQLConnection) -> None:
            there = connection.lock(values)
            self._guard(connection, lease)
            if there:
                connection.run("cut", {**values, "end": 0})
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
        """See `SessionStore.sessions`."""
        values = {"ns": self._namespace, "after": after or "", "most": limit, "of_user": user_id}
        name = "sessions" if user_id is None else "sessions_of_user"
        rows = self._database.read(lambda connection: connection.rows(name, values))
        return [head_of(row) for row in rows]

    def counts(self) -> Counts:
        """See `SessionStore.counts`."""
        values = {"ns": self._namespace}
        row = self._database.read(lambda connection: connection.row("counts", values))
        return Counts(sessions=row.sessions, entries=row.entries)

    def close(self) -> None:
        """See `SessionStore.close`."""
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
