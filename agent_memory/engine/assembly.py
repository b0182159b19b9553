"""Assembly of a memory's parts from its configuration."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from agent_memory.config.settings import NOTES
from agent_memory.core.context import without_context
from agent_memory.core.limits import text_of
from agent_memory.core.plugins import find_kind
from agent_memory.core.threads import apart
from agent_memory.engine.guard import Guard
from agent_memory.engine.later import made_later
from agent_memory.engine.leases import Leases
from agent_memory.engine.paging import all_heads
from agent_memory.engine.processing.absorb import BATCH_TOKENS, Absorber
from agent_memory.engine.processing.compaction import Compaction
from agent_memory.engine.processing.failures import DeadLetters
from agent_memory.engine.processing.heartbeats import Backlog, Heartbeats
from agent_memory.engine.processing.retention import Retention
from agent_memory.engine.processing.session_work import SessionWork
from agent_memory.engine.processing.worker import Housekeeping, Worker
from agent_memory.engine.services import Services
from agent_memory.engine.system_records import SystemRecords
from agent_memory.engine.windows import Windows
from agent_memory.errors import ConfigError
from agent_memory.ltm_blocks.base import Block, FactBlock, ManualBlock, NoteBlock
from agent_memory.models.embedders import is_remote
from agent_memory.models.loading import load_litellm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.core.receipts import Part
    from agent_memory.core.records import Head, Scope
    from agent_memory.engine.edit.delete import Deletion
    from agent_memory.engine.edit.edit import Editor
    from agent_memory.engine.edit.receipts import Deleted, Receipts
    from agent_memory.engine.edit.repair import Repair
    from agent_memory.engine.pins import Pins
    from agent_memory.engine.processing.worker import OnDone
    from agent_memory.engine.reading import MessagePages
    from agent_memory.engine.recall.contexts import Contexts
    from agent_memory.engine.recall.merged_search import LogBlock, Search
    from agent_memory.engine.recall.prompt_log import Recalls, SentContexts
    from agent_memory.engine.sharing.grants import Authors, Grants, Redaction
    from agent_memory.engine.stats import Counted, Progress, Stats
    from agent_memory.engine.values.key_values import KeyValues, Values

logger = logging.getLogger(__name__)


class Components:
    """The parts of an `AgentMemory`: an open store, bound blocks, and the parts that use them.

    Parts that an update does not need are loaded and made at their first use.

    Args:
        config: The settings.
        only: The name of the only block to bind. None for all.

    Attributes:
        lacking_models: The warning for each block whose language model is not configured.

    Raises:
        ConfigError: A block cannot work with these settings. The store is closed again.
        StoreError: The store cannot be opened.
    """

    def __init__(self, config: AgentMemoryConfig, only: str | None = None) -> None:
        self._config = config
        self.services = Services(config)
        self._resources = resources = self.services.resources
        self.store = store = resources.store
        self.blocks: dict[str, Block] = {}
        with ExitStack() as opened:  # if a step fails, nothing stays open
            opened.callback(self.services.close)
            for block in config.all_blocks:
                if only in (None, block.name):
                    self.blocks[block.name] = bound = block.bind(resources)
                    opened.callback(bound.close)
            if config.shares:
                self.grants.begin(config.shares)
            opened.pop_all()
        self._elsewhere = [name for name, one in self.blocks.items() if one.store is not None]
        if self._elsewhere:
            from agent_memory.ltm_blocks.registry import register

            for name in self._elsewhere:
                register(store, name, "elsewhere")
        lacking = config.lacking_models.items()
        self.lacking_models = {name: text for name, text in lacking if name in self.blocks}
        for message in self.lacking_models.values():
            logger.warning("%s", message)
        self._begin_work()

    def _begin_work(self) -> None:
        """Make the parts that compact windows, absorb messages and delete expired ones."""
        config, store, blocks = self._config, self.store, list(self.blocks.values())
        self.guard, self.records, self.leases = Guard(store), SystemRecords(store), Leases(store)
        self.heartbeats, self.windows = Heartbeats(self.records), Windows(store)
        self.dead_letters = DeadLetters(store, config.absorb_attempts)
        self.absorber = Absorber(
            store,
            self.dead_letters,
            blocks,
            config.absorb_timeout,
            config.recall_timeout,
            not self.services.spending.is_by_user,
            config.namespace,
            self.heartbeats.absorbed,
            self.windows.moved,
        )
        self.compaction = Compaction(
            store,
            self.windows,
            config.strategy,
            self._resources,
            config.max_tokens,
            config.recall_tokens if blocks else 0,
            config.max_messages,
            self.services.spending.unaffordable,
            lambda *window: self.pins.held(*window),
        )
        self.retention = Retention(
            store,
            self.windows,
            self.dead_letters,
            list(self.absorber.blocks),
            lambda *place: self.sent.expire(*place),
            config.retention,
        )
        backlog = Backlog([block.name for block in blocks if block.recalls_pending])
        self._resources.pending.on_many = backlog.note
        self.work = SessionWork(
            store,
            self.leases,
            self.compaction,
            self.absorber,
            self.retention,
            lambda session_id: self.deletion.finish(session_id),
            config.strategy.absorbs,
            config.idle_minutes,
            backlog,
            self.windows.of,
            frozenset(block.name for block in blocks if block.language_models),
            config.quiet_seconds,
            min(BATCH_TOKENS, config.max_tokens // 2),
        )

    @made_later
    def pins(self) -> Pins:
        from agent_memory.engine.pins import Pins

        return Pins(self.store, self.windows, self._values_of)

    @made_later
    def values(self) -> Values:
        from agent_memory.engine.values.items import StoredValue
        from agent_memory.ltm_blocks.change_log import FollowedRecords

        return FollowedRecords(StoredValue)

    def _values_of(self, scope: Scope, of_session: bool) -> KeyValues:
        from agent_memory.engine.values.key_values import KeyValues

        embedder = partial(self._resources.embedders, None)
        return KeyValues(self.store, scope, embedder, self.values, of_session=of_session)

    @made_later
    def recalls(self) -> Recalls:
        from agent_memory.engine.recall.prompt_log import Recalls

        return Recalls()

    @made_later
    def sent(self) -> SentContexts:
        from agent_memory.engine.recall.prompt_log import SentContexts

        return SentContexts(self.store, self.deleted.since, on=self._config.keep_contexts)

    @made_later
    def _log(self) -> LogBlock | None:
        """The search in the log, if no block recalls pending messages."""
        from agent_memory.engine.recall.merged_search import LogBlock

        if any(block.recalls_pending for block in self.blocks.values()):
            return None
        return LogBlock(behind=tuple(self.absorber.blocks)).bind(self._resources)

    @made_later
    def contexts(self) -> Contexts:
        from agent_memory.core.context import BlockInfo
        from agent_memory.core.packing import Packer
        from agent_memory.engine.recall.contexts import Contexts
        from agent_memory.engine.recall.fan_out import FanOut

        config, resources = self._config, self._resources
        recalling = list(self.all_blocks.values()) if self.blocks else []
        if self._log is not None and self.absorber.blocks:
            recalling.append(self._log)
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
            config.strategy.share,
            config.strategy.summary_tokens,
            cuts=config.min_relevance > 0,
        )
        return Contexts(
            self.guard,
            self.store,
            self.windows,
            packer,
            FanOut(config.recall_timeout, blocks=recalling, store_id=config.namespace),
            self._troubles,
            resources.pending,
            self.sent,
            self.recalls,
            self.pins.of,
            self.compaction.cleared,
        )

    def new_in(self, session_id: str, messages: Sequence[Any]) -> Sequence[Any]:
        """Return the messages without those of the session's last context."""
        if "contexts" not in vars(self):  # no context was returned yet
            return without_context(messages, None, ())
        return self.contexts.new_in(session_id, messages)

    def begun(self, head: Head) -> None:
        """Store a session's pending context. See `SentContexts.begun`."""
        if "contexts" in vars(self):
            self.sent.begun(head)

    @made_later
    def search(self) -> Search:
        from agent_memory.engine.recall.fan_out import FanOut
        from agent_memory.engine.recall.merged_search import Search

        config = self._config
        searched = [block for block in self.all_blocks.values() if block.searched]
        if self._log is not None:
            searched.append(self._log)
        searcher = FanOut(config.recall_timeout, blocks=searched, store_id=config.namespace)
        counter = self._resources.counter
        return Search(self.guard, self.store, counter, searcher, self.recalls)

    @made_later
    def pages(self) -> MessagePages:
        from agent_memory.engine.reading import MessagePages

        return MessagePages(self.store, self._resources.counter, self._config.max_tokens)

    @made_later
    def editor(self) -> Editor:
        from agent_memory.engine.edit.edit import Editor

        return Editor(
            self.store,
            self.leases,
            self.absorber,
            self.dead_letters,
            self.windows,
            self.sent,
        )

    @made_later
    def grants(self) -> Grants:
        from agent_memory.engine.sharing.grants import Grants

        return Grants(self.store)

    @made_later
    def authors(self) -> Authors:
        from agent_memory.engine.sharing.grants import Authors

        return Authors(self.store)

    @made_later
    def redaction(self) -> Redaction:
        from agent_memory.engine.sharing.grants import Redaction

        return Redaction(self.store, self.editor, self.grants, self.authors)

    @made_later
    def deleted(self) -> Deleted:
        from agent_memory.engine.edit.receipts import Deleted

        return Deleted(self.store)

    @made_later
    def deletion(self) -> Deletion:
        from agent_memory.engine.edit.delete import Deletion

        return Deletion(
            self.store,
            self.leases,
            self.absorber,
            [block for block in self.all_blocks.values() if isinstance(block, ManualBlock)],
            self.records,
            self.windows,
            self.redaction,
            self.deleted,
        )

    def replay(self, block: str) -> Iterator[Progress]:
        """Return the steps of a replay. See `AgentMemory.replay`."""
        from agent_memory.engine.processing.replay import replay

        return replay(block, self.store, self.work, self.records)

    @made_later
    def receipts(self) -> Receipts:
        from agent_memory.engine.edit.receipts import Receipts

        config = self._config
        return Receipts(
            self.store,
            config.namespace,
            self.services.keys,
            _out_of_reach(config),
            config.store == "memory://",
            self._elsewhere,
        )

    def _troubles(self, head: Head | None) -> list[str]:
        """Return the warnings of a context."""
        failing = self.absorber.failures.troubles(besides=self.lacking_models)
        reached = self.services.spending.reached(None if head is None else head.user_id)
        limits = [] if reached is None else [reached]
        return [*self.lacking_models.values(), *failing, *limits, *self.compaction.troubles(head)]

    @made_later
    def default_notes(self) -> Block:
        """The block of notes: a configured one, or a default block."""
        block = self._config.note_block
        there = self.blocks.get(block.name)
        return there if isinstance(there, NoteBlock) else block.bind(self._resources)

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
        from agent_memory.engine.stats import BlockStats, Stats

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
        counted = self.counted()
        return Stats(
            counts.sessions,
            counts.entries,
            blocks,
            self.services.ledger.snapshot(),
            counted.prompts,
            counted.usage,
            self.services.spending.today(),
            counted.recalls,
        )

    def counted(self) -> Counted:
        """Return the metrics of this process, without a store call."""
        from agent_memory.engine.stats import Counted

        usage, prompts = self.services.ledger.by_purpose(), self.contexts.prompts.stats
        return Counted(usage, prompts, self.recalls.stats)

    @property
    def repair(self) -> Repair:
        """The repair of damaged records in the store."""
        from agent_memory.engine.edit.repair import Repair

        return Repair(self.store, self.leases, self.absorber, self.deletion, self.windows)

    def worker(self, threads: int, on_done: OnDone | None = None, *, polls: bool = True) -> Worker:
        """Return a worker for this store that is not started yet. See `Worker`."""
        jobs = [*self.absorber.blocks, self.retention.job, self.services.spending.job]
        housekeeping = Housekeeping(
            self.store,
            self.records,
            lambda: self.deletion.resume(),
            self.heartbeats.beat,
            {job for job in jobs if job},
        )
        return Worker(self.store, self.work, housekeeping.run, threads, on_done, polls)

    @apart
    def warm_up(self, scope: Scope | None = None) -> None:
        """Load slow parts in advance. A failure is logged, and raised again by the first use."""
        config = self._config
        steps: list[tuple[str, Callable[[], object]]] = []
        steps.append(("the tokenizer", self._resources.counter.load))
        if config.model or config.language_models or is_remote(config.embedding):
            steps.append(("litellm", load_litellm))
        for block in self.all_blocks.values():
            steps.append((f"the block {block.name!r}", block.load))
            if scope is not None:
                steps.append((f"the block {block.name!r}", partial(block.warm, scope)))
        for name, step in steps:
            if self.guard.closed:
                return
            try:
                step()
            except Exception as error:  # noqa: BLE001 - such as no network: nothing needs it yet
                if not self.guard.closed:
                    logger.warning("%s was not loaded in advance: %r", name, error)

    def close(self) -> None:
        """Release connections."""
        for block in self.blocks.values():
            block.close()
        self.services.close()


def _lacking(kind: str) -> ConfigError:
    wanted = find_kind("agent_memory.ltm_blocks", kind).__name__
    return ConfigError(f"No {wanted} is configured. Add one: AgentMemory(blocks=[{wanted}(...)]).")


def _out_of_reach(config: AgentMemoryConfig) -> list[Part]:
    """Return the places that no deletion reaches: providers that received texts."""
    from agent_memory.core.receipts import Part

    embedders = [config.embedding] if config.embedding and is_remote(config.embedding) else []
    models = sorted({*config.language_models, *embedders})
    note = "The provider decides how long it stores the texts that it received."
    return [Part(f"model {name!r}", "not supported", note) for name in models]
