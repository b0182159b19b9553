"""Where a block's claims are kept: in the fact store, beside what is to stay forgotten."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from agent_memory.core.records import Lease, Record, Scope, Span
from agent_memory.core.reserved import SENT_TEXTS
from agent_memory.ltm_blocks.base import batch_id, record_id
from agent_memory.ltm_blocks.extractive.history.claims import Batch, Claim, Journal
from agent_memory.ltm_blocks.extractive.history.coding import (
    RECALLED,
    Recorded,
    journal_of,
    record_of_batch,
    record_of_claim,
    recorded,
)
from agent_memory.ltm_blocks.tombstones import Tombstone, bury, overlap, tombstones
from agent_memory.ltm_blocks.trails import Following, begun_anew, trail_of, went_on
from agent_memory.ltm_blocks.versions import new_version, version_of, version_owner
from agent_memory.stores.base import RecordStore

_TRIES = 5


class Keeper:
    """Reads and writes one block's journal.

    Args:
        store: Where it is kept.
        block: The block's name.
        following: What was read before, by whoever reads with the same.
    """

    def __init__(
        self, store: RecordStore, block: str, following: Following[Recorded] | None = None
    ) -> None:
        self._store = store
        self._block = block
        self._following = following or Following(recorded)

    def read(self, owner: str, without: Span | None = None) -> Journal:
        """An owner's journal; without what comes from a part of a session."""
        gone = tombstones(self._store, self._block, owner)
        journal = journal_of(self._following.read(self._store, self._block, owner), gone)
        if without is None:
            return journal
        claims = [one for one in journal.claims if not without.holds(one.session_id, one.seq)]
        return replace(journal, claims=claims)

    def version(self, owner: str) -> str | None:
        """What changes with every change of an owner's claims; None where there are none."""
        return version_of(self._store, self._block, owner)

    def recalled(self, owner: str) -> dict[str, int]:
        """How many contexts had each of an owner's facts."""
        kept = self._store.record(self._block, _counts_id(self._block, owner))
        return {} if kept is None else dict(kept.metadata[RECALLED])

    def count(self, owner: str, ids: Sequence[str], known: Collection[str]) -> None:
        """One more context had these facts; of those that are not known any more nothing stays."""
        name = _counts_id(self._block, owner)
        for _ in range(_TRIES):
            before = self._store.record(self._block, name)
            counts = {} if before is None else before.metadata[RECALLED]
            counts = {one: n for one, n in counts.items() if one in known}
            counts |= {one: counts.get(one, 0) + 1 for one in ids}
            last = None if before is None else before.last
            metadata = {RECALLED: counts}
            now = datetime.now(UTC)
            record = Record(name, owner, "", 0, (last or 0) + 1, RECALLED, (), now, metadata)
            if self._store.swap_record(self._block, record, last):
                return

    def write(
        self, owner: str, span: Span, claims: Sequence[Claim], batch: Batch, lease: Lease | None
    ) -> None:
        """Keep what came of a batch, in place of what came of it before.

        One at a time does it for an owner.
        """
        name = batch_id(self._block, owner, *span)
        records = [record_of_claim(claim, owner) for claim in claims]
        records.append(record_of_batch(batch, name, owner))
        trail = trail_of(self._store, self._block, owner)
        replaced = [
            one.id
            if isinstance(one, Claim)
            else batch_id(self._block, owner, one.session_id, one.first, one.last)
            for one in self._following.read(self._store, self._block, owner)
            if one is not None and _derives(one, span)
        ]
        changed = {*replaced, *(one.id for one in records)}
        records += went_on(owner, trail, changed)[1]
        self._store.put_records(self._block, records, replacing=span, lease=lease)

    def forget(self, owner: str, claims: Sequence[Claim], left: Sequence[Claim], why: str) -> None:
        """Have claims stay forgotten; those that are left stay. `erase` them then."""
        bury(self._store, self._block, owner, [_buried(one, left, why) for one in claims])

    def forget_source(self, owner: str, span: Span, why: str) -> None:
        """Have what comes from a part of a session stay forgotten. `erase` it then."""
        gone = Tombstone(None, *span, None, datetime.now(UTC), why)
        bury(self._store, self._block, owner, [gone])

    def erase(self, owner: str, claims: Sequence[Claim]) -> None:
        """Take claims away."""
        for claim in claims:
            self._store.delete_records(self._block, record_id=claim.id)
        for session_id in {claim.session_id for claim in claims}:  # what models were sent of it
            self._store.delete_records(SENT_TEXTS.name, session_id=session_id)
        self._renew(owner)

    def delete(self, scope: Scope) -> None:
        """Erase what derives from a session, from its messages after a seq, or from a user."""
        if scope.session_id is None:
            self._store.delete_records(self._block, owner=scope.owner)
        else:
            self._store.delete_records(
                self._block, session_id=scope.session_id, after=scope.after, lease=scope.lease
            )
            if scope.user_id is not None:  # it may have been its own before
                self._renew(Scope(None, scope.session_id).owner, scope.lease)
        self._renew(scope.owner, scope.lease)

    def _renew(self, owner: str, lease: Lease | None = None) -> None:
        """Have what others remember of an owner's claims count for nothing."""
        if self._store.records(self._block, owner):
            renewed = [new_version(owner), begun_anew(owner)]
            self._store.put_records(self._block, renewed, lease=lease)
        else:
            self._store.delete_records(self._block, owner=version_owner(owner), lease=lease)


def _derives(one: Claim | Batch, span: Span) -> bool:
    """Whether it may come from a part of a session."""
    first, last = (one.seq, one.seq) if isinstance(one, Claim) else (one.first, one.last)
    return one.session_id == span.session_id and first <= span.last and span.first <= last


def _counts_id(block: str, owner: str) -> str:
    return record_id(block, owner, RECALLED)


def _buried(claim: Claim, left: Sequence[Claim], why: str) -> Tombstone:
    """What keeps one claim forgotten, and no other that rests on the same words."""
    spared = tuple(
        one.id
        for one in left
        if (one.session_id, one.seq) == (claim.session_id, claim.seq)
        and overlap(one.span, claim.span)
    )
    place = (claim.session_id, claim.seq, claim.seq, claim.span)
    return Tombstone(claim.fact, *place, datetime.now(UTC), why, spared)
