"""Migration from one database to another: resumable, and verified at its end.

Documents and lines are copied as the databases store them, so encrypted data stays encrypted.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, groupby, islice, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

from agent_memory.core.system_collections import NOTES
from agent_memory.engine.leases import Locks
from agent_memory.engine.system_records import Kind, SystemRecords, stays_behind
from agent_memory.errors import InvalidInput, StoreError
from agent_memory.stores import check_url, open_store
from agent_memory.stores.base import Store
from agent_memory.stores.kernel import contract as k

Kinds = Literal["facts", "vectors", "sessions"]


@dataclass(frozen=True, slots=True)
class Migrated:
    """The numbers of compared items, which are equal in both stores.

    Attributes:
        facts: Records without vectors: facts, notes, files, and records of the library itself.
    """

    sessions: int
    messages: int
    facts: int
    vectors: int


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """One step of a migration.

    Attributes:
        what: The kind of data that is copied now, or "verifying" for the comparison at the end.
        done: The number of items copied or compared so far.
        total: The expected last value of `done`. None for facts and vectors.
        verified: The counts of the compared data. None before the last step.
    """

    what: Literal["facts", "vectors", "sessions", "verifying"]
    done: int
    total: int | None
    verified: Migrated | None = None


_ROUNDS = 2
_SHOWN = 5
_EVERY = 200
_PAGE = 200
_SEGMENTS = 4  # segments per read and write; a segment may have 2 MB
_LINES = 50  # lines per read and write; a line may contain images
_SQLITE = "sqlite:///"

UNFINISHED = (
    "A migration into this store is running or was interrupted. Use the source of the migration, "
    "and run `agent-memory migrate FROM_URL TO_URL` again until it has finished."
)
"""The message for a store for which `is_unfinished` returns True."""


def migrate(from_url: str, to_url: str, *, namespace: str = "default") -> Generator[MigrationStep]:
    """Copy all sessions, facts and vectors of a namespace to another database.

    The source is not changed. In this namespace, the target must be empty, or hold the copies of an
    interrupted migration from the same source. The call then resumes that migration. At the end,
    both stores are read again and compared. If the target already equals the source, the call only
    compares them. Encrypted data is copied without decryption.

    Limitations: Do not write to the source during the migration. The comparison reports such
    writes, and another call copies them. Do not use the target before the end: the call removes
    data that is not in the source.

    Args:
        from_url: The source. See `AgentMemoryConfig.store`.
        to_url: The target.
        namespace: The namespace, in both stores.

    Yields:
        The progress. The last step has `verified`.

    Raises:
        InvalidInput: A URL cannot be used, the namespace is empty in the source, or the target has
            other data.
        StoreError: The stores differ at the end, or one of them failed. Repeat the call to resume.
    """
    for url in (from_url, to_url):
        check_url(url)
        if url.startswith("memory:"):
            raise InvalidInput(
                "A memory:// store ends with its process, so a migration can use it neither as "
                "the source nor as the target. Name another store."
            )
    if origin_of(from_url) == origin_of(to_url):
        raise InvalidInput("The source and the target are the same database. Name another target.")
    if from_url.startswith(_SQLITE) and not Path(from_url.removeprefix(_SQLITE)).exists():
        raise InvalidInput(f"There is no file {from_url.removeprefix(_SQLITE)!r} to copy from.")
    with (
        closing(open_store(from_url, namespace)) as source,
        closing(open_store(to_url, namespace)) as target,
    ):
        yield from migrate_stores(source, target, origin_of(from_url))


def migrate_stores(source: Store, target: Store, origin: str) -> Generator[MigrationStep]:
    """Migrate between open stores. `origin` identifies the source, to resume a migration."""
    with Locks(target).held(Kind.MIGRATION.value):
        records = SystemRecords(target)
        noted = records.read(Kind.MIGRATION)
        held = [] if noted else _held(target.kernel)
        same = source.counts().sessions == target.counts().sessions
        if held and same and not is_unfinished(source):
            differences = yield from _compared(source.kernel, target.kernel, Counter())
            if not differences:  # for example after an earlier migration
                return
        _check(source, held, origin, noted)
        records.write(Kind.MIGRATION, origin)
        for step in _moved(source.kernel, target.kernel):
            if step.verified is not None:
                target.secure_erase()  # the traces of copies that were replaced or removed
                records.drop(Kind.MIGRATION, origin)
            yield step


def is_unfinished(store: Store) -> bool:
    """Return whether a migration into a store has begun and is not finished."""
    return bool(SystemRecords(store).read(Kind.MIGRATION))


def origin_of(url: str) -> str:
    """Return a digest of a source's address without user names and passwords."""
    if url.startswith(_SQLITE):
        place = str(Path(url.removeprefix(_SQLITE)).resolve())
    else:
        parts = urlsplit(url)
        options = [pair for pair in parse_qsl(parts.query) if "pass" not in pair[0].lower()]
        place = repr((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, sorted(options)))
    return hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()


