"""Putting the parts of a memory together, from its configuration."""

from __future__ import annotations

from dataclasses import dataclass

from agent_memory.config.settings import AgentMemoryConfig, Retention
from agent_memory.core.context import BlockInfo, Packer
from agent_memory.engine.edit.deletion import Deletion
from agent_memory.engine.edit.forgetting import Forgetting
from agent_memory.engine.edit.redacting import Redaction
from agent_memory.engine.edit.rewinding import Rewinding
from agent_memory.engine.edit.undoing import Undo
from agent_memory.engine.gate import Gate
from agent_memory.engine.leases import Leases
from agent_memory.engine.processing.absorbing import Absorber
from agent_memory.engine.processing.failures import Failures
from agent_memory.engine.processing.overflow import Overflow
from agent_memory.engine.processing.preparing import Preparation
from agent_memory.engine.processing.replaying import Replay
from agent_memory.engine.processing.retaining import Retaining
from agent_memory.engine.processing.tending import Tender
from agent_memory.engine.processing.worker import Told, Worker
from agent_memory.engine.recall.recalling import Recaller
from agent_memory.engine.services import Services
from agent_memory.engine.sharing.authorship import Authors
from agent_memory.engine.sharing.grants import Grants
from agent_memory.engine.system_records import Notes
from agent_memory.engine.windows import Windows
from agent_memory.ltm_blocks.base import Block, KeepingBlock, NoteBlock
from agent_memory.stores.base import Store


@dataclass(frozen=True, slots=True)
class Parts:
    """What an `AgentMemory` delegates to, by the name of the job."""

    services: Services
    store: Store
    blocks: dict[str, Block]
    notebook: NoteBlock
    notes: Notes
    grants: Grants
    authors: Authors
    leases: Leases
    failures: Failures
    absorber: Absorber
    gate: Gate
    windows: Windows
    overflow: Overflow
    deletion: Deletion
    tender: Tender
    recaller: Recaller
    searcher: Recaller
    replay: Replay
    retention: Retention
    rewinding: Rewinding
    undo: Undo
    packer: Packer

    def worker(self, threads: int, told: Told | None = None) -> Worker:
        """A worker over this store, not started; see `Worker`."""
        jobs = list(self.absorber.blocks)
        if self.retention != "forever":
            jobs.append(f"_retention {self.retention}")  # no block's name begins so
        prepare = Preparation(self.store, self.notes, self.deletion, jobs).prepare
        return Worker(self.store, self.tender, prepare, threads, told)

    def close(self) -> None:
        """Release connections."""
        for block in self.blocks.values():
            block.close()
        self.services.close()


def assemble(config: AgentMemoryConfig, only: str | None = None) -> Parts:
    """Open the store, bind the blocks, and wire the parts.

    Args:
        config: The settings.
        only: Name of a block, to leave the others out.

    Raises:
        ConfigError: A block cannot work with these settings; nothing stays open.
        StoreError: The store cannot be opened.
    """
    services = Services(config)
    resources = services.resources
    store = resources.store
    bound: dict[str, Block] = {}
    try:
        for block in config.all_blocks:
            if only in (None, block.name):
                bound[block.name] = block.bind(resources)
        grants = Grants(store)
        grants.begin(config.shares)
    except BaseException:
        for block in bound.values():
            block.close()
        services.close()
        raise
    blocks, strategy = list(bound.values()), config.strategy
    notes, leases = Notes(store), Leases(store)
    failures, forgetting = Failures(store, config.absorb_attempts), Forgetting(store)
    absorber = Absorber(store, failures, blocks, config.absorb_timeout)
    recall_tokens = config.max_recall_tokens if blocks else 0
    windows = Windows(store)
    overflow = Overflow(
        store, windows, strategy, resources, config.max_tokens, recall_tokens, config.max_messages
    )
    retaining = Retaining(store, windows, failures, list(absorber.blocks), config.retention)
    note_block = config.note_block
    there = bound.get(note_block.name)
    notebook = there if isinstance(there, NoteBlock) else note_block.bind(resources)
    everything = {**bound, notebook.name: notebook}.values()
    keepers = [block for block in everything if isinstance(block, KeepingBlock)]
    searched = [block for block in everything if block.searched]
    authors = Authors(store)
    rewinding = Rewinding(store, absorber, failures)
    redaction = Redaction(store, leases, rewinding, failures, grants, authors, windows)
    deletion = Deletion(
        store, leases, absorber, keepers, failures, forgetting, notes, windows, redaction
    )
    return Parts(
        services=services,
        store=store,
        blocks=bound,
        notebook=notebook,
        notes=notes,
        grants=grants,
        authors=authors,
        leases=leases,
        failures=failures,
        absorber=absorber,
        gate=Gate(closed=not store.remote),
        windows=windows,
        overflow=overflow,
        deletion=deletion,
        tender=Tender(
            store,
            leases,
            overflow,
            absorber,
            deletion,
            retaining,
            strategy.absorbs,
            config.idle_minutes,
        ),
        recaller=Recaller(blocks, config.recall_timeout),
        searcher=Recaller(searched, config.recall_timeout),
        replay=Replay(store, leases, absorber, notes),
        retention=config.retention,
        rewinding=rewinding,
        undo=Undo(store, leases, rewinding, failures, forgetting, overflow),
        packer=Packer(
            resources.counter,
            config.max_tokens,
            config.max_recall_tokens,
            config.memory_role,
            {block.name: BlockInfo(block.kind, block.max_tokens) for block in blocks},
            config.max_messages,
        ),
    )
