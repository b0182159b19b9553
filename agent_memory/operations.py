"""Operation: what those who run an application do, rather than the application.

Dead letters, sessions brought in from snapshots, blocks rebuilt under new settings, stores moved,
what is damaged put right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.limits import quoted
from agent_memory.core.receipts import Receipt
from agent_memory.core.records import Absorbed, DeadLetter, Head
from agent_memory.engine.assembly import Components
from agent_memory.engine.edit.repair import look
from agent_memory.engine.listing import UserSize, users_of
from agent_memory.engine.paging import all_heads
from agent_memory.engine.processing.absorb import check_block
from agent_memory.engine.services import Services
from agent_memory.engine.stats import Progress
from agent_memory.engine.system_records import Kind, SystemRecords
from agent_memory.engine.transfer.migrate import migrate
from agent_memory.errors import Damaged, DimensionMismatch, InvalidInput

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory

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

_TRIES = 5
"""A process with the old settings may write between the dropping and the opening."""


def dead_letters(memory: AgentMemory, block: str | None = None) -> list[DeadLetter]:
    """The messages that blocks gave up absorbing: those of one block, or of all.

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
    """Have blocks absorb their dead letters, now: those of one block, or of all.

    Returns:
        The outcome of each. One that failed again stays a dead letter.

    Raises:
        ConfigError: No absorbing block has that name.
    """
    work = memory.components.work
    return [work.retry(letter) for letter in dead_letters(memory, block)]


def damaged(memory: AgentMemory) -> list[Damaged]:
    """All that the store holds and cannot be read: reads everything, which takes its time.

    Returns:
        An error for each, which names it; its `damage` says more.
    """
    memory.components.guard.check(None, None)
    return look(memory.components.store).damaged


def repair(memory: AgentMemory, error: Damaged, *, dry_run: bool = False) -> str | None:
    """Put something right that is damaged in the store, as far as the log allows it.

    Parts of a session's head are made anew from its log; facts and vectors are absorbed again;
    what nothing can give back is deleted, and a lost message replaced by a note that it is lost.

    Args:
        memory: The memory with the damaged store.
        error: The damage, as `damaged` returned it.
        dry_run: Only say what would be done.

    Returns:
        A sentence that says what was done, or would be. None if nothing can be done here, as for
        text that cannot be decrypted.
    """
    memory.components.guard.check(None, None)
    if not isinstance(error, Damaged):
        raise InvalidInput(f"{quoted(error)} is nothing damaged. Give one of damaged(memory).")
    mending = memory.components.repair
    plan = mending.plan(error)
    if plan is not None and not dry_run:
        mending.run(error)
    return plan


def shares(memory: AgentMemory, *, agent_id: str | None = None, prefix: str = "") -> list[str]:
    """The names of the shared namespaces in which anything is granted, or was, in order: the
    registry of them. `AgentMemory.share` gives one by its name, and begins it if need be.

    Args:
        memory: Over the store.
        agent_id: Only those in which this agent has access now.
        prefix: Only those whose names begin so.
    """
    memory.components.guard.check(None, agent_id)
    grants = memory.components.grants
    found = grants.shares() if agent_id is None else grants.shares_of(agent_id)
    return [
        name
        for name in found
        if name.startswith(prefix) and (agent_id is None or grants.allows(name, agent_id, "read"))
    ]


def users(memory: AgentMemory) -> list[UserSize]:
    """All users that have a session, by id; it reads the heads of all sessions."""
    memory.components.guard.check(None, None)
    return users_of(all_heads(memory.components.store))


def verify(memory: AgentMemory, receipt: Receipt | str) -> Receipt:
    """Hold a receipt against the store as it is now: is what was deleted gone, is what was durable
    there, is it signed by this deployment. It looks through all records of the store.

    Args:
        memory: Over the store.
        receipt: The receipt of `delete`, `delete_user` or `checkpoint`, or its JSON.

    Returns:
        The receipt with what holds now of each place.

    Raises:
        InvalidInput: It is not a receipt.
    """
    memory.components.guard.check(None, None)
    given = Receipt.from_json(receipt) if isinstance(receipt, str) else receipt
    if not isinstance(given, Receipt):
        raise InvalidInput(f"{quoted(given)} is not a receipt. Give a receipt or its JSON.")
    return memory.components.receipts.verify(given)


