"""Migration from one database to another: resumable, and verified at its end."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, urlsplit

from agent_memory.core.system_collections import NOTES
from agent_memory.engine.leases import Locks
from agent_memory.engine.system_records import Kind, SystemRecords
from agent_memory.engine.transfer.mirror import Sums, carried_heads, mirror, parts_of
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
_SQLITE = "sqlite:///"

UNFINISHED = (
    "A migration into this store is running or was interrupted. Use the source of the migration, "
    "and run `agent-memory migrate FROM_URL TO_URL` again until it has finished."
)
"""The message for a store for which `is_unfinished` returns True."""


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
        same = source.counts().sessions == target.counts().sessions
        if held and same and not is_unfinished(source):
            differences = yield from _compared(source, target, Sums())
            if not differences:  # for example after an earlier migration
                return
        _check(source, held, origin, noted)
        records.write(Kind.MIGRATION, origin)
        for step in move(source, target):
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


def move(source: Store, target: Store) -> Iterator[MigrationStep]:
    """Make the target equal to the source. The source is not changed.

    If the comparison finds differences, the differing items are copied once more.
    """
    differences: Mapping[str, bool] = {}
    for _ in range(_ROUNDS):
        blocks = source.vector_blocks()
        for block, embedding in target.vector_blocks().items():
            if blocks.get(block) != embedding:
                target.clear_vectors(block)
        for block, (dimension, model) in blocks.items():
            target.open_vectors(block, dimension, model)
        total, sent, done = source.counts().sessions, Sums(), Counter[str]()
        pairs = zip(parts_of(source, source, blocks), parts_of(target, source, blocks), strict=True)
        for here, there in pairs:
            for count in mirror(here, there, sent):
                done[here.what] += count
                known = max(done["sessions"], total) if here.what == "sessions" else None
                yield MigrationStep(here.what, done[here.what], known)
        differences = yield from _compared(source, target, sent)
        if not differences:
            return
    raise StoreError(_sentence(differences))


def _compared(
    source: Store, target: Store, sent: Sums
) -> Generator[MigrationStep, None, dict[str, bool]]:
    """Compare both stores and return the differences. If there are none, yield the counts.

    Each value says whether the source has changed since its items in `sent` were copied.
    """
    blocks, total = source.vector_blocks(), 2 * sent.counts.total()
    states, here, there = _states(source), Sums(), Sums()
    held, done = Counter[str](), 0
    # the source comes last, its records after its sessions, to detect changes of the source
    for store, sums in ((target, there), (source, here)):
        for part in reversed(parts_of(store, source, blocks)):
            for page in part.pages(sums):
                done += len(page)
                if store is source:
                    held[part.what] += len(page)
                if store is source and part.what == "sessions":
                    held["messages"] += sum(each.value.end - each.value.expired for each in page)
                yield MigrationStep("verifying", done, max(done, total))
    changed = here.differing(sent)
    differences = {name: name in changed for name in here.differing(there)}
    if states != _states(source):
        differences["sessions that changed during the comparison"] = True
    if source.vector_blocks() != target.vector_blocks():
        differences["the blocks with vectors"] = True
    if not differences:
        counts = (held[what] for what in ("sessions", "messages", "facts", "vectors"))
        yield MigrationStep("verifying", done, done, Migrated(*counts))
    return differences


def _states(source: Store) -> set[int]:
    """Return a hash of each session's state, which changes with every write."""
    heads = carried_heads(source)
    return {hash((head.session_id, head.created_at, head.version, head.end)) for head in heads}


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
