"""`KernelContract`: random calls of a store, whose kernel must answer like the kernel of SQLite.

Two handles make the calls in turn, so that cached heads are often outdated.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, cast

import pytest

from agent_memory.core.idempotency import Idempotency, KeyRecord, digest_of, key_of
from agent_memory.core.records import Lease, Record
from agent_memory.errors import Conflict, LeaseLost, SessionDeleting, SessionOfAnotherUser
from agent_memory.stores.base import Store
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.coding import are_not_absorbed
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing.contract import (
    DAY,
    Contract,
    begun,
    draft,
    entries,
    record,
    units,
    worded,
)

_IDS = ["x", "X", "x ", " x", "\u00e9", "e\u0301", "x:1", "a'\"%_\\", "*?[", "{x}"]
_IDS += ["\uff5a", "\U0001f600", "x" * 63 + "y", "x" * 64]
_OWNERS = ["user:a", "user:A", "user:", "user:a\x1fb", "user:a\x1fB", "user:a%", "shared:\u00e4"]
_SESSIONS = ["s", "S", "s ", "t'%", "_", "\u00fc", "u\u0308", "\U0001f600" * 255, "s" * 255]
_BLOCKS = ["f", "F", "f%", "f_", "start"]
_TEXTS = ["", "hi", "\u00e9\u2028\U0001f600", "long" * 500, "\x00\x01\x1f\x7f\r\n", "\ud83d \udc00"]
_USERS = [None, None, "a", "A"]
_A_YEAR = 365 * 86_400


class _Compared:
    """Passes each call to a kernel and to a second one, and fails if their answers differ."""

    def __init__(self, kernel: k.Kernel, second: k.Kernel) -> None:
        self._kernels = (kernel, second)
        self.remote, self.spans = kernel.remote, kernel.spans

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            answer, wanted = (getattr(each, method)(*args, **options) for each in self._kernels)
            what = f"{method}{args} returns {answer}\ninstead of {wanted}."
            assert answer == wanted, what
            return answer

        return call

    def extend(self, head: k.DocId, version: int, line: k.Line, micros: int) -> bool:
        kernel, second = self._kernels
        is_done = kernel.extend(head, version, line, micros)  # a kernel need not extend at once
        assert not is_done or k.Kernel.extend(second, head, version, line, micros)
        return is_done

    def scan(self, scan: k.Scan) -> list[k.Document]:
        answer, wanted = (kernel.scan(scan) for kernel in self._kernels)
        if scan.behind:  # a kernel may leave out the heads that the block has absorbed
            answer, wanted = (are_not_absorbed(each, scan.behind) for each in (answer, wanted))
        if scan.names:  # and may return more than the names
            assert [each.key for each in answer] == [each.key for each in wanted], scan
        else:
            assert answer == wanted, f"{scan} returns {answer}\ninstead of {wanted}."
        return answer


def _twins(*stores: Store) -> list[KernelStore]:
    """Return the stores with kernels whose answers are compared with those of one SQLite kernel."""
    second = MemoryStore().kernel
    kernels = [cast("k.Kernel", _Compared(store.kernel, second)) for store in stores]
    twins = [KernelStore(kernel) for kernel in kernels]
    for twin in twins:
        twin.open_vectors("v", 8, "model")
    return twins


def _a(names: Sequence[str], random: Random) -> str:
    """Return a random name. The first two are more frequent, so that calls meet the same data."""
    return random.choice(names[:2] if random.random() < 0.6 else names)


def _a_lease(random: Random, session: str) -> Lease | None:
    return random.choice([None, None, Lease(session, random.choice(["w1", "w2"]))])


def _a_record(random: Random) -> Record:
    first = random.randrange(1, 6)
    owner, session = _a(_OWNERS, random), _a(["s", "", *_SESSIONS], random)
    last = first + random.randrange(3)
    text = random.choice(["a", "\u00e9 \U0001f600 \x00 \ud800"])
    return record(_a(_IDS, random), owner, session, first=first, last=last, text=text)


def _append(store: Store, random: Random, session: str) -> None:
    drafts = [draft(random.choice(_TEXTS)) for _ in range(random.choice([0, 1, 1, 2, 3]))]
    if random.random() < 0.2:
        drafts.append(draft(random.choice(_TEXTS), role="system"))
    if random.random() < 0.3:
        parts = [{"type": "text", "text": random.choice(_TEXTS)}]
        drafts.append(draft(parts, role="assistant", name="n"))
    store.append(session, drafts, random.choice(_USERS), within=random.choice([0, 3600]))


def _append_idempotent(store: Store, random: Random, session: str) -> None:
    drafts = [draft("with a key")]
    keys = [key_of(name, [drafts[0].message]) for name in random.sample(_IDS[:6], 2)]
    end = random.choice([None, random.randrange(4)])
    day = random.randrange(4)
    since = random.choice([None, DAY + timedelta(random.randrange(day + 1))])
    idempotency = Idempotency(keys[0], keys[1:], end, DAY + timedelta(day), since)
    store.append_idempotent(session, drafts, idempotency, within=3600)


def _put_keys(store: Store, random: Random, session: str) -> None:
    end = random.randrange(1, 6)
    name = key_of(random.choice(_IDS), []).name
    key = KeyRecord(name, digest_of([]), end, end, 3 * end, DAY)
    store.put_keys(session, [key], lease=_a_lease(random, session))


def _change_head(store: Store, random: Random, session: str) -> None:
    head, end = store.head(session), random.randrange(6)
    if head is None:
        expired, deleting = random.randrange(3), random.random() < 0.2
        log = entries(expired + 1, expired + 3)
        begin = begun(session_id=session, expired=expired, start=expired, deleting=deleting)
        store.rewrite(begin, expired, [replace(entry, session_id=session) for entry in log])
        return
    lease = _a_lease(random, session)
    match random.randrange(5):
        case 0:
            store.move(replace(head, start=random.randrange(head.end + 1)), lease=lease)
        case 1 if head.expired + 1 < head.end:
            expired = random.randrange(head.expired + 1, head.end)
            store.move(replace(head, expired=expired, start=max(head.start, expired)), lease=lease)
        case 2 if head.expired < end <= head.end:
            replaced = store.pick(session, [end])[0]
            new = [replace(entry, session_id=session) for entry in entries(end + 1, end + 2, "", 0)]
            new = [replace(entry, total=replaced.total + entry.total) for entry in new]
            records = {"f": [replace(_a_record(random), session_id=session)]}
            store.rewrite(head, end, random.choice([(), new]), lease=lease, records=records)
        case 3:
            store.schedule(head, random.choice([None, 0, 3600]))
        case 4:
            cursors = {block: random.choice([1, head.end]) for block in random.sample(_BLOCKS, 2)}
            store.move(replace(head, cursors=cursors), lease=lease)


def _lease(store: Store, random: Random, session: str) -> None:
    owner, seconds = random.choice(["w1", "w2", "W1"]), random.choice([0, 100, 100, _A_YEAR])
    name, renew = random.choice(["s", *_IDS]), random.random() < 0.3
    match random.randrange(4):
        case 0:
            store.release(session, owner)
        case 1:
            store.unlock(name, owner)
        case 2:
            store.lock(name, owner, seconds, renew=renew)
        case 3:
            store.lease(session, owner, seconds, renew=renew)


def _put_records(store: Store, random: Random, session: str) -> None:
    records = [_a_record(random) for _ in range(random.choice([1, 1, 3]))]
    replacing = random.choice([None, (session, 2, 4)])
    lease = _a_lease(random, session)
    store.put_records(_a(_BLOCKS, random), records, replacing=replacing, lease=lease)


def _swap_record(store: Store, random: Random, session: str) -> None:
    block, new = _a(_BLOCKS, random), _a_record(random)
    before = store.record(block, new.id)
    last = random.choice([None, 1, before.last if before else 2])
    store.swap_record(block, replace(new, last=(last or 0) + 1), last)


def _delete_records(store: Store, random: Random, session: str) -> None:
    record_id = random.choice([None, None, *_IDS])
    owner = random.choice([None, *_OWNERS])
    session_id = random.choice([None, session]) if record_id or owner else session
    store.delete_records(
        _a(_BLOCKS, random),
        record_id=record_id,
        owner=owner,
        session_id=session_id,
        after=random.choice([0, 3]),
        lease=_a_lease(random, session),
    )


def _change_vectors(store: Store, random: Random, session: str) -> None:
    lease = _a_lease(random, session)
    match random.randrange(5):
        case 0:
            store.delete_vectors("v", owner=random.choice(_OWNERS), lease=lease)
        case 1:
            store.delete_vectors("v", session_id=session, after=random.choice([0, 3]), lease=lease)
        case 2:
            store.clear_vectors(random.choice(["v", "V"]))
            store.open_vectors("v", 8, "model")
        case _:
            records, features = [_a_record(random)], worded(["red fox"], units(1))
            store.put_vectors("v", records, features, lease=lease)


def _delete(store: Store, random: Random, session: str) -> None:
    if random.random() < 0.3:
        store.delete(session, lease=_a_lease(random, session))


_CALLS = [*[_append] * 3, _append_idempotent, _put_keys, *[_change_head] * 3, _lease, _lease]
_CALLS += [_put_records, _put_records, _swap_record, _delete_records, _change_vectors, _delete]


def _read(store: Store, random: Random) -> None:
    kernel = store.kernel
    session, owner, id = (_a(names, random) for names in (_SESSIONS, _OWNERS, _IDS))
    names = [k.HEAD, k.KEY, f"{k.VECTOR}v", f"{k.SEGMENT}v"]
    name = random.choice([*names, *[f"{k.FACT}{_a(_BLOCKS, random)}"] * 4])
    first, seq = random.randrange(6), random.randrange(1, 6)
    limit, bodies = random.choice([None, 1, 2]), random.random() < 0.5
    scan = k.Scan(name, bodies=bodies, tails=name == k.HEAD, limit=limit)
    for one in (
        scan,
        scan._replace(after=id),
        scan._replace(owner=owner, names=random.random() < 0.3),
        scan._replace(session=session, first_below=first),
        scan._replace(session=session, last_above=first, limit=None),
        scan._replace(owner=owner, session=session),
    ):
        kernel.scan(one)
    store.lagging(_a(_BLOCKS, random), user_id="a")
    kernel.lines([k.Part(session, seq - 1, limit), k.Part("T"), k.Part("S", seqs=[seq, seq + 2])])
    kernel.documents(
        [k.DocId(name, id), k.DocId(k.HEAD, session), k.DocId(name, id)], bodies=bodies
    )
    kernel.documents([k.DocId(k.HEAD, session)], tails=True)
    kernel.owners(name, random.choice(["", "user:", "user:a", "user:%", "user:a\x1f"]))
    kernel.collections(random.choice(["", k.FACT, f"{k.FACT}f%", "h"]))
    kernel.due(k.HEAD, random.choice([1, 2, 100]))
    kernel.counts(k.HEAD)


def _play(namespaces: Sequence[Sequence[Store]], seed: int, calls: int) -> None:
    """Make random calls. Each namespace has its handles, whose kernels compare their answers."""
    random = Random(seed)
    for _ in range(calls):
        twins = random.choice(namespaces)
        with suppress(LeaseLost, Conflict, SessionDeleting, SessionOfAnotherUser):
            call, session = random.choice(_CALLS), _a(_SESSIONS, random)
            # a folder marks the vectors that another handle wrote, as if edited by hand
            call(twins[0] if call is _change_vectors else random.choice(twins), random, session)
        _read(random.choice(twins), random)


class KernelContract(Contract):
    """Contract of a store's kernel."""

    @pytest.mark.parametrize("seed", range(3))
    def test_random_calls_give_the_same_results_as_sqlite(
        self, store: Store, other: Store, seed: int
    ) -> None:
        """Wrong: the kernel answers a call differently from SQLite's kernel after random writes."""
        twins = _twins(store, other)
        _play([twins], seed, 80)
        twins[0].schedule_all()
        twins[1].due()
        many = [k.head_id(session) for session in (*map(str, range(700)), *_SESSIONS)]
        twins[0].kernel.documents(many, bodies=False)
        twins[0].kernel.lines([k.Part("s", seqs=[*range(2_000)]), k.Part("S", seqs=[1])])

    def test_random_calls_in_two_namespaces_are_independent(
        self, store: Store, elsewhere: Store
    ) -> None:
        """Wrong: a namespace reads, changes, leases or deletes the data of another."""
        _play([_twins(store), _twins(elsewhere)], 3, 100)
