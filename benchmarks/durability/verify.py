"""Checks that a store has exactly the records that derive from its logs, each once."""

from collections import Counter
from collections.abc import Iterable, Iterator
from time import sleep
from uuid import uuid4

import numpy as np

from agent_memory import AgentMemory, operations
from agent_memory.core.records import Entry, Head, Record, Scope
from agent_memory.engine.paging import all_heads
from agent_memory.models.embedders.local import MiniLMEmbedder
from agent_memory.stores.base import Store
from agent_memory.testing.contract import everything
from benchmarks.durability.ledger import DOUBLED, LOST, REORDERED, UNFINISHED, Finding
from benchmarks.durability.site import FACTS, VECTORS

MISSING, ORPHANED, FOREIGN, BEHIND = "missing", "orphaned", "foreign", "behind"
LEASED, DUE = "leased", "due"

_INSPECTION = 60.0
_POLL = 0.02


def catch_up(memory: AgentMemory) -> list[Finding]:
    """Do all pending work; return the work that failed."""
    failed = [
        Finding(BEHIND, one.session_id, f"{one.block}: {one.error}")
        for one in memory.flush()
        if one.error
    ]
    given_up = [
        Finding(BEHIND, one.session_id, f"dead letter of {one.block}: {one.error}")
        for one in operations.dead_letters(memory)
    ]
    return failed + given_up


def texts(store: Store, session_id: str) -> list[str]:
    """Return the texts of a session's log; none once its deletion has begun."""
    head = store.head(session_id)
    if head is None or head.deleting:
        return []
    return [entry.message.text() for entry in store.read(session_id)]


def inspect(store: Store, session_id: str) -> Iterator[Finding]:
    """Check a session's records while processes may be interrupted.

    A block must have the messages up to its cursor once, and later messages at most once.
    """
    worker = f"durability-{uuid4().hex}"
    while not store.lease(session_id, worker, _INSPECTION):
        if store.head(session_id) is None:
            return
        sleep(_POLL)
    head, log = store.head(session_id), store.read(session_id)
    if head is not None and not head.deleting:
        for block in (VECTORS, FACTS):
            owners = {Scope(head.user_id, session_id).owner, Scope(None, session_id).owner}
            records = (record for owner in owners for record in _records(store, block, owner))
            seqs = Counter(record.first for record in records if record.session_id == session_id)
            cursor = head.cursors.get(block, 0)
            yield from _check_seqs(block, session_id, log, seqs, cursor)
            if gone := [seq for seq in seqs if seq > head.end]:
                yield Finding(ORPHANED, session_id, f"{block}: seqs {gone} of {head.end}")
    store.release(session_id, worker)


def _check_seqs(
    block: str, session_id: str, log: list[Entry], records: Counter[int], cursor: int
) -> Iterator[Finding]:
    for entry in log:
        often, told = records[entry.seq], f"records of seq {entry.seq}, with the cursor at {cursor}"
        if often > 1:
            yield Finding(f"{block} {DOUBLED}", session_id, f"{often} {told}")
        if not often and entry.seq <= cursor and not entry.message.is_system:
            yield Finding(f"{block} {MISSING}", session_id, f"no {told}")


def verify(store: Store, owners: Iterable[str]) -> list[Finding]:
    """Check a store that has caught up; `owners` may have records."""
    heads = {head.session_id: head for head in all_heads(store)}
    findings: list[Finding] = []
    entries: dict[tuple[str, int], Entry] = {}
    for head in heads.values():
        log = store.read(head.session_id)
        entries |= {(head.session_id, entry.seq): entry for entry in log}
        findings += _check_head(store, head, log)
    for block in (VECTORS, FACTS):
        records = (record for owner in sorted(owners) for record in _records(store, block, owner))
        findings += _check_records(block, heads, entries, records)
    findings += [Finding(DUE, head.session_id, "still due") for head in store.due()]
    findings += [
        Finding(UNFINISHED, "", f"the deletion of user {note.text}")
        for note in store.records("_notes", "user deletions")
    ]
    return findings


def _check_head(store: Store, head: Head, log: list[Entry]) -> Iterator[Finding]:
    name = head.session_id
    if head.deleting:
        yield Finding(UNFINISHED, name, "its deletion")
    seqs = [entry.seq for entry in log]
    if lost := set(range(1, head.end + 1)).difference(seqs):
        yield Finding(LOST, name, f"seqs {sorted(lost)}")
    if seqs != sorted(set(seqs)):
        yield Finding(REORDERED, name, f"seqs {seqs}")
    totals = np.cumsum([0 if entry.message.is_system else entry.tokens for entry in log])
    if [entry.total for entry in log] != totals.tolist():
        yield Finding(REORDERED, name, "running totals of tokens")
    for block in (VECTORS, FACTS):
        if head.cursors.get(block, 0) != head.end:
            yield Finding(BEHIND, name, f"{block} at {head.cursors.get(block, 0)} of {head.end}")
    if not store.lease(name, "durability", 0.0):
        yield Finding(LEASED, name, "a lease is left")


def _check_records(
    block: str,
    heads: dict[str, Head],
    entries: dict[tuple[str, int], Entry],
    records: Iterable[Record],
) -> Iterator[Finding]:
    found: dict[str, Counter[int]] = {name: Counter() for name in heads}
    for record in records:
        entry = entries.get((record.session_id, record.first))
        told = f"{block}: {record.owner} has {record.text!r} of seq {record.first}"
        if entry is None or entry.message.is_system or entry.message.text() not in record.text:
            yield Finding(ORPHANED, record.session_id, told)
            continue
        scope = Scope(heads[record.session_id].user_id, record.session_id)
        if record.owner != scope.owner:
            yield Finding(FOREIGN, record.session_id, told)
        found[record.session_id][record.first] += 1
    for name, head in heads.items():
        log = [entry for entry in entries.values() if entry.session_id == name]
        yield from _check_seqs(block, name, log, found[name], head.end)


def _records(store: Store, block: str, owner: str) -> list[Record]:
    if block == FACTS:  # a fact about a whole batch has no source message
        return [record for record in store.records(block, owner) if record.sources]
    return everything(store, block, owner, MiniLMEmbedder.dimension)
