"""Calls for operators: dead letters, damage, receipts, imports, migrations, and rebuilds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TextIO

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.limits import quoted
from agent_memory.core.receipts import Receipt
from agent_memory.core.records import Absorbed, DeadLetter, Head, Scope
from agent_memory.core.system_collections import VALUES
from agent_memory.engine.assembly import Components, Services
from agent_memory.engine.edit.repair import look
from agent_memory.engine.listing import UserSize, users_of
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.paging import all_heads
from agent_memory.engine.processing.absorb import check_block
from agent_memory.engine.processing.session_work import replay
from agent_memory.engine.stats import Progress
from agent_memory.engine.system_records import Kind, SystemRecords
from agent_memory.engine.transfer.migrate import migrate
from agent_memory.errors import Damaged, DimensionMismatch, InvalidInput
from agent_memory.ltm_blocks.registry import registered

__all__ = [
    "damaged",
    "dead_letters",
    "import_session",
    "migrate",
    "rebuild",
    "repair",
    "retry",
    "shares",
    "users",
    "verify",
]


def dead_letters(memory: AgentMemory, block: str | None = None) -> list[DeadLetter]:
    """Return the dead letters of one block, or of all blocks.

    A dead letter is a range of messages that a block could not absorb in several attempts.

    Raises:
        ConfigError: No absorbing block has that name.
    """
    components = memory.components
    components.guard.check(None, None)
    if block is not None:
        check_block(block, components.absorber.blocks)
    names = [block] if block is not None else list(components.absorber.blocks)
    return [letter for name in names for letter in components.dead_letters.dead(name)]


def retry(memory: AgentMemory, block: str | None = None) -> list[Absorbed]:
    """Let one block, or all blocks, absorb their dead letters now.

    Returns:
        The result for each dead letter. If messages fail again, they stay a dead letter.

    Raises:
        ConfigError: No absorbing block has that name.
    """
    work = memory.components.work
    return [work.retry(letter) for letter in dead_letters(memory, block)]


def damaged(memory: AgentMemory) -> list[Damaged]:
    """Return an error for each unreadable record.

    The call reads the whole store, which may take long.
    """
    memory.components.guard.check(None, None)
    return look(memory.components.store).damaged


def repair(memory: AgentMemory, error: Damaged, *, dry_run: bool = False) -> str | None:
    """Repair a damaged record, as far as the log allows it.

    A session's head is restored from its log. If the session's owner or end is lost, the session is
    deleted. Blocks derive lost facts and vectors from the log again. A placeholder
    text replaces a lost message. Other records that cannot be derived again are deleted.

    Args:
        memory: The memory with the damaged store.
        error: The damage, as `damaged` returned it.
        dry_run: Whether to only describe the repair.

    Returns:
        A sentence that describes the repair. None if no repair is possible, for example
        because a text cannot be decrypted.
    """
    memory.components.guard.check(None, None)
    if not isinstance(error, Damaged):
        raise InvalidInput(
            f"{quoted(error)} is not a Damaged error. Pass one from damaged(memory)."
        )
    plan = memory.components.repair.plan(error)
    if plan is None:
        return None
    text, run = plan
    if not dry_run:
        run()
    return text


def shares(memory: AgentMemory, *, agent_id: str | None = None, prefix: str = "") -> list[str]:
    """Return the names of the shared namespaces with past or current grants, sorted.

    Args:
        memory: A memory over the store.
        agent_id: Only namespaces to which this agent has access now.
        prefix: Only names with this prefix.
    """
    memory.components.guard.check(None, agent_id)
    grants = memory.components.grants
    names = grants.shares() if agent_id is None else grants.shares_of(agent_id)
    return [
        name
        for name in names
        if name.startswith(prefix) and (agent_id is None or grants.allows(name, agent_id, "read"))
    ]


def users(memory: AgentMemory) -> list[UserSize]:
    """Return all users by id, except those who have only skills. Reads all sessions' heads."""
    memory.components.guard.check(None, None)
    store = memory.components.store
    places, begin = {*registered(store), VALUES.name}, Scope("").owner
    owners = [owner for place in places for owner in store.owners(place, begin)]
    return users_of(all_heads(store), owners)


