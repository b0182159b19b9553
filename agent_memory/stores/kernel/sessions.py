"""Sessions over a kernel: logs, heads, idempotency keys, leases and locks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from agent_memory.core.idempotency import Append as Request
from agent_memory.core.idempotency import Appended, KeptKey, Once, in_order
from agent_memory.core.records import Draft, Entry, Head, Lag, Lease
from agent_memory.errors import (
    Damaged,
    LeaseLost,
    StoreUnavailable,
)
from agent_memory.stores.base import Counts
from agent_memory.stores.damage import due_of, page_of, undamaged
from agent_memory.stores.kernel.appending import (
    KnownHeads,
    KnownSession,
    Plan,
    known_session,
    one_line,
    planned,
    planned_blindly,
)
from agent_memory.stores.kernel.coding import (
    HEAD,
    KEY,
    LOCK,
    are_not_absorbed,
    entry_of,
    head_document,
    head_id,
    head_of,
    is_deleting,
    key_document,
    key_id,
    key_of,
    lag_of,
    line_of_entry,
    micros_of,
    stamp_of,
)
from agent_memory.stores.kernel.contract import (
    DONE,
    EMPTY,
    Append,
    Batch,
    Condition,
    Delete,
    DeleteWhere,
    DocId,
    Document,
    Due,
    Exists,
    Expire,
    Free,
    HeldBy,
    Hold,
    Kernel,
    LogEndsAt,
    Missing,
    Outcome,
    Part,
    Put,
    Scan,
    Truncate,
    Unreadable,
    VersionIs,
    Wake,
    Write,
)
from agent_memory.stores.log import LOST, with_tail

logger = logging.getLogger(__name__)

TRIES = 500
PAGE = 200


class KernelSessions:
    """A `SessionStore` over a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._known = KnownHeads()

    @property
    def kernel(self) -> Kernel:
        """The database."""
        return self._kernel

    @property
    def remote(self) -> bool:
        return self._kernel.remote

    @property
    def spans(self) -> bool:
        return self._kernel.spans

    def append(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Head:
        one = Request(session_id, drafts, user_id, within=within)
        known = self._known.get(session_id)
        quick = None if known is None else one_line(known, one)
        if known is not None and quick is not None:
            line, after = quick
            if self._kernel.extend(head_id(session_id), known.version, line, micros_of(within)):
                self._known.put(after)
                return after.whole()
        return self._append(one).head

    def append_once(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Appended:
        return self._append(Request(session_id, drafts, user_id, once, within=within))

    def append_all(self, appends: Sequence[Request]) -> list[Appended | Exception]:
        # sorted, so that no two transactions wait for each other's sessions
        order = sorted(range(len(appends)), key=lambda place: appends[place].session_id)
        plans: dict[int, Plan] = {}
        fresh: dict[str, KnownSession | None] = {}
        for place in order:
            one = appends[place]
            known = fresh.get(one.session_id, self._known.get(one.session_id))
            plan = None if known is None else planned_blindly(known, one)
            fresh[one.session_id] = None if plan is None else plan.after
            if plan is not None:
                plans[place] = plan
        done: list[Appended | Exception] = []
        try:
            outcomes = self._kernel.commit([plan.batch for plan in plans.values()]) if plans else []
        except StoreUnavailable as error:
            return [error for _ in appends]
        except Exception:  # noqa: BLE001 - one append fails: each is tried separately below
            plans, outcomes = {}, []
        committed = {at for at, one in zip(plans, outcomes, strict=True) if one.done}
        for place in order:
            if place in committed:
                self._known.put(plans[place].after)
        for place, one in enumerate(appends):
            if place in committed:
                plan = plans[place]
                done.append(Appended(plan.after.whole(), plan.places))
                continue
            try:
                done.append(self._append(one))
            except Exception as error:  # noqa: BLE001 - it concerns only this append
                done.append(error)
        return done

    def _append(self, one: Request) -> Appended:
        known = self._known.get(one.session_id) or self._unseen(one.session_id)
        plan = None if known is None else planned_blindly(known, one)
        head = head_id(one.session_id)
        ids = [
            head,
            *(key_id(one.session_id, name) for name in (one.once.names if one.once else ())),
        ]
        for _ in range(TRIES):
            if plan is None:
                there = self._kernel.documents(ids, tails=True)
                found = dict(zip(ids, there, strict=True))
                tail = EMPTY if (document := found[head]) is None else document.tail
            else:
                (outcome,) = self._kernel.commit([plan.batch])
                if outcome.done:
                    self._known.put(plan.after)
                    return Appended(plan.after.whole(), plan.places)
                found, tail = outcome.documents, outcome.tails[one.session_id]
            found_plan = planned(known_session(one.session_id, found[head], tail), one, found)
            if isinstance(found_plan, Appended):
                return found_plan
            plan = found_plan
        raise StoreUnavailable(
            f"Others kept changing session {one.session_id!r} while this call tried to append."
        )

    def _unseen(self, session_id: str) -> KnownSession | None:
        """Return the assumed state of an unknown session; None to read it first."""
        if self._kernel.remote:
            return None
        return known_session(session_id, None, EMPTY)  # a refused commit costs no more than a read

    def keys(self, session_id: str, names: Collection[str] | None = None) -> list[KeptKey]:
        if names is None:
            found = [*self._kernel.scan(Scan(KEY, session=session_id))]
        else:
            some = self._kernel.documents([key_id(session_id, name) for name in names])
            found = [one for one in some if one is not None]
        return in_order(map(key_of, found))

    def put_keys(
        self, session_id: str, keys: Sequence[KeptKey], *, lease: Lease | None = None
    ) -> None:
        conditions: list[Condition] = [*held(lease), Exists(head_id(session_id))]
        self._write(lease, Batch(conditions, [Put(key_document(session_id, one)) for one in keys]))

    def head(self, session_id: str) -> Head | None:
        (found,) = self._kernel.documents([head_id(session_id)], tails=True)
        return None if found is None else head_of(found)

    def existing(self, session_ids: Collection[str]) -> set[str]:
        found = self._kernel.documents([head_id(one) for one in session_ids], bodies=False)
        return {one.id for one in found if one is not None and not is_deleting(one)}

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        return [entry_of(line) for line in self._kernel.lines([Part(session_id, after, limit)])]

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        part = Part(session_id, seqs=sorted(set(seqs)))
        return [entry_of(line) for line in self._kernel.lines([part])] if seqs else []

    def lagging(
        self, block: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> list[Lag]:
        if session_id is not None:
            some = self._kernel.documents([head_id(session_id)], tails=True, bodies=False)
        else:
            scan = Scan(HEAD, f"user:{user_id}", tails=True, bodies=False, behind=block)
            some = [*self._kernel.scan(scan)]
        lags = undamaged(are_not_absorbed(some, block), lambda one: lag_of(one, block))
        found = [lag for lag in lags if lag is not None]
        return sorted(found, key=lambda lag: lag.created_at, reverse=True)

    def tails(
        self, block: str, session_ids: Collection[str], *, before: int, limit: int
    ) -> list[Entry]:
        ids = [head_id(one) for one in session_ids]
        found = self._kernel.documents(ids, tails=True, bodies=False)
        heads = undamaged([one for one in found if one is not None], head_of)
        parts = [
            Part(one.session_id, max(one.cursors.get(block, 0) - before, one.end - limit, 0))
            for one in heads
        ]
        lines = self._kernel.lines(parts) if parts else []
        unreadable = {one.session: one.body for one in lines if isinstance(one.body, Unreadable)}
        for session_id, body in unreadable.items():
            logger.warning("session %r is not searched: %s", session_id, body.error)
        return undamaged([one for one in lines if one.session not in unreadable], entry_of)

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:
        return self._moved(head, [], [], lease)

    def rewrite(
        self,
        head: Head,
        after: int,
        entries: Sequence[Entry] = (),
        *,
        lease: Lease | None = None,
    ) -> Head | None:
        at, session = head_id(head.session_id), head.session_id
        lines = [Append([line_of_entry(entry) for entry in entries])] if entries else []
        if head.version == 0:
            conditions: list[Condition] = [*held(lease), Missing(at), LogEndsAt(session, 0)]
            begin = Put(head_document(replace(head, version=1)))
            batch = Batch(conditions, [begin, *lines, Wake([at], 0)])
            return self.head(session) if self._write(lease, batch).done else None
        writes: list[Write] = [Truncate(session, after), *lines]
        end = entries[-1].seq if entries else after
        if end < head.end:
            writes.append(DeleteWhere(Scan(KEY, session=session, last_above=end)))
        return self._moved(head, [LogEndsAt(session, head.end)], writes, lease)

    def _moved(
        self,
        head: Head,
        conditions: Sequence[Condition],
        writes: Sequence[Write],
        lease: Lease | None,
    ) -> Head | None:
        at, after = head_id(head.session_id), replace(head, version=head.version + 1)
        batch = Batch(
            [*held(lease), VersionIs(at, stamp_of(head)), *conditions],
            [
                Put(head_document(after)),
                *writes,
                *([Wake([at], 0)] if head.deleting else ()),
                *([Expire(head.session_id, head.expired)] if head.expired else ()),
            ],
            head.session_id,
        )
        outcome = self._write(lease, batch)
        if not outcome.done:
            return None
        stored = with_tail(after, *outcome.tails[head.session_id])
        self._known.put(KnownSession.of(with_tail(stored, stored.end, stored.total)))
        return stored

    def schedule(self, head: Head, seconds: float | None) -> bool:
        at = head_id(head.session_id)
        due = Due(at, None if seconds is None else micros_of(seconds))
        conditions: list[Condition] = [
            VersionIs(at, stamp_of(head)),
            LogEndsAt(head.session_id, head.end),
        ]
        return self._kernel.commit([Batch(conditions, [due])])[0].done

    def schedule_all(self) -> None:
        for page in self._pages(Scan(HEAD, names=True)):
            self._kernel.commit([Batch([], [Wake([one.key for one in page], 0)])])

    def due(self, limit: int = 100) -> list[Head]:
        return due_of(self, lambda: undamaged(self._kernel.due(HEAD, limit), head_of))

    def lease(self, session_id: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        at = head_id(session_id)
        take: list[Condition] = [HeldBy(at, owner)] if renew else [Exists(at), Free(at, owner)]
        return self._kernel.commit([Batch(take, [Hold(at, owner, micros_of(seconds))])])[0].done

    def release(self, session_id: str, owner: str) -> None:
        at = head_id(session_id)
        self._kernel.commit([Batch([HeldBy(at, owner)], [Hold(at, "", 0)])])

    def lock(self, name: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        at = DocId(LOCK, name)
        hold = Hold(at, owner, micros_of(seconds))
        batch = Batch([HeldBy(at, owner)], [hold])
        if not renew:
            batch = Batch([Free(at, owner)], [Put(Document(*at)), hold])
        return self._kernel.commit([batch])[0].done

    def unlock(self, name: str, owner: str) -> None:
        at = DocId(LOCK, name)
        self._kernel.commit([Batch([HeldBy(at, owner)], [Delete([at])])])

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        at = head_id(session_id)
        # without a head, the data is of a session that is being created: delete nothing
        conditions = [*held(lease), Exists(at)]
        keys = DeleteWhere(Scan(KEY, session=session_id))
        self._write(lease, Batch(conditions, [Delete([at]), keys, Truncate(session_id, 0)]))
        self._known.drop(session_id)

    def secure_erase(self) -> None:
        """See `SessionStore.secure_erase`.

        On PostgreSQL, MySQL and MariaDB it does nothing: these erase deleted rows by their own
        settings.
        """
        self._kernel.erase()

    def sync(self) -> None:
        self._kernel.sync()

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        whole = Scan(HEAD, None if user_id is None else f"user:{user_id}", tails=True)

        def read(last: str, most: int) -> list[Document]:
            page = whole._replace(after=last, limit=most)
            try:
                return self._kernel.scan(page)
            except Damaged:  # damaged pages of the file; the index of ids may be intact
                return self._kernel.scan(page._replace(names=True))

        def decode(one: Document) -> Head:
            return head_of(one if one.about else self._by_itself(one))

        return page_of(read, decode, lambda one: one.id, after or "", limit)

    def _by_itself(self, one: Document) -> Document:
        (found,) = self._kernel.documents([one.key], tails=True)
        return one if found is None else found

    def counts(self) -> Counts:
        return Counts(*self._kernel.counts(HEAD))

    def close(self) -> None:
        self._kernel.close()

    def _write(self, lease: Lease | None, batch: Batch) -> Outcome:
        """Commit a batch.

        Raises:
            LeaseLost: It was refused, and the lease is no longer held.
        """
        if not (batch.conditions or batch.writes):
            return DONE
        (outcome,) = self._kernel.commit([batch])
        if not outcome.done and lease is not None:
            still = Batch(held(lease), [])
            if not self._kernel.commit([still])[0].done:
                raise LeaseLost(LOST.format(lease.session_id))
        return outcome

    def _pages(self, scan: Scan) -> Iterator[list[Document]]:
        while page := self._kernel.scan(scan._replace(limit=PAGE)):
            yield page
            if len(page) < PAGE:
                return
            scan = scan._replace(after=page[-1].id)


def held(lease: Lease | None) -> list[Condition]:
    """Return the condition that a lease is held, if there is one."""
    return [] if lease is None else [HeldBy(head_id(lease.session_id), lease.owner)]
