"""Migration from one database to another: resumable, and verified at its end."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import parse_qsl, urlsplit

from agent_memory.core.system_collections import NOTES
from agent_memory.engine.leases import Locks
from agent_memory.engine.paging import all_heads
from agent_memory.engine.system_records import Kind, SystemRecords
from agent_memory.engine.transfer.mirror import (
    FactRecords,
    RecordSet,
    Sessions,
    Sums,
    VectorRecords,
    mirror,
    summed,
)
from agent_memory.errors import InvalidInput, StoreError
from agent_memory.stores import check_url, open_store
from agent_memory.stores.base import Store

if TYPE_CHECKING:
    from agent_memory.stores.encrypted.keys import Keys


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
        done: The number of items copied or compared so far. For vectors, the count
            restarts with each block.
        total: The expected last value of `done`. None for facts and vectors.
        verified: The counts of the compared data. None before the last step.
    """

    what: Literal["facts", "vectors", "sessions", "verifying"]
    done: int
    total: int | None
    verified: Migrated | None = None


_EVERY = 200
_SHOWN = 5
_SQLITE = "sqlite:///"

UNFINISHED = (
    "A migration into this store is running or was interrupted. Use the source of the migration, "
    "and run `agent-memory migrate FROM_URL TO_URL` again until it has finished."
)
"""The message for a store for which `is_unfinished` returns True."""

T = TypeVar("T")


