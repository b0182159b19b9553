"""`MemoryStore`: everything in dicts, gone with the process. For tests, trials and short lives."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf

from agent_memory.core.once import Appended, KeptKey, Once, in_order
from agent_memory.core.records import Draft, Entry, Head, Lag, Lease, empty_head
from agent_memory.errors import LeaseLost
from agent_memory.stores.base import LONGEST_LEASE_SECONDS, Counts
from agent_memory.stores.log import (
    LOST,
    copy_for_caller,
    entry_for_caller,
    extend,
    fairly,
    lags,
    tails_one_by_one,
)
from agent_memory.stores.memory_vectors import MemoryVectors


@dataclass(slots=True)
class _Session:
    head: Head
    log: list[Entry] = field(default_factory=list)  # those after `head.expired`
    keys: dict[str, KeptKey] = field(default_factory=dict)  # in order of their seqs
    lease_owner: str | None = None
    lease_until: float = 0.0
    due_at: float = inf

    @property
    def length(self) -> int:
        """How many entries of the log count."""
        return self.head.end - self.head.expired

    def entries(self, after: int, limit: int | None) -> list[Entry]:
        """See `SessionStore.read`."""
        first, last = max(after - self.head.expired, 0), self.length
        return self.log[first : last if limit is None else min(last, first + limit)]

    def picked(self, seqs: Sequence[int]) -> list[Entry]:
        """See `SessionStore.pick`."""
        places = (seq - self.head.expired - 1 for seq in seqs)
        return [self.log[place] for place in places if 0 <= place < self.length]

    def append(self, drafts: Sequence[Draft], user_id: str | None, within: float) -> list[Entry]:
        """See `SessionStore.append`."""
        head, entries = extend(self.head, drafts, user_id)
        del self.log[self.length :]
        self.log.extend(entries)
        self.head = head  # what an append that a signal cut short left behind does not count
        self.fall_due(within)
        return entries

    def append_once(
        self, drafts: Sequence[Draft], once: Once, user_id: str | None, within: float
    ) -> Appended:
        """See `SessionStore.append_once`."""
        extend(self.head, (), user_id)  # who is refused learns nothing of keys
        chosen = once.chosen(len(drafts), self.head.end, self.keys)
        if not chosen.places:
            return Appended(copy_for_caller(self.head), (), chosen.before)
        entries = self.append([drafts[place] for place in chosen.places], user_id, within)
        old = [k for k, one in self.keys.items() if once.since is not None and one.at < once.since]
        for name in old:
            del self.keys[name]
        kept = once.kept(chosen.places, entries, self.head)
        self.keys |= {one.name: one for one in kept}
        return Appended(copy_for_caller(self.head), chosen.places)

    def fall_due(self, within: float = 0.0) -> None:
        """Have it looked at in so many seconds, if not sooner."""
        self.due_at = min(self.due_at, time.time() + within)


class MemoryStore(MemoryVectors):
    """A store without a database. Each instance is a world of its own.

    Args:
        namespace: Taken for the sake of likeness; no two instances share anything.
    """

    def __init__(self, namespace: str = "default") -> None:
        super().__init__()
        self.namespace = namespace
        self._sessions: dict[str, _Session] = {}
        self._held: dict[str, tuple[str, float]] = {}  # locks: by whom, until when

    @property
    def remote(self) -> bool:
        return False

    def append(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Head:
        owned = [replace(draft, message=draft.message.detached()) for draft in drafts]
        with self._lock:
            session = self._session(session_id)
            session.append(owned, user_id, within)
            self._sessions[session_id] = session
            return copy_for_caller(session.head)

    def append_once(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Appended:
        owned = [replace(draft, message=draft.message.detached()) for draft in drafts]
        with self._lock:
            session = self._session(session_id)
            appended = session.append_once(owned, once, user_id, within)
            if appended.places:
                self._sessions[session_id] = session
            return appended

    def keys(self, session_id: str, names: Collection[str] | None = None) -> list[KeptKey]:
        with self._lock:
            session = self._sessions.get(session_id)
            kept = [] if session is None else list(session.keys.values())
        return [one for one in in_order(kept) if names is None or one.name in names]

    def put_keys(
        self, session_id: str, keys: Sequence[KeptKey], *, lease: Lease | None = None
    ) -> None:
        with self._lock:
            self._guard(lease)
            session = self._sessions.get(session_id)
            if session is not None:
                session.keys |= {one.name: one for one in keys}

    def _session(self, session_id: str) -> _Session:
        found = self._sessions.get(session_id)
        return found or _Session(empty_head(session_id, None, datetime.now(UTC)))

    def head(self, session_id: str) -> Head | None:
        with self._lock:
            session = self._sessions.get(session_id)
            return None if session is None else copy_for_caller(session.head)

    def existing(self, session_ids: Collection[str]) -> set[str]:
        with self._lock:
            found = {name: self._sessions.get(name) for name in session_ids}
            return {name for name, one in found.items() if one and not one.head.deleting}

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        with self._lock:
            session = self._sessions.get(session_id)
            found = [] if session is None else session.entries(after, limit)
        return [entry_for_caller(entry) for entry in found]

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        with self._lock:
            session = self._sessions.get(session_id)
            found = [] if session is None else session.picked(sorted(set(seqs)))
        return [entry_for_caller(entry) for entry in found]

    def lagging(
        self, block: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> list[Lag]:
        """See `SessionStore.lagging`."""
        with self._lock:
            if session_id is not None:
                one = self._sessions.get(session_id)
                heads = [] if one is None else [one.head]
            else:
                heads = [one.head for one in self._sessions.values() if one.head.user_id == user_id]
        return lags(reversed(heads), block)

    def tails(
        self, block: str, session_ids: Collection[str], *, before: int, limit: int
    ) -> list[Entry]:
        """See `SessionStore.tails`."""
        return tails_one_by_one(self, block, session_ids, before, limit)

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:
        with self._lock:
            self._guard(lease)
            return self._move(head)

    def rewrite(
        self,
        head: Head,
        after: int,
        entries: Sequence[Entry] = (),
        *,
        lease: Lease | None = None,
    ) -> Head | None:
        owned = [entry_for_caller(entry) for entry in entries]
        with self._lock:
            self._guard(lease)
            if (self._begun(head) if head.version == 0 else self._cut(head, after)) is None:
                return None
            session = self._sessions[head.session_id]
            session.log.extend(owned)
            last = session.log[-1] if session.log else None
            end, total = (last.seq, last.total) if last else (0, 0)
            session.head = replace(session.head, end=end, total=total)
            session.keys = {name: one for name, one in session.keys.items() if one.seq <= end}
            return copy_for_caller(session.head)

    def _begun(self, head: Head) -> Head | None:
        if head.session_id in self._sessions:
            return None
        session = _Session(replace(copy_for_caller(head), version=1))
        session.fall_due()
        self._sessions[head.session_id] = session
        return session.head

    def _cut(self, head: Head, after: int) -> Head | None:
        before = self._sessions.get(head.session_id)
        if before is None or before.head.end != head.end:  # a cut takes no unseen messages
            return None
        moved = self._move(head)
        if moved is not None:
            del before.log[max(after - head.expired, 0) :]
        return moved

    def _move(self, head: Head) -> Head | None:
        session = self._sessions.get(head.session_id)
        if session is None:
            return None
        now = session.head
        # a session that was deleted and begun anew has another time of creation
        if (now.version, now.created_at) != (head.version, head.created_at):
            return None
        session.head = replace(
            copy_for_caller(head), end=now.end, total=now.total, version=head.version + 1
        )
        del session.log[: max(head.expired - now.expired, 0)]
        if head.deleting:
            session.fall_due()
        return copy_for_caller(session.head)

    def _guard(self, lease: Lease | None) -> None:
        if lease is not None:
            session = self._sessions.get(lease.session_id)
            if session is None or session.lease_owner != lease.owner:
                raise LeaseLost(LOST.format(lease.session_id))

    def lease(self, session_id: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        now = time.time()
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                return False
            holder = session.lease_owner
            if holder != owner and (renew or (holder and _lasts(session.lease_until, now))):
                return False
            session.lease_owner, session.lease_until = owner, now + seconds
            return True

    def release(self, session_id: str, owner: str) -> None:
        with self._lock:
            session = self._sessions.get(session_id)
            if session is not None and session.lease_owner == owner:
                session.lease_owner = None

    def lock(self, name: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        now = time.time()
        with self._lock:
            holder, until = self._held.get(name, (None, 0.0))
            if holder != owner and (renew or _lasts(until, now)):
                return False
            self._held[name] = (owner, now + seconds)
            return True

    def unlock(self, name: str, owner: str) -> None:
        with self._lock:
            holder, _ = self._held.get(name, (None, 0.0))
            if holder == owner:
                del self._held[name]

    def due(self, limit: int = 100) -> list[Head]:
        now = time.time()
        with self._lock:
            waiting = [
                (session.due_at, session.head)
                for session in self._sessions.values()
                if session.due_at <= now
                and (session.lease_owner is None or not _lasts(session.lease_until, now))
            ]
            return [copy_for_caller(head) for head in fairly(waiting)[:limit]]

    def schedule(self, head: Head, seconds: float | None) -> bool:
        with self._lock:
            session = self._sessions.get(head.session_id)
            if session is None:
                return False
            now = session.head
            if (now.version, now.created_at, now.end) != (head.version, head.created_at, head.end):
                return False
            session.due_at = inf if seconds is None else time.time() + seconds
            return True

    def schedule_all(self) -> None:
        with self._lock:
            for session in self._sessions.values():
                session.fall_due()

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        with self._lock:
            self._guard(lease)
            self._sessions.pop(session_id, None)

    def secure_erase(self) -> None:
        """See `SessionStore.secure_erase`."""

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        with self._lock:
            names = sorted(
                name
                for name, session in self._sessions.items()
                if (after is None or name > after)
                and (user_id is None or session.head.user_id == user_id)
            )
            return [copy_for_caller(self._sessions[name].head) for name in names[:limit]]

    def counts(self) -> Counts:
        with self._lock:
            entries = sum(len(session.log) for session in self._sessions.values())
            return Counts(sessions=len(self._sessions), entries=entries)

    def close(self) -> None:
        """See `SessionStore.close`."""


def _lasts(until: float, now: float) -> bool:
    """Whether a lease that ends then is still true."""
    return now < until <= now + LONGEST_LEASE_SECONDS