def import_session(
    memory: AgentMemory,
    source: str | Path | TextIO | Iterable[str],
    *,
    deleted: bool = False,
) -> Head:
    """Bring a session in from its snapshot, as a whole or not at all. `Session.export` writes one.

    Nobody sees any of it before the last line was read and all of it is found to be as it was
    written. A block absorbs the log anew where its records can't be taken over, such as vectors of
    another embedding model.

    Args:
        memory: The memory that gets it.
        source: A path, a text file, or lines; read once, from the beginning to the end.
        deleted: Bring it back even if it, or its user, was deleted here since it was written.

    Returns:
        The session's head.

    Raises:
        InvalidInput: The source is none of these.
        InvalidSnapshot: It is damaged, cut short, or none; the sentence names the line.
        InvalidId: It names a session or a user that nobody can have.
        SessionExists: There is a session of its id already.
        InvalidInput: It was deleted here, and `deleted` does not say that it is wanted back.
        StoreError: The store failed. A worker erases the part that had arrived.
    """
    from agent_memory.engine.transfer.importer import lines_of
    from agent_memory.engine.transfer.reading import Reading

    guard = memory.components.guard
    guard.check(None, None)
    reading = Reading(lines_of(source, 4 * memory.config.max_message_bytes))
    guard.check(reading.head.session_id, reading.head.user_id)
    gone = memory.components.deleted
    since = gone.since(reading.head)
    if since is not None and not deleted:
        raise InvalidInput(
            f"Session {reading.head.session_id!r}, or its user, was deleted here on "
            f"{since:%Y-%m-%d %H:%M} UTC. It was left so; say deleted=True (--deleted) to bring it "
            "back."
        )
    head = memory._bring(reading)
    gone.lift(head)
    return head


def rebuild(config: AgentMemoryConfig, block: str) -> Iterator[Progress]:
    """Rebuild a block from the log under its new settings, such as another embedding model.

    As `AgentMemory.replay`, but where the stored vectors are of another model they are dropped
    first. An interrupted rebuild goes on where it stopped. Until it is done the block recalls only
    from the sessions done so far; processes that still run with the old settings recall nothing
    from it, and warn.

    In Qdrant nothing is dropped before all is absorbed: until then processes with the old settings
    recall as before, and absorb nothing. If a session could not be absorbed, this lasts until
    another call comes to an end.

    Args:
        config: The new settings.
        block: Name of the block.

    Yields:
        Progress after each session.

    Raises:
        ConfigError: No absorbing block has that name.
    """
    known = [one.name for one in config.all_blocks if one.absorbs]
    check_block(block, known)
    components, beside = _opened(config, block)
    with closing(components):
        step = Progress(block, "", 0, 0, None)
        for step in components.replay.run(block):
            yield step
        failed = _left(components, block, config.absorb_attempts) if beside else None
        if failed is not None:
            session_id, error = failed
            yield replace(step, session_id=session_id, error=error)
            return
        components.blocks[block].rebuilt()


def _opened(config: AgentMemoryConfig, name: str) -> tuple[Components, bool]:
    """The parts with this block alone: others may have to be rebuilt too, each in its turn.

    And whether what it had is in force until it is rebuilt.
    """
    for _ in range(_TRIES):
        try:
            return _begin_rebuild(Components(config, name), name)
        except DimensionMismatch:
            _drop_vectors(config, name)
    return _begin_rebuild(Components(config, name), name)


def _begin_rebuild(components: Components, name: str) -> tuple[Components, bool]:
    try:
        return components, components.blocks[name].rebuilding()
    except BaseException:
        components.close()
        raise


def _drop_vectors(config: AgentMemoryConfig, name: str) -> None:
    services = Services(config)
    resources = services.resources
    with closing(services):
        for block in config.all_blocks:
            if block.name == name:
                # noted first: whoever replays after a crash must not leave sessions out
                SystemRecords(resources.store).write(Kind.REPLAYS, name, after=None, done=0)
                block.clear(resources)


def _left(components: Components, block: str, attempts: int) -> tuple[str, str] | None:
    """Have the block absorb what the replay could not; tells of a session that still waits.

    Not by what this replay met: it may have gone on where another stopped. Messages that the block
    can't absorb are given up after so many attempts, and hold nothing up.
    """
    for head in all_heads(components.store):
        session_id = head.session_id
        error = components.work.absorb(session_id, block) if head.lag(block) else None
        for _ in range(attempts if error else 0):
            error = error and components.work.absorb(session_id, block)
        if error:
            return session_id, error
    return None
