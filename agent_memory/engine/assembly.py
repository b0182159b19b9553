"""Assembly of a memory's parts from its configuration."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from agent_memory.config.settings import NOTES, AgentMemoryConfig
from agent_memory.core.context import BlockInfo
from agent_memory.core.limits import text_of
from agent_memory.core.packing import Packer
from agent_memory.core.plugins import find_kind
from agent_memory.core.receipts import Part
from agent_memory.core.records import Head, Scope
from agent_memory.engine.edit.delete import Deletion
from agent_memory.engine.edit.edit import Editor
from agent_memory.engine.edit.receipts import Deleted, Receipts
from agent_memory.engine.edit.repair import Repair
from agent_memory.engine.guard import Guard
from agent_memory.engine.leases import Leases
from agent_memory.engine.paging import all_heads
from agent_memory.engine.pins import Pins
from agent_memory.engine.processing.absorb import BATCH_TOKENS, Absorber
from agent_memory.engine.processing.compaction import Compaction
from agent_memory.engine.processing.failures import DeadLetters
from agent_memory.engine.processing.heartbeats import Backlog, Heartbeats
from agent_memory.engine.processing.replay import Replay
from agent_memory.engine.processing.retention import Retention
from agent_memory.engine.processing.session_work import SessionWork
from agent_memory.engine.processing.worker import Housekeeping, OnDone, Worker
from agent_memory.engine.reading import MessagePages
from agent_memory.engine.recall.contexts import Contexts
from agent_memory.engine.recall.fan_out import FanOut
from agent_memory.engine.recall.merged_search import LogBlock, Search
from agent_memory.engine.recall.prompt_log import Recalls, SentContexts
from agent_memory.engine.services import Services, warm_up
from agent_memory.engine.sharing.authorship import Authors
from agent_memory.engine.sharing.shares import Grants, Redaction
from agent_memory.engine.stats import BlockStats, Counted, Stats
from agent_memory.engine.system_records import SystemRecords
from agent_memory.engine.values.key_values import KeyValues, Values
from agent_memory.engine.windows import Windows
from agent_memory.errors import ConfigError
from agent_memory.ltm_blocks.base import Block, FactBlock, ManualBlock, NoteBlock
from agent_memory.ltm_blocks.registry import Tombstones, register_elsewhere
from agent_memory.models.embedders import is_remote
from agent_memory.stores.base import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Components:
    """The parts of an `AgentMemory`."""

    guard: Guard
    contexts: Contexts
    sent: SentContexts
    search: Search
    pages: MessagePages
    services: Services
    store: Store
    blocks: dict[str, Block]
    default_notes: NoteBlock
    records: SystemRecords
    signs: Heartbeats
    recalls: Recalls
    grants: Grants
    authors: Authors
    leases: Leases
    dead_letters: DeadLetters
    absorber: Absorber
    windows: Windows
    compaction: Compaction
    deletion: Deletion
    work: SessionWork
    replay: Replay
    retention: Retention
    editor: Editor
    redaction: Redaction
    deleted: Deleted
    receipts: Receipts
    values: Values
    pins: Pins
    lacking_models: dict[str, str]
    """The warning for each block that absorbs nothing because it has no model."""

    @property
    def all_blocks(self) -> dict[str, Block]:
        """The configured blocks by name, and the block of notes, which always exists."""
        return {**self.blocks, self.default_notes.name: self.default_notes}

    def block(self, kind: str) -> Block:
        """Return the first block of a kind, or else the block with that name.

        For the kind "notes", return the block that stores notes, whatever its kind.

        Raises:
            ConfigError: There is no such block.
        """
        text_of("kind", kind)
        if kind == NOTES:
            return self.default_notes
        blocks = self.all_blocks
        for block in blocks.values():
            if block.kind == kind:
                return block
        if kind in blocks:
            return blocks[kind]
        raise _lacking(kind)

    @property
    def fact_blocks(self) -> list[FactBlock]:
        """The configured blocks that store facts."""
        return [block for block in self.blocks.values() if isinstance(block, FactBlock)]

    def needed_fact_blocks(self) -> list[FactBlock]:
        """Return the configured blocks that store facts.

        Raises:
            ConfigError: There is none.
        """
        if not self.fact_blocks:
            raise _lacking("extractive")
        return self.fact_blocks

    def stats(self) -> Stats:
        """Return the statistics. See `AgentMemory.stats`."""
        counts, absorbing = self.store.counts(), self.absorber.blocks
        letters = self.dead_letters
        errors = {**self.absorber.failures.of_blocks(now=True), **self.lacking_models}
        lags: Counter[str] = Counter()
        for head in all_heads(self.store):
            lags.update({name: head.lag(name) for name in absorbing})
        blocks = {
            name: BlockStats(lags[name], errors.get(name), len(letters.dead(name)))
            for name in absorbing
        }
        ledger, today, counted = (
            self.services.ledger,
            self.services.spending.today(),
            self.counted(),
        )
        return Stats(
            counts.sessions,
            counts.entries,
            blocks,
            ledger.snapshot(),
            counted.prompts,
            counted.usage,
            today,
            counted.recalls,
        )

    def counted(self) -> Counted:
        """Return the metrics of this process, without a store call."""
        usage, prompts = self.services.ledger.by_purpose(), self.contexts.prompts.snapshot()
        return Counted(usage, prompts, self.recalls.snapshot())

    @property
    def repair(self) -> Repair:
        """The repair of damaged records in the store."""
        return Repair(self.store, self.leases, self.absorber, self.deletion, self.windows)

    def worker(self, threads: int, on_done: OnDone | None = None, *, polls: bool = True) -> Worker:
        """Return a worker for this store that is not started yet. See `Worker`."""
        jobs = list(self.absorber.blocks)
        jobs += [job for job in (self.retention.job, self.services.spending.job) if job]
        resume, beat = self.deletion.resume, self.signs.beat
        housekeeping = Housekeeping(self.store, self.records, resume, beat, jobs)
        return Worker(self.store, self.work, housekeeping.run, threads, on_done, polls)

    def warm_up(self, config: AgentMemoryConfig, scope: Scope | None = None) -> None:
        """Load slow parts in advance. See `OpenMemory.warm_up`."""
        asks_models = config.model or config.language_models or is_remote(config.embedding)
        counter = self.services.resources.counter
        blocks = self.all_blocks.values()
        warm_up(
            counter,
            blocks,
            asks_models=bool(asks_models),
            scope=scope,
            closed=lambda: self.guard.closed,
        )

    def close(self) -> None:
        """Release connections."""
        for block in self.blocks.values():
            block.close()
        self.services.close()


def _lacking(kind: str) -> ConfigError:
    wanted = find_kind("agent_memory.ltm_blocks", kind).__name__
    return ConfigError(f"No {wanted} is configured. Add one: AgentMemory(blocks=[{wanted}(...)]).")


def assemble(config: AgentMemoryConfig, only: str | None = None) -> Components:
    """Open the store, bind the blocks, and connect the parts.

    Args:
        config: The settings.
        only: The name of the only block to bind. None for all.

    Raises:
        ConfigError: A block cannot work with these settings. Nothing stays open.
        StoreError: The store cannot be opened.
    """
    services = Services(config)
    resources = services.resources
    store = resources.store
    bound: dict[str, Block] = {}
    with ExitStack() as opened:  # if a step fails, nothing stays open
        opened.callback(services.close)
        for block in config.all_blocks:
            if only in (None, block.name):
                bound[block.name] = bound_block = block.bind(resources)
                opened.callback(bound_block.close)
        grants = Grants(store)
        grants.begin(config.shares)
        opened.pop_all()
    blocks, strategy = list(bound.values()), config.strategy
    records, leases = SystemRecords(store), Leases(store)
    signs, recalls = Heartbeats(records), Recalls()
    dead_letters, tombstones = DeadLetters(store, config.absorb_attempts), Tombstones(store)
    windows, cache = Windows(store), Values(len)
    absorber = Absorber(
        store,
        dead_letters,
        blocks,
        config.absorb_timeout,
        config.recall_timeout,
        prepares=not services.spending.is_by_user,
        store_id=config.namespace,
        absorbed=signs.absorbed,
        moved=windows.moved,
    )
    recall_tokens = config.recall_tokens if blocks else 0

    def values(scope: Scope, of_session: bool) -> KeyValues:
        embedder = partial(resources.embedders, None)
        return KeyValues(store, scope, embedder, cache, of_session=of_session)

    pins = Pins(store, windows, values)
    spending = services.spending
    compaction = Compaction(
        store,
        windows,
        strategy,
        resources,
        config.max_tokens,
        recall_tokens,
        config.max_messages,
        spending.unaffordable,
        pins.held,
    )
    deleted = Deleted(store)
    sent = SentContexts(store, deleted.since, on=config.keep_contexts)
    retention = Retention(
        store, windows, dead_letters, list(absorber.blocks), sent.expire, config.retention
    )
    note_block = config.note_block
    there = bound.get(note_block.name)
    default_notes = there if isinstance(there, NoteBlock) else note_block.bind(resources)
    everything = list({**bound, default_notes.name: default_notes}.values())
    elsewhere = [block.name for block in everything if block.store is not None]
    for name in elsewhere:
        register_elsewhere(store, name)
    manual_blocks = [block for block in everything if isinstance(block, ManualBlock)]
    searched = [block for block in everything if block.searched]
    eager = [block.name for block in blocks if block.recalls_pending]
    backlog = Backlog(eager)
    resources.pending.on_many = backlog.note
    recalling = everything[:] if blocks else []
    if not eager:
        log = LogBlock(behind=tuple(absorber.blocks)).bind(resources)
        searched.append(log)
        recalling += [log] if absorber.blocks else []
    guard, authors = Guard(store), Authors(store)
    packer = Packer(
        resources.counter,
        config.max_tokens,
        config.recall_tokens,
        config.memory_role,
        {
            block.name: BlockInfo(block.kind, block.max_tokens, block.selective)
            for block in recalling
        },
        config.max_messages,
        strategy.share,
        strategy.summary_tokens,
        cuts=config.min_relevance > 0,
    )
    recaller = FanOut(config.recall_timeout, blocks=recalling, store_id=config.namespace)
    searcher = FanOut(config.recall_timeout, blocks=searched, store_id=config.namespace)

    lacking = {name: one for name, one in config.lacking_models.items() if name in bound}
    for message in lacking.values():
        logger.warning("%s", message)

    def troubles(head: Head | None) -> list[str]:
        failing = absorber.failures.troubles(besides=lacking)
        reached = spending.reached(None if head is None else head.user_id)
        message = [] if reached is None else [reached]
        return [*lacking.values(), *failing, *message, *compaction.troubles(head)]

    editor = Editor(store, leases, absorber, dead_letters, tombstones, windows, sent)
    redaction = Redaction(store, editor, grants, authors)
    deletion = Deletion(
        store,
        leases,
        absorber,
        manual_blocks,
        tombstones,
        records,
        windows,
        redaction,
        deleted,
    )
    work = SessionWork(
        store,
        leases,
        compaction,
        absorber,
        retention,
        deletion.finish,
        strategy.absorbs,
        config.idle_minutes,
        backlog,
        windows.of,
        [block.name for block in blocks if block.language_models],
        config.quiet_seconds,
        min(BATCH_TOKENS, config.max_tokens // 2),
    )
    return Components(
        guard=guard,
        contexts=Contexts(
            guard,
            store,
            windows,
            packer,
            recaller,
            troubles,
            resources.pending,
            sent,
            recalls,
            pins.of,
            compaction.cleared,
        ),
        sent=sent,
        search=Search(guard, store, resources.counter, searcher, recalls),
        pages=MessagePages(store, resources.counter, config.max_tokens),
        services=services,
        store=store,
        blocks=bound,
        default_notes=default_notes,
        records=records,
        signs=signs,
        recalls=recalls,
        grants=grants,
        authors=authors,
        leases=leases,
        dead_letters=dead_letters,
        absorber=absorber,
        windows=windows,
        compaction=compaction,
        deletion=deletion,
        work=work,
        replay=Replay(store, work, records),
        retention=retention,
        editor=editor,
        redaction=redaction,
        deleted=deleted,
        receipts=Receipts(
            store,
            config.namespace,
            services.keys,
            _out_of_reach(config),
            config.store == "memory://",
            elsewhere,
        ),
        values=cache,
        pins=pins,
        lacking_models=lacking,
    )


def _out_of_reach(config: AgentMemoryConfig) -> list[Part]:
    """Return the places that no deletion reaches: providers that received texts."""
    embedders = [config.embedding] if config.embedding and is_remote(config.embedding) else []
    models = sorted({*config.language_models, *embedders})
    note = "The provider decides how long it stores the texts that it received."
    return [Part(f"model {name!r}", "not supported", note) for name in models]
