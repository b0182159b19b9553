"""The sessions of a store on a `Kernel`: logs, heads, idempotency keys, leases and locks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from agent_memory.core.idempotency import Append as Request
from agent_memory.core.idempotency import Appended, Idempotency, KeyRecord, in_order
from agent_memory.core.records import Draft, Entry, Head, Lag, Lease, Record
from agent_memory.errors import Damaged, LeaseLost, StoreError, StoreUnavailable
from agent_memory.stores.damage import UNREADABLE_SECONDS, leave_out, undamaged
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel import log
from agent_memory.stores.kernel.coding import (
    are_not_absorbed,
    entry_of,
    head_document,
    head_of,
    is_deleting,
    key_document,
    key_id,
    key_of,
    lag_of,
    line_of_entry,
    micros_of,
    record_document,
    stamp_of,
)
from agent_memory.stores.kernel.rules import Erasures, State, holds

logger = logging.getLogger(__name__)

TRIES = 500
PAGE = 200


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of sessions and entries in a store's namespace."""

    sessions: int
    entries: int


class SessionStore:
    """A store of the logs and heads of sessions, built on the kernel of a database."""

    def __init__(self, kernel: k.Kernel) -> None:
        self._kernel = kernel
        self._cached = log.session_cache()
        self._erasures = Erasures()

    @property
    def kernel(self) -> k.Kernel:
        """Return the kernel, which implements the basic operations of the database."""
        return self._kernel

    @property
    def remote(self) -> bool:
        """Return whether calls wait for a server. Concurrent calls then save time."""
        return self._kernel.remote

    @property
    def spans(self) -> bool:
        """Return whether one transaction of this database can change several sessions."""
        return self._kernel.spans

    def append(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Head:
        """Append all drafts or none, with consecutive seqs, and return the new head.

        The session is created if it does not exist. The last system message becomes the head's
        `system`. A session without a user gets `user_id`. Its `cursors` are then cleared, so that
        blocks absorb the session again for this user. The append is durable on return.

        The `total` of an entry is the previous entry's total plus the entry's tokens. A system
        message adds no tokens. The head's `version` is incremented only if the append creates the
        session, or changes its system message or user.

        The session becomes due in `within` seconds: a worker then processes it. An earlier due time
        stays. The due time is stored in the same transaction as the entries, or before them.

        Raises:
            SessionOfAnotherUser: The session has another user.
            SessionDeleting: A deletion of the session has begun.
        """
        request = Request(session_id, drafts, user_id, within=within)
        session = self._cached.get(session_id)
        quick = None if session is None else log.one_line(session, request)
        if session is not None and quick is not None:
            line, after = quick
            if self._kernel.extend(k.head_id(session_id), session.version, line, micros_of(within)):
                self._cached.put(session_id, after)
                return after.current()
        return self._append(request).head

    def append_idempotent(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        idempotency: Idempotency,
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Appended:
        """Append like `append`, but skip drafts whose idempotency keys are already stored.

        The keys and the log's end are checked in the transaction of the append. If all drafts are
        skipped, nothing changes: no key is stored, and no session is created. Otherwise the new
        keys are stored, and the session's keys from before `once.since` are removed.

        Raises:
            Conflict: A key was used for other content, or the log does not end at
                `once.expected_end`. Nothing was stored.
            SessionOfAnotherUser: The session has another user.
            SessionDeleting: A deletion of the session has begun.
        """
        return self._append(Request(session_id, drafts, user_id, idempotency, within=within))

    def append_all(self, appends: Sequence[Request]) -> list[Appended | Exception]:
        """Make several appends, each like `append` or `append_idempotent`.

        Appends to sessions whose heads are cached form one batch, if the database can change
        several sessions in one transaction. Each append succeeds or fails separately. The results
        are in the order of `appends`. The result of a failed append is its error. The successful
        appends are durable on return.
        """
        plans: dict[int, log.Plan] = {}
        batches: dict[str, k.Batch] = {}
        current = {request.session_id: self._cached.get(request.session_id) for request in appends}
        # sessions are sorted, so that two transactions never wait for each other
        for place in sorted(range(len(appends)), key=lambda place: appends[place].session_id):
            request = appends[place]
            session = current[request.session_id] if self.spans else None
            plan = None if session is None else log.planned_blindly(session, request)
            before = batches.get(request.session_id)
            is_changed = session and plan and plan.after.version != session.version
            if plan is None or (before and (request.idempotency or is_changed)):
                current[request.session_id] = None
                continue
            batch = plan.batch
            if before is not None:  # the conditions of the session's first append suffice
                batch = before._replace(writes=[*before.writes, *batch.writes])
            plans[place], batches[request.session_id] = plan, batch
            current[request.session_id] = plan.after
        try:
            committed = self._commit_valid(batches)
        except StoreUnavailable as error:
            return [error for _ in appends]
        except Exception:  # noqa: BLE001 - one append failed, so each is tried separately below
            committed = ()
        results: list[Appended | Exception] = []
        for place, request in enumerate(appends):
            try:
                if place in plans and request.session_id in committed:
                    self._cached.put(request.session_id, plans[place].after)
                    results.append(Appended(plans[place].after.current(), plans[place].places))
                else:
                    results.append(self._append(request))
            except Exception as error:  # noqa: BLE001 - the error concerns only this append
                results.append(error)
        return results

    def _commit_valid(self, batches: Mapping[str, k.Batch]) -> Collection[str]:
        """Commit batches as one, without the refused batches. Return the committed sessions."""
        while batches:
            conditions = [each for batch in batches.values() for each in batch.conditions]
            writes = [write for batch in batches.values() for write in batch.writes]
            outcome = self._kernel.commit(k.Batch(conditions, writes))
            if outcome.done:
                break
            states = {at: doc and State(doc.version) for at, doc in outcome.documents.items()}
            batches = {
                session: batch
                for session, batch in batches.items()
                if all(holds(each, states, outcome.tails, 0) for each in batch.conditions)
            }
        return batches.keys()

    def _append(self, request: Request) -> Appended:
        session = self._cached.get(request.session_id)
        if session is None and not self._kernel.remote:
            # the session is assumed to be new. If it exists, the refusal returns the stored state
            session = log.cached_session(request.session_id, None, k.EMPTY)
        plan = None if session is None else log.planned_blindly(session, request)
        head = k.head_id(request.session_id)
        names = request.idempotency.names if request.idempotency else ()
        ids = [head, *(key_id(request.session_id, name) for name in names)]
        for _ in range(TRIES):
            if plan is None:
                stored = self._kernel.documents(ids, tails=True)
                docs = dict(zip(ids, stored, strict=True))
                tail = k.EMPTY if (document := docs[head]) is None else document.tail
            else:
                outcome = self._kernel.commit(plan.batch)
                if outcome.done:
                    self._cached.put(request.session_id, plan.after)
                    return Appended(plan.after.current(), plan.places)
                docs, tail = outcome.documents, outcome.tails[request.session_id]
            result = log.planned(
                log.cached_session(request.session_id, docs[head], tail), request, docs
            )
            if isinstance(result, Appended):
                return result
            plan = result
        raise StoreUnavailable(
            f"Other writers kept changing session {request.session_id!r} during this append."
        )

    def keys(self, session_id: str, names: Collection[str] | None = None) -> list[KeyRecord]:
        """Return a session's idempotency keys in order of their seqs: all, or those in `names`."""
        if names is None:
            documents = [*self._kernel.scan(k.Scan(k.KEY, session=session_id))]
        else:
            some = self._kernel.documents([key_id(session_id, name) for name in names])
            documents = [document for document in some if document is not None]
        return in_order(map(key_of, documents))

    def put_keys(
        self, session_id: str, keys: Sequence[KeyRecord], *, lease: Lease | None = None
    ) -> None:
        """Store idempotency keys of a session, for an import. Existing keys are overwritten.

        Nothing is stored if the session does not exist.

        Raises:
            LeaseLost: `lease` was passed and is no longer held; nothing was written.
        """
        conditions: list[k.Condition] = [*held(lease), k.Exists(k.head_id(session_id))]
        puts = [k.Put(key_document(session_id, key)) for key in keys]
        self._write(lease, k.Batch(conditions, puts))

    def head(self, session_id: str) -> Head | None:
        """Return the head, or None for a session that does not exist."""
        (document,) = self._kernel.documents([k.head_id(session_id)], tails=True)
        return None if document is None else head_of(document)

    def existing(self, session_ids: Collection[str]) -> set[str]:
        """Return the ids of the sessions that exist and are not being deleted."""
        heads = self._kernel.documents([*map(k.head_id, session_ids)], bodies=False)
        return {head.id for head in heads if head is not None and not is_deleting(head)}

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """Return at most `limit` unexpired entries with seqs above `after`, in order."""
        return [entry_of(line) for line in self._kernel.lines([k.Part(session_id, after, limit)])]

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        """Return the unexpired entries with these seqs, in order of the seqs."""
        part = k.Part(session_id, seqs=sorted(set(seqs)))
        return [entry_of(line) for line in self._kernel.lines([part])] if seqs else []

    def lagging(
        self, block: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> list[Lag]:
        """Return the sessions with entries after a block's cursor, the newest session first.

        Pass `session_id` for one session, or `user_id` for all sessions of a user. Sessions whose
        deletion has begun are left out.
        """
        if session_id is not None:
            some = self._kernel.documents([k.head_id(session_id)], tails=True, bodies=False)
        else:
            scan = k.Scan(k.HEAD, f"user:{user_id}", tails=True, bodies=False, behind=block)
            some = [*self._kernel.scan(scan)]
        lags = undamaged(are_not_absorbed(some, block), lambda head: lag_of(head, block))
        lagging = [lag for lag in lags if lag is not None]
        return sorted(lagging, key=lambda lag: lag.created_at, reverse=True)

    def tails(
        self, block: str, session_ids: Collection[str], *, before: int, limit: int
    ) -> list[Entry]:
        """Return the entries of each session after the block's cursor, in order.

        Args:
            session_ids: The sessions. Damaged sessions are left out.
            before: The number of entries before the cursor that are returned too.
            limit: The maximum number of entries for each session. The newest are returned.
        """
        ids = [k.head_id(session) for session in session_ids]
        documents = self._kernel.documents(ids, tails=True, bodies=False)
        heads = undamaged([document for document in documents if document is not None], head_of)
        parts = [
            k.Part(head.session_id, max(head.cursors.get(block, 0) - before, head.end - limit, 0))
            for head in heads
        ]
        lines = self._kernel.lines(parts) if parts else []
        broken = {line.session: line.body for line in lines if isinstance(line.body, k.Unreadable)}
        for session_id, body in broken.items():
            logger.warning("session %r is not searched: %s", session_id, body.error)
        return undamaged([line for line in lines if line.session not in broken], entry_of)

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:
        """Compare-and-swap: write `head` if the stored version still equals `head.version`.

        The call writes expired, start, start_total, pinned, pinned_tokens, system, system_tokens,
        summary, cursors, user_id and deleting. It ignores `end` and `total`, which follow from the
        log. It removes entries with seqs up to `expired`, so `expired` must never decrease. A head
        that is `deleting` makes the session due.

        Returns:
            The stored head, whose version is one higher. None if another writer changed the head.

        Raises:
            LeaseLost: `lease` was passed and is no longer held; nothing was written.
        """
        return self._moved(head, [], [], lease)

    def rewrite(
        self,
        head: Head,
        after: int,
        entries: Sequence[Entry] = (),
        *,
        lease: Lease | None = None,
        records: Mapping[str, Sequence[Record]] = MappingProxyType({}),
    ) -> Head | None:
        """Write the head like `move`, and replace the log after seq `after`, in one transaction.

        A head of version 0 creates the session with its `created_at`, and makes it due. Idempotency
        keys of messages after the new end of the log are removed. All other keys stay, even keys of
        expired messages.

        Args:
            after: A seq from `head.expired` to `head.end`. If messages have expired, the rewritten
                log must have at least one entry.
            entries: The new entries, with consecutive seqs from `after + 1`. Their tokens, totals
                and times are stored unchanged.
            records: By collection, the records that replace the session's records there. Ignored
                for a head of version 0.

        Returns:
            The stored head. None, without any change, if another writer changed the head or
            appended after `head.end`, or if a session to create already exists.
        """
        at, session = k.head_id(head.session_id), head.session_id
        lines = [k.Append([line_of_entry(entry) for entry in entries])] if entries else []
        if head.version == 0:
            conditions: list[k.Condition] = [*held(lease), k.Missing(at), k.LogEndsAt(session, 0)]
            begin = k.Put(head_document(replace(head, version=1)))
            batch = k.Batch(conditions, [begin, *lines, k.Wake([at], 0)])
            return self.head(session) if self._write(lease, batch).done else None
        total = 0
        if after and not entries:  # an expired line has the total before the first stored line
            for line in self._kernel.lines([k.Part(session, after - 1, 1)]):
                total = line.total if line.seq == after else line.total - line.tokens
        writes: list[k.Write] = [k.Truncate(session, after, total), *lines]
        end = entries[-1].seq if entries else after
        if end < head.end:
            writes.append(k.DeleteWhere(k.Scan(k.KEY, session=session, last_above=end)))
        for block, new in records.items():
            name = f"{k.FACT}{block}"
            writes.append(k.DeleteWhere(k.Scan(name, session=session)))
            unique = {record.id: record for record in new}.values()
            writes += [k.Put(record_document(name, record, record.last)) for record in unique]
        return self._moved(head, [k.LogEndsAt(session, head.end)], writes, lease)

    def _moved(
        self,
        head: Head,
        conditions: Sequence[k.Condition],
        writes: Sequence[k.Write],
        lease: Lease | None,
    ) -> Head | None:
        at, after = k.head_id(head.session_id), replace(head, version=head.version + 1)
        batch = k.Batch(
            [*held(lease), k.VersionIs(at, stamp_of(head)), *conditions],
            [
                k.Put(head_document(after)),
                *writes,
                *([k.Wake([at], 0)] if head.deleting else ()),
                *([k.Expire(head.session_id, head.expired)] if head.expired else ()),
            ],
            head.session_id,
        )
        outcome = self._write(lease, batch)
        if not outcome.done:
            return None
        stored = log.with_tail(after, *outcome.tails[head.session_id])
        session = log.CachedSession.of(log.with_tail(stored, stored.end, stored.total))
        self._cached.put(head.session_id, session)
        return stored

    def schedule(self, head: Head, seconds: float | None) -> bool:
        """Make the session due in this many seconds. None removes the due time.

        The next append or deletion sets a due time again. Return False, without any change, if the
        stored end or version differs from the head's.
        """
        at = k.head_id(head.session_id)
        due = k.Due(at, None if seconds is None else micros_of(seconds))
        conditions: list[k.Condition] = [
            k.VersionIs(at, stamp_of(head)),
            k.LogEndsAt(head.session_id, head.end),
        ]
        return self._kernel.commit(k.Batch(conditions, [due])).done

    def schedule_all(self) -> None:
        """Make every session due now, for example after a change of the configured blocks."""
        for page in self._pages(k.Scan(k.HEAD, names=True)):
            self._kernel.commit(k.Batch([], [k.Wake([head.key for head in page], 0)]))

    def due(self, limit: int = 100) -> list[Head]:
        """Return due sessions without a valid lease.

        Users take turns: first each user's session with the earliest due time, then each user's
        second, and so on. A session without a user counts as a user.
        """
        while True:
            heads: list[Head] = []
            # unreadable sessions are postponed, so that they do not fill the result
            put_off = False
            for document in self._kernel.due(k.HEAD, limit):
                try:
                    heads.append(head_of(document))
                except StoreError as error:
                    leave_out(error)
                    later = k.Due(document.key, micros_of(UNREADABLE_SECONDS))
                    unchanged = k.VersionIs(document.key, document.version)
                    put_off |= self._kernel.commit(k.Batch([unchanged], [later])).done
            if heads or not put_off:
                return heads

    def lease(self, session_id: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        """Take the session's lease. Return False while another owner's lease is valid.

        A lease that ends later than `LONGEST_LEASE_SECONDS` from now is not valid. With `renew`,
        extend the owner's lease instead, and return False if another owner has taken the lease or
        `owner` has released it. Return False also if the session does not exist.
        """
        at = k.head_id(session_id)
        take: list[k.Condition] = (
            [k.HeldBy(at, owner)] if renew else [k.Exists(at), k.Free(at, owner)]
        )
        return self._kernel.commit(k.Batch(take, [k.Hold(at, owner, micros_of(seconds))])).done

    def release(self, session_id: str, owner: str) -> None:
        """Release the lease, if `owner` still holds it."""
        at = k.head_id(session_id)
        self._kernel.commit(k.Batch([k.HeldBy(at, owner)], [k.Hold(at, "", 0)]))

    def lock(self, name: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        """Take a named lock. Return False while another owner holds the lock.

        A lock does not protect writes to sessions: a lease does. `name` has at most 64 characters.
        With `renew`, extend the owner's lock instead, and return False if another owner has taken
        the lock or `owner` has released it.
        """
        at = k.DocId(k.LOCK, name)
        hold = k.Hold(at, owner, micros_of(seconds))
        batch = k.Batch([k.HeldBy(at, owner)], [hold])
        if not renew:
            batch = k.Batch([k.Free(at, owner)], [k.Put(k.Document(*at)), hold])
        return self._kernel.commit(batch).done

    def unlock(self, name: str, owner: str) -> None:
        """Release a lock, if `owner` still holds it."""
        at = k.DocId(k.LOCK, name)
        self._kernel.commit(k.Batch([k.HeldBy(at, owner)], [k.Delete([at])]))

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        """Delete the session's log, keys and head. Idempotent.

        Raises:
            LeaseLost: `lease` was passed and is no longer held; nothing was deleted.
        """
        at = k.head_id(session_id)
        # data without a head belongs to a session that is being created: delete nothing
        conditions = [*held(lease), k.Exists(at)]
        keys = k.DeleteWhere(k.Scan(k.KEY, session=session_id))
        self._write(lease, k.Batch(conditions, [k.Delete([at]), keys, k.Truncate(session_id, 0)]))
        self._cached.drop(session_id)

    def secure_erase(self) -> str | None:
        """Erase traces of deleted data from the database's files. Concurrent calls share one run.

        If traces remain on SQLite, for example because of a reader, return the reason.

        PostgreSQL, MySQL, MariaDB and MongoDB erase deleted data later, without this call. Redis
        rewrites its append-only file if it has one, and its snapshot if `save` is set. The rewrite
        of a large database continues after the call. Backups, files of replicas, and memory that
        the server has freed are not erased.
        """
        return self._erasures.share(self._kernel.erase)

    def sync(self) -> None:
        """Wait until every acknowledged write survives a power loss.

        Use it with `durability="process"`. On a database server, the call does nothing: the
        server's settings decide.
        """
        self._kernel.sync()

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """Return at most `limit` heads with session ids after `after`, in order of the ids.

        With `user_id`, only heads of this user are returned. Sessions whose deletion has begun are
        included, with `deleting` set. Damaged heads are left out, and do not count towards `limit`.
        """
        scan = k.Scan(k.HEAD, None if user_id is None else f"user:{user_id}", tails=True)

        def decode(head: k.Document) -> Head:
            (full,) = [head] if head.about else self._kernel.documents([head.key], tails=True)
            return head_of(full or head)

        heads: list[Head] = []
        while (wanted := limit - len(heads)) > 0:
            page = scan._replace(after=after or "", limit=wanted)
            try:
                documents = self._kernel.scan(page)
            except Damaged:  # pages of the file are damaged; its index of ids may be intact
                documents = self._kernel.scan(page._replace(names=True))
            heads += undamaged(documents, decode)
            if len(documents) < wanted:
                break
            after = documents[-1].id
        return heads

    def counts(self) -> Counts:
        """Return the number of sessions and entries."""
        return Counts(*self._kernel.counts(k.HEAD))

    def close(self) -> None:
        """Release connections. Idempotent."""
        self._kernel.close()

    def _write(self, lease: Lease | None, batch: k.Batch) -> k.Outcome:
        """Commit a batch. Raise `LeaseLost` if it was refused and the lease is no longer held."""
        if not (batch.conditions or batch.writes):
            return k.DONE
        outcome = self._kernel.commit(batch)
        if not outcome.done and lease is not None:
            still = k.Batch(held(lease), [])
            if not self._kernel.commit(still).done:
                raise LeaseLost(log.LOST.format(lease.session_id))
        return outcome

    def _pages(self, scan: k.Scan) -> Iterator[list[k.Document]]:
        while page := self._kernel.scan(scan._replace(limit=PAGE)):
            yield page
            if len(page) < PAGE:
                return
            scan = scan._replace(after=page[-1].id)


def held(lease: Lease | None) -> list[k.Condition]:
    """Return the condition that a lease is held; no condition for None."""
    return [] if lease is None else [k.HeldBy(k.head_id(lease.session_id), lease.owner)]
