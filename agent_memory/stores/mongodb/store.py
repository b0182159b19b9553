"""`MongoDBStore`: sessions and their logs in MongoDB."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from agent_memory.core.idempotency import Appended, KeptKey, Once, in_order
from agent_memory.core.records import Draft, Entry, Head, Lag, Lease, empty_head
from agent_memory.errors import SchemaTooNew
from agent_memory.stores.base import Counts, Durability
from agent_memory.stores.coding import latest_micros, micros_of, now_micros, to_micros
from agent_memory.stores.damage import due_of, page_of, undamaged
from agent_memory.stores.log import fairly, tails_one_by_one
from agent_memory.stores.mongodb.appending import Appender
from agent_memory.stores.mongodb.connection import Deployment, Table
from agent_memory.stores.mongodb.documents import (
    LAG_FIELDS,
    NEVER,
    NO_TAIL,
    head_of,
    key_of,
    lag_of,
)
from agent_memory.stores.mongodb.keys import OF_KEYS, SessionKeys
from agent_memory.stores.mongodb.log import Log
from agent_memory.stores.mongodb.moving import Mover
from agent_memory.stores.mongodb.vectors import MongoDBVectors

Doc = dict[str, Any]

_LAYOUT = 1
_AT_ONCE = 1000
_INDEXES: dict[str, list[list[tuple[str, int]]]] = {
    "agent_memory_sessions": [
        [("ns", 1), ("sid", 1)],
        [("ns", 1), ("user", 1), ("sid", 1)],
        [("ns", 1), ("due_at", 1)],
    ],
    "agent_memory_entries": [[("log", 1), ("n", 1)]],
    "agent_memory_keys": [[("log", 1), ("name", 1)], [("log", 1), ("at", 1)]],
    "agent_memory_facts": [[("block", 1), ("owner", 1)], [("block", 1), ("session_id", 1)]],
    "agent_memory_vectors": [[("block", 1), ("owner", 1)], [("block", 1), ("session_id", 1)]],
}
_SPARSE: dict[str, list[list[tuple[str, int]]]] = {
    "agent_memory_sessions": [[("cut.below", 1)]],
    "agent_memory_facts": [[("next.block", 1)], [("next.op", 1)]],
    "agent_memory_vectors": [[("next.block", 1)], [("next.op", 1)]],
}


class MongoDBStore(MongoDBVectors):
    """A store in a MongoDB database.

    Args:
        url: `mongodb://user:password@host:27017/database` or `mongodb+srv://...`; the database is
            "agent_memory" where the URL names none.
        namespace: Stores of different namespaces see nothing of each other.
        durability: "process": each write waits for a majority of the members, and not for the
            journal.

    Raises:
        StoreUnavailable: The deployment cannot be reached, or does not let the user in.
        SchemaTooNew: A newer release wrote it.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability | None = None
    ) -> None:
        self._deployment = Deployment(url, durability)
        super().__init__(self._deployment, namespace)
        self._locks = self._deployment.table("agent_memory_locks")
        self._keys = SessionKeys(self._sessions, self._deployment.table("agent_memory_keys"))
        entries = self._deployment.table("agent_memory_entries")
        self._log = Log(self._sessions, entries, self._keys)
        self._appender = Appender(namespace, self._sessions, self._log, self._keys)
        self._mover = Mover(namespace, self._sessions, self._log, self._appender, self._guard)
        try:
            self._prepare(self._deployment.table("agent_memory_meta"))
        except BaseException:
            self._deployment.close()
            raise

    @property
    def remote(self) -> bool:
        return True

    def append(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Head:
        return self._appender.append(session_id, drafts, user_id, within)

    def append_once(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Appended:
        return self._appender.append_once(session_id, drafts, once, user_id, within)

    def keys(self, session_id: str, names: Collection[str] | None = None) -> list[KeptKey]:
        session = self._sessions.one({"_id": self._key(session_id)}, fields=OF_KEYS)
        return in_order(self._keys.known(session, names).values()) if session else []

    def put_keys(
        self, session_id: str, keys: Sequence[KeptKey], *, lease: Lease | None = None
    ) -> None:
        self._guard(lease)
        session = self._sessions.one({"_id": self._key(session_id)}, fields=OF_KEYS)
        owner = None if lease is None else lease.owner
        if session is not None and keys and not self._keys.put(session, keys, owner):
            self._guard(lease)

    def head(self, session_id: str) -> Head | None:
        session = self._sessions.one({"_id": self._key(session_id)}, fields=NO_TAIL)
        return None if session is None else head_of(session)

    def existing(self, session_ids: Collection[str]) -> set[str]:
        keys = {self._key(name): name for name in session_ids}
        found = self._at_once(list(keys), {"deleting": 0}, {"_id": 1})
        return {keys[session["_id"]] for session in found}

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        return self._log.read(self._key(session_id), after, limit)

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        return self._log.pick(self._key(session_id), seqs) if len(seqs) else []

    def lagging(
        self, block: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> list[Lag]:
        """See `SessionStore.lagging`."""
        which: Doc = {"ns": self._namespace, "deleting": 0}
        which |= {"user": user_id} if session_id is None else {"_id": self._key(session_id)}
        found = self._sessions.all(which, fields=LAG_FIELDS, by=[("begun", -1)])
        lags = undamaged(found, lambda session: lag_of(session, block))
        return [lag for lag in lags if lag.after < lag.end]

    def tails(
        self, block: str, session_ids: Collection[str], *, before: int, limit: int
    ) -> list[Entry]:
        """See `SessionStore.tails`."""
        return tails_one_by_one(self, block, session_ids, before, limit)

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:
        return self._mover.move(head, lease)

    def rewrite(
        self,
        head: Head,
        after: int,
        entries: Sequence[Entry] = (),
        *,
        lease: Lease | None = None,
    ) -> Head | None:
        return self._mover.rewrite(head, max(after, 0), entries, lease)

    def lease(self, session_id: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        now = now_micros()
        which = {"_id": self._key(session_id)}
        until = now + micros_of(seconds)
        change = {"$set": {"lease_owner": owner, "lease_until": until}}
        free = () if renew else _free(now)
        if any(self._sessions.update({**which, "lease_until": end}, change) for end in free):
            return True
        return self._sessions.update({**which, "lease_owner": owner}, change)

    def release(self, session_id: str, owner: str) -> None:
        which = {"_id": self._key(session_id), "lease_owner": owner}
        self._sessions.update(which, {"$set": {"lease_owner": None, "lease_until": 0}})

    def lock(self, name: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        now = now_micros()
        which = {"_id": self._key(name)}
        held = {"owner": owner, "until": now + micros_of(seconds)}
        if not renew:
            if not self._locks.insert([{**which, **held}]):
                return True
            free = ({**which, "until": end} for end in _free(now))
            if any(self._locks.update(one, {"$set": held}) for one in free):
                return True
        # what was sent twice, and done the first time, is ours here
        return self._locks.update({**which, "owner": owner}, {"$set": held})

    def unlock(self, name: str, owner: str) -> None:
        self._locks.delete({"_id": self._key(name), "owner": owner})

    def due(self, limit: int = 100) -> list[Head]:
        return due_of(self, lambda: self._due(limit)) if limit > 0 else []

    def _due(self, limit: int) -> list[Head]:
        now = now_micros()
        which: Doc = {"ns": self._namespace, "due_at": {"$lte": now}}
        free = [{**which, "lease_until": end} for end in _free(now)]
        order = [("due_at", 1), ("_id", 1)]
        reads = (self._sessions.all(w, fields=NO_TAIL, by=order, limit=limit + 1) for w in free)
        found = [one for read in reads for one in read]
        if len(found) > limit:  # whose turn it is depends on all of them
            fields: Doc = {"sid": 1, "user": 1, "due_at": 1}
            found = [one for w in free for one in self._sessions.all(w, fields=fields, by=order)]
            then = datetime.now(UTC)
            names = ((one["due_at"], empty_head(one["sid"], one["user"], then)) for one in found)
            turns = fairly(names)[:limit]
            keys = [self._key(head.session_id) for head in turns]
            read = [one for w in free for one in self._at_once(keys, w, NO_TAIL)]
            heads = dict(undamaged(read, lambda one: (one["_id"], head_of(one))))
            return [heads[key] for key in keys if key in heads]
        return fairly(undamaged(found, lambda one: (one["due_at"], head_of(one))))

    def schedule(self, head: Head, seconds: float | None) -> bool:
        which = {
            "_id": self._key(head.session_id),
            "version": head.version,
            "begun": to_micros(head.created_at),
            "end": head.end,
        }
        at = NEVER if seconds is None else now_micros() + micros_of(seconds)
        return self._sessions.update(which, {"$set": {"due_at": at}})

    def schedule_all(self) -> None:
        now = now_micros()
        which = {"ns": self._namespace, "due_at": {"$gt": now}}
        self._sessions.update_all(which, {"$set": {"due_at": now}})

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        """See `SessionStore.delete`.

        While it runs the session is one whose deletion has begun; a worker finishes what is cut
        short.
        """
        which = {"_id": self._key(session_id)}
        held: Doc = {} if lease is None else {"lease_owner": lease.owner}
        change = {
            "$set": {"deleting": 1},
            "$inc": {"version": 1},
            "$min": {"due_at": now_micros()},
        }
        session = self._sessions.swap({**which, **held}, change, fields=NO_TAIL)
        self._appender.forget(session_id)
        if session is None:
            self._guard(lease)
        while session is not None:
            self._finish_writes(session)
            self._log.drop(session)
            which["log"] = session["log"]
            if self._sessions.delete({**which, "ops": {}}):  # what was committed there holds
                self._log.drop(session)  # what was spilled between the two
                return
            session = self._sessions.one(which, fields=NO_TAIL)

    def secure_erase(self) -> None:
        """See `SessionStore.secure_erase`.

        Removes the documents of entries that gave way, where their writer was cut short. MongoDB
        frees the space of removed documents and writes over it in time; what its files, journal and
        oplog hold until then is out of reach, as are backups.
        """
        for session in self._sessions.all({"cut.below": {"$gt": 0}}, fields=NO_TAIL):
            if session["ns"] == self._namespace:
                self._log.clear_cut(session)

    def sync(self) -> None:
        """See `SessionStore.sync`."""

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        which: Doc = {"ns": self._namespace}
        if user_id is not None:
            which["user"] = user_id

        def read(last: str, most: int) -> list[Doc]:
            later = {**which, "sid": {"$gt": last}}
            return self._sessions.all(later, fields=NO_TAIL, by=[("sid", 1)], limit=most)

        return page_of(read, head_of, lambda doc: str(doc["sid"]), after or "", limit)

    def counts(self) -> Counts:
        sums = {"sessions": {"$sum": 1}, "ends": {"$sum": "$end"}, "gone": {"$sum": "$expired"}}
        found = self._sessions.group({"ns": self._namespace}, sums)
        entries = found.get("ends", 0) - found.get("gone", 0)
        return Counts(sessions=found.get("sessions", 0), entries=entries)

    def close(self) -> None:
        self._deployment.close()

    def _key(self, session_id: str) -> str:
        return key_of(self._namespace, session_id)

    def _at_once(self, keys: Sequence[str], which: Doc, fields: Doc) -> list[Doc]:
        return [
            doc
            for at in range(0, len(keys), _AT_ONCE)
            for doc in self._sessions.all(
                {**which, "_id": {"$in": list(keys[at : at + _AT_ONCE])}}, fields=fields
            )
        ]

    def _prepare(self, meta: Table) -> None:
        """Make the indexes, once for each database."""
        stored = meta.one({"_id": "layout"})
        if stored is None:
            for name, keys in _INDEXES.items():
                self._deployment.table(name).index(keys)
            for name, keys in _SPARSE.items():
                self._deployment.table(name).index(keys, sparse=True)
            meta.insert([{"_id": "layout", "version": _LAYOUT}])
        elif stored["version"] != _LAYOUT:
            raise SchemaTooNew(
                f"The MongoDB database was written by a newer release of agent-memory (layout "
                f"{stored['version']}; this one knows {_LAYOUT}). Install a newer agent-memory."
            )


def _free(now: int) -> Sequence[Doc]:
    """What may hold of the end of a lease that can be taken: it has come, or cannot be true."""
    return {"$lte": now}, {"$gt": latest_micros(now)}
