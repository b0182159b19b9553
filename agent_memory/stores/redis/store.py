"""`RedisStore`: sessions and their logs on a Redis or Valkey server."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from agent_memory.core.once import Appended, KeptKey, Once, in_order
from agent_memory.core.records import Draft, Entry, Head, Lag, Lease
from agent_memory.errors import SchemaTooNew
from agent_memory.stores.base import Counts, Durability
from agent_memory.stores.coding import micros_of, to_micros
from agent_memory.stores.damage import due_of, undamaged
from agent_memory.stores.erasures import Erasures
from agent_memory.stores.log import copy_for_caller, lags, tails_of
from agent_memory.stores.redis.appending import Appender
from agent_memory.stores.redis.cluster import RedisCluster, connected
from agent_memory.stores.redis.coding import (
    entry_of,
    entry_value,
    head_body,
    head_of,
    ids_in,
    key_of,
    key_value,
    lag_of,
    mark_of,
    number,
)
from agent_memory.stores.redis.durability import durability_note, require_power, rewrite_files
from agent_memory.stores.redis.failures import failure
from agent_memory.stores.redis.index import ClusterIndex, Index
from agent_memory.stores.redis.index_scripts import DUE, WAKE
from agent_memory.stores.redis.keys import Keys
from agent_memory.stores.redis.lock_scripts import LOCK, UNLOCK
from agent_memory.stores.redis.records import held, pages
from agent_memory.stores.redis.scripts import (
    DELETE,
    HEAD_FIELDS,
    LAGS,
    LEASE,
    MOVE,
    PUT_KEYS,
    READ,
    READ_KEYS,
    RELEASE,
)
from agent_memory.stores.redis.server import Lost
from agent_memory.stores.redis.vectors import RedisVectors

_LAYOUT = 2
_PAGE = 500


class RedisStore(RedisVectors):
    """A store on a Redis server, version 6 or later, or one that answers like it.

    Each change is one Lua script: it happens as a whole or not at all, and nobody sees it half
    done. Leases and dues go by the server's clock. On a cluster, which is recognised, what changes
    one session is still one script; the indexes of the namespace follow in steps of their own.

    Args:
        url: `redis://host:6379/0`, `rediss://` for TLS, `unix:///path/to/redis.sock?db=0`.
        namespace: Stores of different namespaces see nothing of each other.
        durability: "power" wants a server with `appendonly yes` and `appendfsync always`.

    Raises:
        MissingExtra: The driver is not installed.
        StoreUnavailable: The server cannot be reached, or refuses.
        ConfigError: It does not keep what `durability` asks for.
        SchemaTooNew: A newer release wrote it.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability = "process"
    ) -> None:
        server = connected(url)
        keys = Keys(namespace)
        cluster = isinstance(server, RedisCluster)
        index = ClusterIndex(server, keys) if cluster else Index(server, keys)
        super().__init__(server, keys, index)
        self._appender = Appender(server, keys, index)
        self._erasures = Erasures()
        try:
            layout = server.ask("GET", keys.layout)
            if layout is not None and (number(layout) or 0) > _LAYOUT:
                raise SchemaTooNew(
                    f"The Redis server at {server.place} was written by a newer release of "
                    "agent-memory. Upgrade: pip install -U agent-memory"
                )
            if layout is not None and int(layout) < _LAYOUT:
                server.ask("SET", keys.layout, _LAYOUT, "XX")
            if durability == "power":
                for node in server.nodes():
                    require_power(node)
        except BaseException:
            server.close()
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
        found = self._index.run(READ_KEYS, session_id, repeat=True)
        keys = in_order(map(key_of, found))
        return [one for one in keys if names is None or one.name in names]

    def put_keys(
        self, session_id: str, keys: Sequence[KeptKey], *, lease: Lease | None = None
    ) -> None:
        for some in pages(keys) if keys else [keys]:
            pairs = [part for one in some for part in (one.name, key_value(one))]
            held(self._index.run(PUT_KEYS, session_id, _holder(lease), *pairs, repeat=True), lease)

    def head(self, session_id: str) -> Head | None:
        fields = self._server.ask("HMGET", self._keys.head(session_id), *HEAD_FIELDS)
        found = head_of(session_id, fields)
        if found is not None:
            self._appender.remember(copy_for_caller(found), mark_of(fields))
        return found

    def existing(self, session_ids: Collection[str]) -> set[str]:
        return {
            name
            for names in pages(list(session_ids))
            for name, deleting in zip(
                names,
                self._server.ask_many(
                    [("HGET", self._keys.head(name), "deleting") for name in names]
                ),
                strict=True,
            )
            if deleting == b"0"
        }

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        most = "" if limit is None else limit
        keys = self._keys.session(session_id)
        before, *values = self._server.run(READ, keys, max(after, 0), most, repeat=True)
        return [entry_of(session_id, seq, value) for seq, value in enumerate(values, before + 1)]

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        log = self._keys.log(session_id)
        entries: list[Entry] = []
        for some in pages(sorted({seq for seq in seqs if seq > 0})):
            values = self._server.ask("HMGET", log, *some)
            entries += [
                entry_of(session_id, seq, value)
                for seq, value in zip(some, values, strict=True)
                if value is not None
            ]
        return entries

    def lagging(
        self, block: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> list[Lag]:
        """See `SessionStore.lagging`."""
        listed = self._names(user_id, None, _PAGE) if session_id is None else [[session_id]]
        found = [lag for names in listed for lag in self._lags(block, names, user_id)]
        return sorted(found, key=lambda lag: lag.created_at, reverse=True)

    def _lags(self, block: str, names: Sequence[str], user_id: str | None) -> list[Lag]:
        if self._index.cluster:  # a script reaches the keys of one session alone
            heads = [head for _, head in self._heads(names) if head is not None]
            return lags((head for head in heads if user_id in (None, head.user_id)), block)
        keys = [self._keys.head(name) for name in names]
        found: list[tuple[int, bytes, bytes, bytes, bytes, bytes, bytes]]
        found = self._server.run(LAGS, keys, block, repeat=True)
        return [
            lag_of(names[at], values)
            for at, *values, user in found
            if user_id is None or user.decode() == user_id
        ]

    def tails(
        self, block: str, session_ids: Collection[str], *, before: int, limit: int
    ) -> list[Entry]:
        """See `SessionStore.tails`."""
        heads = [head for _, head in self._heads(list(session_ids)) if head is not None]
        return tails_of(self, heads, block, before, limit)

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:
        return self._move(head, lease, "")

    def rewrite(
        self,
        head: Head,
        after: int,
        entries: Sequence[Entry] = (),
        *,
        lease: Lease | None = None,
    ) -> Head | None:
        return self._move(head, lease, max(after, 0), entries)

    def _move(
        self, head: Head, lease: Lease | None, cut: int | str, entries: Sequence[Entry] = ()
    ) -> Head | None:
        after, mark = replace(copy_for_caller(head), version=head.version + 1), secrets.token_hex(8)
        self._appender.forget(head.session_id)
        if head.version:
            self._index.moving(head.session_id, head.user_id, head.deleting)
        else:
            self._index.appending(head.session_id, head.user_id)
        values = (
            _holder(lease), head.version, to_micros(head.created_at), head.end, mark,
            after.version, head.user_id or "", int(head.deleting), head_body(after),
            head.expired, cut, *(entry_value(entry, "") for entry in entries),
        )  # fmt: skip
        try:
            answer = self._index.attempt(MOVE, head.session_id, *values)
        except Lost as lost:
            answer = self._index.run(MOVE, head.session_id, *values)
            if not isinstance(answer, list):  # never done, or done and then moved by another
                raise failure(lost.error, self._server.place) from lost.error
        if held(answer, lease) == 0:
            return None
        moved = replace(after, end=int(answer[0]), total=int(answer[1]))
        self._appender.remember(moved, mark)
        return copy_for_caller(moved)

    def lease(self, session_id: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        length = micros_of(seconds)
        answer = self._index.run(LEASE, session_id, owner, length, int(renew), repeat=True)
        if answer == 0:
            return False
        self._index.taken(session_id, length, answer)
        return True

    def release(self, session_id: str, owner: str) -> None:
        if self._index.run(RELEASE, session_id, owner, repeat=True) == 1:
            self._index.released(session_id)

    def lock(self, name: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        values = (owner, micros_of(seconds), int(renew))
        taken = self._server.run(LOCK, [self._keys.lock(name)], *values, repeat=True)
        return bool(taken == 1)

    def unlock(self, name: str, owner: str) -> None:
        self._server.run(UNLOCK, [self._keys.lock(name)], owner, repeat=True)

    def due(self, limit: int = 100) -> list[Head]:
        def read() -> list[Head]:
            found = self._server.run(DUE, self._keys.index, limit, repeat=True)
            heads = self._heads(ids_in(found))
            for name, head in heads:
                if head is None:
                    self._index.deleted(name)
            return [head for _, head in heads if head is not None]

        return due_of(self, read)

    def schedule(self, head: Head, seconds: float | None) -> bool:
        return self._index.schedule(head, "" if seconds is None else micros_of(seconds))

    def schedule_all(self) -> None:
        """See `SessionStore.schedule_all`.

        In pages, so that the server answers others in between.
        """
        for names in self._names(None, None, _PAGE):
            users = self._server.ask_many(
                [("HGET", self._keys.head(name), "user") for name in names]
            )
            pairs = [part for pair in zip(names, users, strict=True) for part in pair]
            values = ["" if part is None else part for part in pairs]
            self._server.run(WAKE, self._keys.index, *values, repeat=True)

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        self._appender.forget(session_id)
        self._index.deleting(session_id)
        user, superseded = held(self._index.run(DELETE, session_id, _holder(lease)), lease)
        self._index.deleted(session_id, user, superseded)

    def secure_erase(self) -> None:
        """See `SessionStore.secure_erase`.

        Has the server write its files anew, without what was deleted: the append-only file where it
        keeps one, and the snapshot where one was ever made. That takes as long as the database is
        large and goes on after this call. It does not reach replicas' files, backups, and memory
        that the server has freed. Where the server forbids it, a warning says so.
        """
        self._erasures.share(self._rewrite_files)

    def _rewrite_files(self) -> None:
        for node in self._server.nodes():
            rewrite_files(node)

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        heads: list[Head] = []
        for names in self._names(user_id, after, limit):
            heads += [
                head
                for _, head in self._heads(names)
                # one may have been deleted, and begun anew by another user, since it was listed
                if head is not None and user_id in (None, head.user_id)
            ]
            if len(heads) >= limit:
                break
        return heads[:limit]

    def counts(self) -> Counts:
        sessions = entries = 0
        for names in self._names(None, None, _PAGE):
            found = self._server.ask_many(
                [("HMGET", self._keys.head(name), "end", "expired") for name in names]
            )
            ends = [(number(end), number(gone or b"0")) for end, gone in found if end is not None]
            sessions += len(ends)
            entries += sum(end - gone for end, gone in ends if end is not None and gone is not None)
        return Counts(sessions=sessions, entries=entries)

    def durability_note(self) -> str:
        """What an acknowledged write survives on this server, as far as it tells."""
        return durability_note(self._server.nodes()[0])

    def close(self) -> None:
        self._server.close()

    def _heads(self, names: Sequence[str]) -> list[tuple[str, Head | None]]:
        """The heads of those sessions that can be read; None for one that is gone."""
        fields = self._server.ask_many(
            [("HMGET", self._keys.head(name), *HEAD_FIELDS) for name in names]
        )
        pairs = zip(names, fields, strict=True)
        return undamaged(pairs, lambda pair: (pair[0], head_of(*pair)))

    def _names(self, user_id: str | None, after: str | None, page: int) -> Iterator[list[str]]:
        """Ids of sessions in order, some at a time."""
        prefix = "" if user_id is None else f"{user_id}\0"
        index = self._keys.sessions if user_id is None else self._keys.users
        last = "+" if user_id is None else f"({user_id}\1"
        first: str | bytes = f"[{prefix}" if prefix else "-"
        if after is not None:
            first = f"({prefix}{after}"
        while True:
            found = self._server.ask("ZRANGEBYLEX", index, first, last, "LIMIT", 0, page)
            if not found:
                return
            yield [name.removeprefix(prefix) for name in ids_in(found)]
            if len(found) < page:
                return
            first = b"(" + found[-1]


def _holder(lease: Lease | None) -> str:
    return "" if lease is None else lease.owner
