"""One run of a migration between two open stores: records, then sessions, then a comparison."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from agent_memory.engine.paging import all_heads
from agent_memory.engine.transfer.migration.checksums import Sums
from agent_memory.engine.transfer.migration.mirroring import mirror, summed
from agent_memory.engine.transfer.migration.record_sets import FactRecords, RecordSet, VectorRecords
from agent_memory.engine.transfer.migration.sessions import Sessions
from agent_memory.engine.transfer.migration.steps import Migrated, MigrationStep
from agent_memory.errors import StoreError
from agent_memory.stores.base import Store

_EVERY = 200
_SHOWN = 5

T = TypeVar("T")


@dataclass(slots=True)
class _Part:
    """A set of records of the source and the target's, and what was sent from one to the other."""

    what: Literal["facts", "vectors"]
    source: RecordSet
    target: RecordSet
    sent: Sums = field(default_factory=Sums)


class _Wrong:
    """What is not the same on both sides, and whether that is because the source changed."""

    def __init__(self) -> None:
        self.count = 0
        self.shown: list[str] = []
        self.changed = False

    def add(self, what: str, changed: bool) -> None:
        self.count += 1
        self.changed = self.changed or changed
        if len(self.shown) < _SHOWN:
            self.shown.append(what)

    def __str__(self) -> str:
        more = f" and {self.count - _SHOWN} more" if self.count > _SHOWN else ""
        why = (
            "The source was written to meanwhile: stop what uses it; then the"
            if self.changed
            else "The"
        )
        return (
            f"The target is not the same as the source: {', '.join(self.shown)}{more}. {why} same "
            "call again brings what is missing."
        )


def move(
    source: Store, target: Store, removing: Callable[[], None], *, resumed: bool
) -> Iterator[MigrationStep]:
    """Have the target hold what the source holds, and nothing else.

    Records come before the sessions that they derive from: no session stands in the target without
    them. What is there already is not written again.

    Args:
        source: What is moved. It is only read.
        target: Where to.
        removing: Called before something is removed from the target.
        resumed: Whether there may be something in the target already.

    Raises:
        StoreError: They are not the same at the end.
    """
    parts = list(_parts(source, target, removing))
    for part in parts:
        mirrored = mirror(part.source, part.target, part.sent, removing)
        for done in _some(mirrored):
            yield MigrationStep(part.what, done, None)
    sessions = Sessions(source, target, removing)
    if resumed:
        sessions.drop_others()
    total = source.counts().sessions
    for done, _ in enumerate(sessions.bring(), 1):
        yield MigrationStep("sessions", done, max(done, total))
    yield from _verified(source, target, sessions, parts)


def compare(source: Store, target: Store) -> Generator[MigrationStep, None, Migrated | None]:
    """What was moved, where the target holds it all and nothing else; both are only read."""
    total = source.counts().sessions
    blocks = source.vector_blocks()
    if total != target.counts().sessions or blocks != target.vector_blocks():
        return None
    messages = 0
    for done, (head, is_same) in enumerate(Sessions(source, target, lambda: None).look(), 1):
        if not is_same:
            return None
        messages += head.end - head.expired
        yield MigrationStep("verifying", done, None)
    held = {"facts": 0, "vectors": 0}
    for part in (_facts(source, target), *_vectors(source, target, blocks)):
        there = Sums()
        for one, sums in ((part.source, part.sent), (part.target, there)):
            for some in _some(summed(one, sums)):
                yield MigrationStep("verifying", some, None)
        if part.sent.differing(there):
            return None
        held[part.what] += there.counts.total()
    return Migrated(total, messages, held["facts"], held["vectors"])


def _parts(source: Store, target: Store, removing: Callable[[], None]) -> Iterator[_Part]:
    yield _facts(source, target)
    announced = source.vector_blocks()
    for block, there in target.vector_blocks().items():
        if announced.get(block) != there:
            removing()
            target.clear_vectors(block)
    for block, (dimension, model) in announced.items():
        target.open_vectors(block, dimension, model)
    yield from _vectors(source, target, announced)


def _facts(source: Store, target: Store) -> _Part:
    leaving = _leaving(source)
    return _Part("facts", FactRecords(source, leaving), FactRecords(target, leaving))


def _vectors(source: Store, target: Store, blocks: Iterable[str]) -> Iterator[_Part]:
    leaving = _leaving(source)
    for block in blocks:
        ours, theirs = (VectorRecords(store, block, leaving) for store in (source, target))
        yield _Part("vectors", ours, theirs)


def _leaving(source: Store) -> set[str]:
    """The sessions whose deletion is to be finished; what derives from them is not moved any
    more."""
    return {head.session_id for head in all_heads(source) if head.deleting}


def _verified(
    source: Store, target: Store, sessions: Sessions, parts: Iterable[_Part]
) -> Iterator[MigrationStep]:
    wrong, seen = _Wrong(), Sums()
    records = [part.sent.counts.total() for part in parts]
    total = source.counts().sessions + 2 * sum(records)
    done = messages = 0
    for done, (head, told) in enumerate(sessions.compare(seen), 1):
        messages += head.end - head.expired
        if told is not None:
            wrong.add(f"session {head.session_id!r} ({told})", told != "differs")
        yield MigrationStep("verifying", done, max(done, total))
    count = done
    if target.counts().sessions != count:
        wrong.add("sessions that only the target has", changed=False)
    # after the sessions: what changed in them meanwhile shows in the records
    for part in parts:
        here, there = Sums(), Sums()
        for one, sums in ((part.source, here), (part.target, there)):
            for some in _some(summed(one, sums)):
                yield MigrationStep("verifying", done + some, max(done + some, total))
            done += sums.counts.total()
        for block in here.differing(there):
            changed = block in here.differing(part.sent)
            wrong.add(f"{part.what} of {block!r}", changed)
    if seen.differing(sessions.summed()):
        wrong.add("sessions that have changed since", changed=True)
    if source.vector_blocks() != target.vector_blocks():
        wrong.add("the blocks with vectors", changed=True)
    if wrong.count:
        raise StoreError(str(wrong))
    held = {"facts": 0, "vectors": 0}
    for part, number in zip(parts, records, strict=True):
        held[part.what] += number
    found = Migrated(count, messages, held["facts"], held["vectors"])
    yield MigrationStep("verifying", done, done, found)


def _some(items: Iterable[T]) -> Iterator[int]:
    """How many have come, now and then and at the end."""
    count = 0
    for count, _ in enumerate(items, 1):
        if not count % _EVERY:
            yield count
    yield count