def migrate(
    from_url: str, to_url: str, *, namespace: str = "default", keys: Keys | None = None
) -> Generator[MigrationStep]:
    """Copy all sessions, facts and vectors of a namespace to another database.

    The source is not changed. In this namespace, the target must be empty, or hold the copies of an
    interrupted migration from the same source. The call then resumes that migration. At the end,
    both stores are read again and compared by counts and checksums. If the target already equals
    the source, the call only compares them. Encrypted data is copied without decryption. Exception:
    ranking features of vectors are decrypted for the copy, which requires the keys.

    Limitations: Do not write to the source during the migration. The comparison reports such
    writes, and another call copies them. Do not use the target before the end: the call removes
    data that is not in the source.

    Args:
        from_url: The source. See `AgentMemoryConfig.store`.
        to_url: The target.
        namespace: The namespace, in both stores.
        keys: The keys of an encrypted deployment.

    Yields:
        The progress. The last step has `verified`.

    Raises:
        InvalidInput: A URL cannot be used, the namespace is empty in the source, or the target has
            other data.
        Undecryptable: The data is encrypted, and `keys` is not set.
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
        if keys is not None:
            from agent_memory.stores.encrypted.store import with_features_decrypted

            source, target = (
                with_features_decrypted(store, keys, namespace) for store in (source, target)
            )
        yield from migrate_stores(source, target, origin_of(from_url))


def migrate_stores(source: Store, target: Store, origin: str) -> Generator[MigrationStep]:
    """Migrate between open stores. `origin` identifies the source, to resume a migration."""
    with Locks(target).held(Kind.MIGRATION.value):
        records = SystemRecords(target)
        noted = records.read(Kind.MIGRATION)
        held = [] if noted else _held(target)
        if held and not is_unfinished(source) and (yield from compare(source, target)):
            return  # the target already equals the source, for example after an earlier migration
        _check(source, held, origin, noted)
        records.write(Kind.MIGRATION, origin)
        for step in move(source, target, resumed=bool(noted)):
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
    if not _held(source):
        raise InvalidInput(
            "There is nothing to copy in this namespace of the source. If the memory has another "
            "`namespace`, pass its name."
        )


def _held(store: Store) -> list[str]:
    """Describe the data of a store. Records of the collection `_notes` do not count as data."""
    counts = store.counts()
    contents = [f"{counts.sessions} sessions"] if counts.sessions else []
    block = next((block for block, _ in store.all_records() if block != NOTES.name), None)
    contents += [] if block is None else [f"facts of {block!r}"]
    blocks = sorted(store.vector_blocks())
    return contents + [f"vectors of {name!r}" for name in blocks if any(store.all_vectors(name))]


def move(source: Store, target: Store, *, resumed: bool) -> Iterator[MigrationStep]:
    """Make the target equal to the source. The source is not changed.

    Records are copied before the sessions they derive from, so that no session in the target lacks
    its records.
    """
    blocks = source.vector_blocks()
    for block, there in target.vector_blocks().items():
        if blocks.get(block) != there:
            target.clear_vectors(block)
    for block, (dimension, model) in blocks.items():
        target.open_vectors(block, dimension, model)
    parts = _parts(source, target, blocks)
    sent = {part.what: 0 for part in parts}
    for part in parts:
        before = sent[part.what]
        for done in _some(mirror(part.source, part.target, part.sent)):
            sent[part.what] = before + done
            yield MigrationStep(part.what, before + done, None)
    sessions = Sessions(source, target)
    if resumed:
        sessions.drop_others()
    total = source.counts().sessions
    for done, _ in enumerate(sessions.bring(), 1):
        yield MigrationStep("sessions", done, max(done, total))
    differences = yield from _verified(source, target, sessions, parts, copies=True)
    if differences:
        raise StoreError(_sentence(differences))


def compare(source: Store, target: Store) -> Generator[MigrationStep, None, bool]:
    """Return whether both stores are equal. Neither is changed."""
    blocks = source.vector_blocks()
    if source.counts().sessions != target.counts().sessions or blocks != target.vector_blocks():
        return False
    sessions, parts = Sessions(source, target), _parts(source, target, blocks)
    return not (yield from _verified(source, target, sessions, parts, copies=False))


@dataclass(slots=True)
class _Part:
    """A set of records in the source and in the target, and the checksums of the copied records."""

    what: Literal["facts", "vectors"]
    source: RecordSet
    target: RecordSet
    sent: Sums = field(default_factory=Sums)


def _parts(source: Store, target: Store, blocks: Iterable[str]) -> list[_Part]:
    # the records of sessions with an unfinished deletion are not copied
    leaving = {head.session_id for head in all_heads(source) if head.deleting}
    facts = _Part("facts", FactRecords(source, leaving), FactRecords(target, leaving))
    sides = ([VectorRecords(each, block, leaving) for each in (source, target)] for block in blocks)
    return [facts, *(_Part("vectors", ours, theirs) for ours, theirs in sides)]


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


def _verified(
    source: Store, target: Store, sessions: Sessions, parts: Sequence[_Part], *, copies: bool
) -> Generator[MigrationStep, None, dict[str, bool]]:
    """Compare both stores and return the differences. If there are none, yield the counts.

    With `copies`, a session that differs is copied again, and reported only if it still differs.
    """
    differences, compared = dict[str, bool](), Sums()
    total = source.counts().sessions + 2 * sum(part.sent.counts.total() for part in parts)
    done = messages = 0
    for done, (head, difference) in enumerate(sessions.compare(compared, copies=copies), 1):
        messages += head.end - head.expired
        if difference is not None:
            name = f"session {head.session_id!r} ({difference})"
            differences[name] = difference != "differs"
        yield MigrationStep("verifying", done, max(done, total))
    count = done
    if target.counts().sessions != count:
        differences["sessions that only the target has"] = False
    held = {"facts": 0, "vectors": 0}
    # records come last, to detect changes during the comparison of sessions
    for part in parts:
        here, there = Sums(), Sums()
        for side, sums in ((part.source, here), (part.target, there)):
            for some in _some(summed(side, sums)):
                yield MigrationStep("verifying", done + some, max(done + some, total))
            done += sums.counts.total()
        held[part.what] += here.counts.total()
        for block in here.differing(there):
            differences[f"{part.what} of {block!r}"] = block in here.differing(part.sent)
    if compared.differing(sessions.summed()):
        differences["sessions that changed during the comparison"] = True
    if source.vector_blocks() != target.vector_blocks():
        differences["the blocks with vectors"] = True
    if not differences:
        yield MigrationStep("verifying", done, done, Migrated(count, messages, **held))
    return differences


def _some(items: Iterable[T]) -> Iterator[int]:
    """Iterate over the items. Yield their number after every 200 items, and at the end."""
    count = 0
    for count, _ in enumerate(items, 1):
        if not count % _EVERY:
            yield count
    yield count