def _check(source: Store, held: Sequence[str], origin: str, noted: Collection[str]) -> None:
    """Raise an error if two deployments would be mixed, or nothing would be copied."""
    if is_unfinished(source):
        raise InvalidInput(
            "The source is itself the target of an unfinished migration. Finish that migration "
            "first."
        )
    if origin in noted:
        return
    if noted:
        raise InvalidInput(
            "A migration from another source into this target is not finished. "
            "Finish the other migration, or name an empty target."
        )
    if held:
        raise InvalidInput(
            f"The target already has data in this namespace: {', '.join(held)}. Name an "
            "empty database, or another namespace."
        )
    if not _held(source.kernel):
        raise InvalidInput(
            "There is nothing to copy in this namespace of the source. If the memory has another "
            "`namespace`, pass its name."
        )


def _held(kernel: k.Kernel) -> list[str]:
    """Describe the data of a store. Records of the collection `_notes` do not count as data."""
    sessions, _ = kernel.counts(k.HEAD)
    names = kernel.collections("")
    facts = [name.removeprefix(k.FACT) for name in names if name.startswith(k.FACT)]
    vectors = [name.removeprefix(k.VECTOR) for name in names if name.startswith(k.VECTOR)]
    contents = [f"{sessions} sessions"] if sessions else []
    contents += [f"facts of {block!r}" for block in facts if block != NOTES.name][:1]
    return contents + [f"vectors of {block!r}" for block in vectors]


def _moved(source: k.Kernel, target: k.Kernel) -> Generator[MigrationStep]:
    """Make the target equal to the source. The source is not changed.

    If the comparison finds differences, the differing items are copied once more.
    """
    differences: Mapping[str, bool] = {}
    for _ in range(_ROUNDS):
        total, _ = source.counts(k.HEAD)
        walk = Walk(source, target, copies=True)
        for what in walk.run():
            done = walk.counts[what]
            if what == "sessions":
                yield MigrationStep(what, done, max(done, total))
            elif done % _EVERY == 1:
                yield MigrationStep(what, done, None)
        differences = yield from _compared(source, target, walk.sums, walk.done)
        if not differences:
            return
    raise StoreError(_sentence(differences))


def _compared(
    source: k.Kernel, target: k.Kernel, copied: Counter[str], total: int = 0
) -> Generator[MigrationStep, None, dict[str, bool]]:
    """Compare both stores and return the differences. If there are none, yield the counts.

    Each value says whether the source has changed since its items in `sent` were copied.
    """
    walk = Walk(source, target, copies=False)
    states = _states(source)
    for _ in walk.run():
        if walk.done % _EVERY == 1:
            yield MigrationStep("verifying", walk.done, max(walk.done, total))
    differences = {name: walk.sums[name] != copied[name] for name in walk.differing}
    if states != _states(source):
        differences["sessions that changed during the comparison"] = True
    if not differences:
        counts = (walk.counts[what] for what in ("sessions", "messages", "facts", "vectors"))
        yield MigrationStep("verifying", walk.done, walk.done, Migrated(*counts))
    return differences


