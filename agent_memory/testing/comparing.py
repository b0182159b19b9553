"""`KernelContract`: random calls of a store, whose kernel must answer like the kernel of SQLite.

Two handles make the calls in turn, so that cached heads are often outdated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import TypeVar

import pytest

from agent_memory.core.idempotency import KeptKey, Once, digest_of, key_of
from agent_memory.core.records import Lease, Record
from agent_memory.errors import Conflict, LeaseLost, SessionDeleting, SessionOfAnotherUser
from agent_memory.stores.base import Store
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing.contract import DAY, Contract, draft, record, units, worded
from agent_memory.testing.rewriting import begun, entries

T = TypeVar("T")

_IDS = ["x", "X", "\u00e9", "x:1", "a'\"%_\\", "*?[", "\uff5a", "\U0001f600"]
_OWNERS = ["user:a", "user:A", "user:", "user:a\x1fb", "shared:\u00e4"]
_SESSIONS = ["s", "S", "t'%", "\u00fc"]
_BLOCKS = ["f", "F", "f%"]


class ComparedKernel(k.Kernel):
    """Passes each call to a kernel and to a second one, and fails if their answers differ."""

    def __init__(self, kernel: k.Kernel, second: k.Kernel) -> None:
        self._kernels = (kernel, second)
        self.remote, self.spans = kernel.remote, kernel.spans

    def _both(self, call: Callable[[k.Kernel], T]) -> T:
        answer, expected = map(call, self._kernels)
        assert answer == expected, f"The answer is {answer}\ninstead of {expected}."
        return answer

    def commit(self, batch: k.Batch) -> k.Outcome:
        return self._both(lambda kernel: kernel.commit(batch))

    def extend(self, head: k.DocId, version: int, line: k.Line, micros: int) -> bool:
        kernel, second = self._kernels
        is_done = kernel.extend(head, version, line, micros)  # a kernel need not extend at once
        assert not is_done or k.Kernel.extend(second, head, version, line, micros)
        return is_done

    def documents(
        self, ids: Sequence[k.DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[k.Document | None]:
        return self._both(lambda kernel: kernel.documents(ids, tails=tails, bodies=bodies))

    def scan(self, scan: k.Scan) -> list[k.Document]:
        if not (scan.names or scan.behind):
            return self._both(lambda kernel: kernel.scan(scan))
        # the answer may have more fields than the names, or fewer heads
        found, expected = (kernel.scan(scan._replace(behind="")) for kernel in self._kernels)
        assert [document.key for document in found] == [document.key for document in expected]
        return self._kernels[0].scan(scan)

    def owners(self, collection: str, beginning: str) -> list[str]:
        return self._both(lambda kernel: kernel.owners(collection, beginning))

    def collections(self, beginning: str) -> list[str]:
        return self._both(lambda kernel: kernel.collections(beginning))

    def due(self, collection: str, limit: int) -> list[k.Document]:
        return self._both(lambda kernel: kernel.due(collection, limit))

    def lines(self, parts: Sequence[k.Part]) -> list[k.Line]:
        return self._both(lambda kernel: kernel.lines(parts))

    def counts(self, collection: str) -> tuple[int, int]:
        return self._both(lambda kernel: kernel.counts(collection))


def _a_record(random: Random) -> Record:
    first = random.randrange(1, 6)
    owner, session = random.choice(_OWNERS), random.choice(["", *_SESSIONS])
    last = first + random.randrange(3)
    text = random.choice(["a", "\u00e9 \U0001f600 \x00 \ud800"])
    return record(random.choice(_IDS), owner, session, first=first, last=last, text=text)


def _append(store: Store, random: Random, session: str) -> None:
    texts = ["", "hi", "\u00e9\u2028\U0001f600", "long" * 500]
    drafts = [draft(random.choice(texts)) for _ in range(random.choice([0, 1, 1, 2, 3]))]
    if random.random() < 0.2:
        drafts.append(draft(random.choice(texts), role="system"))
    if random.random() < 0.3:
        drafts.append(draft([{"type": "text", "text": "\x00"}], role="assistant", name="n"))
    store.append(session, drafts, random.choice([None, "a", "A"]), within=random.choice([0, 60]))


def _append_once(store: Store, random: Random, session: str) -> None:
    drafts = [draft("with a key")]
    keys = [key_of(name, [drafts[0].message]) for name in random.sample(_IDS, 2)]
    end = random.choice([None, random.randrange(4)])
    day = random.randrange(4)
    since = random.choice([None, DAY + timedelta(random.randrange(day + 1))])
    once = Once(keys[0], keys[1:], end, DAY + timedelta(day), since)
    store.append_once(session, drafts, once, within=60)


def _put_keys(store: Store, random: Random, session: str) -> None:
    end = random.randrange(1, 6)
    name = key_of(random.choice(_IDS), []).name
    store.put_keys(session, [KeptKey(name, digest_of([]), end, end, 3 * end, DAY)])


def _change_head(store: Store, random: Random, session: str) -> None:
    head, end = store.head(session), random.randrange(6)
    if head is None:
        expired, deleting = random.randrange(3), random.random() < 0.2
        log = entries(expired + 1, expired + 3)
        begin = begun(session_id=session, expired=expired, start=expired, deleting=deleting)
        store.rewrite(begin, expired, [replace(entry, session_id=session) for entry in log])
        return
    lease = random.choice([None, Lease(session, "w1")])
    match random.randrange(4):
        case 0:
            store.move(replace(head, start=random.randrange(head.end + 1)), lease=lease)
        case 1 if head.expired + 1 < head.end:
            expired = random.randrange(head.expired + 1, head.end)
            store.move(replace(head, expired=expired, start=max(head.start, expired)), lease=lease)
        case 2 if head.expired < end <= head.end:
            kept = store.pick(session, [end])[0]
            new = [replace(entry, session_id=session) for entry in entries(end + 1, end + 2, "", 0)]
            new = [replace(entry, total=kept.total + entry.total) for entry in new]
            records = {"f": [replace(_a_record(random), session_id=session)]}
            store.rewrite(head, end, random.choice([(), new]), lease=lease, records=records)
        case 3:
            store.schedule(head, random.choice([None, 0, 60]))


def _lease(store: Store, random: Random, session: str) -> None:
    owner = random.choice(["w1", "w2"])
    match random.randrange(4):
        case 0:
            store.release(session, owner)
        case 1:
            store.unlock("lock", owner)
        case 2:
            store.lock("lock", owner, 60, renew=random.random() < 0.3)
        case 3:
            store.lease(session, owner, 60, renew=random.random() < 0.3)


def _put_records(store: Store, random: Random, session: str) -> None:
    records = [_a_record(random) for _ in range(random.choice([1, 1, 3]))]
    replacing = random.choice([None, (session, 2, 4)])
    lease = random.choice([None, None, Lease(session, "w1")])
    store.put_records(random.choice(_BLOCKS), records, replacing=replacing, lease=lease)


def _swap_record(store: Store, random: Random, session: str) -> None:
    block, new = random.choice(_BLOCKS), _a_record(random)
    before = store.record(block, new.id)
    last = random.choice([None, 1, before.last if before else 2])
    store.swap_record(block, replace(new, last=(last or 0) + 1), last)


def _delete_records(store: Store, random: Random, session: str) -> None:
    record_id = random.choice([None, None, *_IDS])
    owner = random.choice([None, *_OWNERS])
    session_id = random.choice([None, session]) if record_id or owner else session
    store.delete_records(
        random.choice(_BLOCKS),
        record_id=record_id,
        owner=owner,
        session_id=session_id,
        after=random.choice([0, 3]),
    )


def _change_vectors(store: Store, random: Random, session: str) -> None:
    match random.randrange(4):
        case 0:
            store.delete_vectors("v", owner=random.choice(_OWNERS))
        case 1:
            store.delete_vectors("v", session_id=session, after=random.choice([0, 3]))
        case _:
            records = [_a_record(random)]
            store.put_vectors("v", records, worded(["red fox"], units(1, seed=random.randrange(9))))


def _delete(store: Store, random: Random, session: str) -> None:
    if random.random() < 0.3:
        store.delete(session)


_CALLS = [_append, _append, _append, _append_once, _put_keys, *[_change_head] * 3, _lease]
_CALLS += [_put_records, _put_records, _swap_record, _delete_records, _change_vectors, _delete]


def _read(kernel: k.Kernel, random: Random) -> None:
    session, owner, id = (random.choice(names) for names in (_SESSIONS, _OWNERS, _IDS))
    name = random.choice([k.HEAD, k.KEY, "vector:v", *(f"{k.FACT}{block}" for block in _BLOCKS)])
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
    kernel.lines([k.Part(session, seq - 1, limit), k.Part("T"), k.Part("S", seqs=[seq, seq + 2])])
    kernel.documents(
        [k.DocId(name, id), k.DocId(k.HEAD, session), k.DocId(name, id)], bodies=bodies
    )
    kernel.documents([k.DocId(k.HEAD, session)], tails=True)
    kernel.owners(name, random.choice(["", "user:", "user:a", "user:%", "user:a\x1f"]))
    kernel.collections(random.choice(["", k.FACT, f"{k.FACT}f%", "h"]))
    kernel.due(k.HEAD, random.choice([1, 2, 100]))
    kernel.counts(k.HEAD)


class KernelContract(Contract):
    """Contract of a store's kernel."""

    @pytest.mark.parametrize("seed", range(3))
    def test_random_calls_give_the_same_results_as_sqlite(
        self, store: Store, other: Store, seed: int
    ) -> None:
        """Wrong: the kernel answers a call differently from SQLite's kernel after random writes."""
        second, random = MemoryStore().kernel, Random(seed)
        twins = [KernelStore(ComparedKernel(handle.kernel, second)) for handle in (store, other)]
        for twin in twins:
            twin.open_vectors("v", 8, "model")
        for _ in range(60):
            with suppress(LeaseLost, Conflict, SessionDeleting, SessionOfAnotherUser):
                call = random.choice(_CALLS)
                # a folder marks the vectors that another handle wrote, as if edited by hand
                twin = twins[0] if call is _change_vectors else random.choice(twins)
                call(twin, random, random.choice(_SESSIONS))
            _read(random.choice(twins).kernel, random)
        many = [k.head_id(session) for session in (*map(str, range(700)), *_SESSIONS)]
        twins[0].kernel.documents(many, bodies=False)
        twins[0].kernel.lines([k.Part("s", seqs=[*range(2_000)]), k.Part("S", seqs=[1])])
