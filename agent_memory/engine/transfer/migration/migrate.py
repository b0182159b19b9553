"""Moving a deployment from one database to another: resumable, and verified at its end."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from agent_memory.core.reserved import NOTES
from agent_memory.engine.leases import Locks
from agent_memory.engine.system_records import Kind, SystemRecords
from agent_memory.engine.transfer.migration.moving import compare, move
from agent_memory.engine.transfer.migration.steps import MigrationStep
from agent_memory.errors import InvalidInput
from agent_memory.stores import check_url, open_store
from agent_memory.stores.base import Store
from agent_memory.stores.seals import seals_segments

if TYPE_CHECKING:
    from agent_memory.stores.encrypted.keys import Keys

_SQLITE = "sqlite:///"

UNFINISHED = (
    "A migration into this store is under way, or stopped half-way: use the former store until "
    "`agent-memory migrate FROM_URL TO_URL`, given again, comes to its end."
)
"""What to tell of a store that `is_unfinished`."""


def migrate(
    from_url: str, to_url: str, *, namespace: str = "default", keys: Keys | None = None
) -> Generator[MigrationStep]:
    """Move all sessions, facts and vectors of a namespace to another database.

    The source is only read. The target must hold nothing in the namespace, or be what an
    interrupted migration from this very source left: then it goes on from there. At its end both
    are read once more and compared, by counts and checksums. A target that holds all of it already,
    and nothing else, is only compared. What is encrypted stays so. Only what records beside vectors
    are found by is opened on the way, which takes the keys.

    Nobody should write to the source meanwhile; if somebody does, the end tells, and another call
    brings the rest. Nobody may use the target before the end: until then all that the source does
    not have is removed from it.

    Args:
        from_url: Where the memory is; see `AgentMemoryConfig.store`.
        to_url: Where it is to be.
        namespace: What is moved, and where to.
        keys: Of an encrypted deployment.

    Yields:
        Progress; the last step holds what was moved and verified.

    Raises:
        InvalidInput: There is nothing to move, or the target holds something else.
        Undecryptable: Something is encrypted that takes the keys.
        StoreError: The two are not the same at the end, or one of them failed; the same call again
            goes on.
    """
    for url in (from_url, to_url):
        check_url(url)
        if url.startswith("memory:"):
            raise InvalidInput("What is in memory:// is gone with its process: it can't be moved.")
    if origin_of(from_url) == origin_of(to_url):
        raise InvalidInput("The source and the target are the same database. Name another target.")
    if from_url.startswith(_SQLITE) and not Path(from_url.removeprefix(_SQLITE)).exists():
        raise InvalidInput(f"There is no file {from_url.removeprefix(_SQLITE)!r} to move from.")
    with (
        closing(open_store(from_url, namespace)) as source,
        closing(open_store(to_url, namespace)) as target,
    ):
        for store in (source, target):
            if keys is not None and seals_segments(store):
                from agent_memory.stores.encrypted.vectors import RecordSeals

                store.seal_segments(RecordSeals(keys, namespace, False).of_segments)
        yield from migrate_stores(source, target, origin_of(from_url))


def migrate_stores(source: Store, target: Store, origin: str) -> Generator[MigrationStep]:
    """As `migrate`, between open stores.

    Args:
        source: What is moved. It is only read.
        target: Where to.
        origin: Names the source, so that an interrupted migration is known again.
    """
    with Locks(target).held(Kind.MIGRATION.value):
        records = SystemRecords(target)
        noted = records.read(Kind.MIGRATION)
        held = [] if noted else _held(target)
        if held and not is_unfinished(source):
            moved = yield from compare(source, target)
            if moved is not None:  # by a run that was stopped before it could say so
                yield MigrationStep("verifying", moved.sessions, moved.sessions, moved)
                return
        _check(source, held, origin, noted)
        removed = noted.get(origin, {}).get("removed", False)
        records.write(Kind.MIGRATION, origin, removed=removed)

        def removing() -> None:
            nonlocal removed
            if not removed:
                removed = True
                records.write(Kind.MIGRATION, origin, removed=True)

        for step in move(source, target, removing, resumed=bool(noted)):
            if step.verified is not None:
                if removed:
                    target.secure_erase()
                records.drop(Kind.MIGRATION, origin)
            yield step


def is_unfinished(store: Store) -> bool:
    """Whether a migration into a store has begun and has not come to its end."""
    return bool(SystemRecords(store).read(Kind.MIGRATION))


def origin_of(url: str) -> str:
    """What a source is known by: a digest of its address, without names and passwords."""
    if url.startswith(_SQLITE):
        place = str(Path(url.removeprefix(_SQLITE)).resolve())
    else:
        parts = urlsplit(url)
        options = [pair for pair in parse_qsl(parts.query) if "pass" not in pair[0].lower()]
        place = repr((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, sorted(options)))
    return hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()


def _check(source: Store, held: Sequence[str], origin: str, noted: Collection[str]) -> None:
    """Refuse what would mix two deployments.

    Raises:
        InvalidInput: There is nothing to move, or something else in the target.
    """
    if is_unfinished(source):
        raise InvalidInput(
            "The source is itself the target of a migration that has not come to its end: finish "
            "that one first."
        )
    if origin in noted:
        return
    if noted:
        raise InvalidInput(
            "A migration from another source into this target has begun and not come to its end. "
            "Go on with that one, or name an empty target."
        )
    if held:
        raise InvalidInput(
            f"The target holds something in this namespace already: {', '.join(held)}. Name an "
            "empty database, or another namespace."
        )
    if not _held(source):
        raise InvalidInput(
            "There is nothing to move in this namespace of the source. If its memory has another "
            "`namespace`, name that."
        )


def _held(store: Store) -> list[str]:
    """What a store holds, beside notes of the engine and names of blocks."""
    counts = store.counts()
    found = [f"{counts.sessions} sessions"] if counts.sessions else []
    kept = next((block for block, _ in store.all_records() if block != NOTES.name), None)
    found += [] if kept is None else [f"facts of {kept!r}"]
    blocks = sorted(store.vector_blocks())
    return found + [f"vectors of {name!r}" for name in blocks if any(store.all_vectors(name))]