@dataclass(eq=False)
class Walk:
    """A walk through all data of two databases. It copies the data, or only compares it.

    Attributes:
        copies: Whether to make the target equal to the source.
        counts: The numbers of sessions, messages, facts and vectors of the source.
        sums: A sum of hashes of the source's items, by the name of the session or block.
        differing: The numbers of differing items, by the name of the session or block.
    """

    source: k.Kernel
    target: k.Kernel
    copies: bool
    counts: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    differing: Counter[str] = field(default_factory=Counter)

    @property
    def done(self) -> int:
        return self.counts.total() - self.counts["messages"]

    def run(self) -> Iterator[Kinds]:
        """Walk through the databases. Yield the kind of each session, fact and vector."""
        names = {*self.source.collections(""), *self.target.collections("")}
        parts = [*map(self._records, sorted(names - {k.HEAD, k.KEY, k.LOCK})), self._sessions()]
        # records are copied first, so that no session in the target lacks its records; records are
        # compared last, to detect changes during the comparison of sessions
        yield from chain.from_iterable(parts if self.copies else reversed(parts))

    def _records(self, collection: str) -> Iterator[Kinds]:
        what: Kinds = "facts" if collection.startswith(k.FACT) else "vectors"
        block = collection.partition(":")[2]
        name = f"{what} of {block!r}" if block else "the blocks with vectors"
        most = _SEGMENTS if collection.startswith(k.SEGMENT) else _PAGE
        writes: list[k.Write] = []
        for record, source, target in self._pairs(collection):
            if any(stays_behind(block, side.owner) for side in (source, target) if side):
                continue
            if source != target:
                self.differing[name] += 1
                writes.append(k.Put(source) if source else k.Delete([k.DocId(collection, record)]))
            if len(writes) == most:
                self._write(writes)
                writes = []
            if source is not None:
                self.sums[name] += hash(source)
                if collection.startswith((k.FACT, k.VECTOR)):
                    self.counts[what] += 1
                    yield what
        self._write(writes)

    def _write(self, writes: Sequence[k.Write]) -> None:
        if self.copies and writes:
            self.target.commit(k.Batch([], writes))

    def _pairs(self, collection: str) -> Iterator[tuple[str, k.Document | None, k.Document | None]]:
        """Yield each id of the documents in both databases, with the documents, in order."""
        source, target = (_scanned(kernel, collection) for kernel in (self.source, self.target))
        both = merge(((it.id, 0, it) for it in source), ((it.id, 1, it) for it in target))
        for name, group in groupby(both, key=itemgetter(0)):
            sides = {side: document for _, side, document in group}
            yield name, sides.get(0), sides.get(1)

    def _sessions(self) -> Iterator[Kinds]:
        for session, source, target in self._pairs(k.HEAD):
            if not (source and target and self._same(source, target)):
                self.differing[f"session {session!r}"] += 1
                if self.copies and target:
                    self._delete(target)
                if self.copies and source:
                    self._copy(source)
            if source:
                self.sums[f"session {session!r}"] += hash(source)
                self.counts["sessions"] += 1
                yield "sessions"

    def _same(self, source: k.Document, target: k.Document) -> bool:
        sides = _contents(self.source, source), _contents(self.target, target)
        for item, other in zip_longest(*sides):
            if item != other:
                return False
            self.counts["messages"] += isinstance(item, k.Line)
        return True

    def _delete(self, head: k.Document) -> None:
        keys, lines = k.DeleteWhere(k.Scan(k.KEY, session=head.id)), k.Truncate(head.id, 0)
        self.target.commit(k.Batch([k.Exists(head.key)], [k.Delete([head.key]), keys, lines]))

    def _copy(self, head: k.Document) -> None:
        at, pages = head.key, _pages(self.source, head.id)
        first = next(pages, [])
        begin = k.Put(head._replace(tail=k.EMPTY)), k.Append(first), k.Wake([at], 0)
        self._change(head, [k.Missing(at), k.LogEndsAt(head.id, 0)], begin)
        keys = self.source.scan(k.Scan(k.KEY, session=head.id))
        self._change(head, [k.Exists(at)], [*map(k.Put, keys)])
        end = first[-1].seq if first else 0
        for page in pages:
            self._change(head, [k.LogEndsAt(head.id, end)], [k.Append(page)])
            end = page[-1].seq

    def _change(
        self, head: k.Document, conditions: Sequence[k.Condition], writes: Sequence[k.Write]
    ) -> None:
        if writes and not self.target.commit(k.Batch(conditions, writes)).done:
            raise StoreError(
                f"Session {head.id!r} was changed in the target by another process during the "
                "migration. Stop the processes that use the target, then repeat the call."
            )


def _scanned(kernel: k.Kernel, collection: str) -> Iterator[k.Document]:
    limit = _SEGMENTS if collection.startswith(k.SEGMENT) else _PAGE
    scan = k.Scan(collection, limit=limit, tails=collection == k.HEAD)
    while page := kernel.scan(scan):
        yield from page
        scan = scan._replace(after=page[-1].id)


def _pages(kernel: k.Kernel, session: str) -> Iterator[list[k.Line]]:
    after = 0
    while page := kernel.lines([k.Part(session, after, _LINES)]):
        yield page
        after = page[-1].seq


def _contents(kernel: k.Kernel, head: k.Document) -> Iterator[k.Document | k.Line]:
    """Yield the head, the idempotency keys and the lines of a session."""
    yield head
    yield from kernel.scan(k.Scan(k.KEY, session=head.id))
    for page in _pages(kernel, head.id):
        yield from page


def _states(kernel: k.Kernel) -> set[int]:
    """Return a hash of each session's head, which changes with every write to the session."""
    return set(map(hash, _scanned(kernel, k.HEAD)))


def _sentence(differences: Mapping[str, bool]) -> str:
    """Return the error text. Each value says whether a change of the source is the cause."""
    shown = ", ".join(islice(differences, _SHOWN))
    more = f" and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    why = (
        "The source was changed during the migration: stop the processes that use it, then repeat"
        if any(differences.values())
        else "Repeat"
    )
    return (
        f"The target is not the same as the source: {shown}{more}. {why} the call to "
        "copy the missing data."
    )