def verify(memory: AgentMemory, receipt: Receipt | str) -> Receipt:
    """Check the signature of a receipt, and compare its deletions or its checkpoint with the store.

    The call reads all records of the store.

    Args:
        memory: A memory over the store.
        receipt: The receipt of `delete`, `delete_user` or `checkpoint`, or its JSON.

    Returns:
        The receipt with the current state of each place.

    Raises:
        InvalidInput: `receipt` is not a receipt.
    """
    memory.components.guard.check(None, None)
    if isinstance(receipt, str):
        receipt = Receipt.from_json(receipt)
    if not isinstance(receipt, Receipt):
        raise InvalidInput(f"{quoted(receipt)} is not a receipt. Give a receipt or its JSON.")
    return memory.components.receipts.verify(receipt)


def import_session(
    memory: AgentMemory, source: str | Path | TextIO | Iterable[str], *, deleted: bool = False
) -> Head:
    """Import a session from a snapshot of `Session.export`.

    The session is visible only after the last line was read and the snapshot was verified. After an
    error, nothing is imported. If a block's records cannot be imported, for example vectors of
    another embedding model, the block absorbs the log again.

    Args:
        memory: The memory to import into.
        source: A path, a text file, or lines, which are read once.
        deleted: Whether to import the session even if the session or its user was deleted here
            after the session began.

    Returns:
        The session's head.

    Raises:
        InvalidInput: `source` is of another type, or the session was deleted here.
        InvalidSnapshot: The snapshot is damaged or incomplete.
        InvalidId: The id of the session or of its user is invalid.
        SessionExists: A session with this id exists.
        StoreError: The store failed. A worker erases the partial session.
    """
    from agent_memory.engine.transfer.reading import Reading
    from agent_memory.engine.transfer.snapshot import lines_of

    guard = memory.components.guard
    guard.check(None, None)
    reading = Reading(lines_of(source, 4 * memory.config.max_message_bytes))
    guard.check(reading.head.session_id, reading.head.user_id)
    gone = memory.components.deleted
    since = gone.since(reading.head)
    if since is not None and not deleted:
        raise InvalidInput(
            f"Session {reading.head.session_id!r} or its user was deleted here on "
            f"{since:%Y-%m-%d %H:%M} UTC. To import it again, set deleted=True (--deleted)."
        )
    head = memory._bring(reading)
    gone.lift(head)
    return head


def rebuild(config: AgentMemoryConfig, block: str) -> Iterator[Progress]:
    """Rebuild a block from the log with new settings, such as another embedding model.

    The call does the same as `AgentMemory.replay`, but first deletes stored vectors of another
    model. After an interruption, call `rebuild` again to continue. Until the rebuild ends, the
    block recalls only from sessions that are already rebuilt. Before the rebuild, stop all
    processes with the old settings: their recalls from this block would be wrong or missing.

    Args:
        config: The new settings.
        block: Name of the block.

    Yields:
        The progress after each session.

    Raises:
        ConfigError: No absorbing block has that name.
    """
    absorbing = [item.name for item in config.all_blocks if item.absorbs]
    check_block(block, absorbing)
    components = _opened(config, block)
    with closing(components):
        yield from replay(components, block)


def _opened(config: AgentMemoryConfig, name: str) -> Components:
    """Return the components with this block only. Delete stored vectors of another model."""
    try:
        return Components(config, name)
    except DimensionMismatch:
        services = Services(config)
    resources = services.resources
    with closing(services):
        for block in config.all_blocks:
            if block.name == name:
                # written before `clear`: after a crash, the replay begins with the first session
                SystemRecords(resources.store).write(Kind.REPLAYS, name, after=None, done=0)
                block.clear(resources)
    return Components(config, name)
