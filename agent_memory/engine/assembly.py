"""Creates the objects behind an `AgentMemory` from its configuration."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from agent_memory.config.settings import NOTES, AgentMemoryConfig
from agent_memory.core.context import without_context
from agent_memory.core.limits import quoted, text_of
from agent_memory.core.plugins import find_kind
from agent_memory.core.threads import off_main_thread
from agent_memory.core.timestamps import Zones
from agent_memory.core.token_counter import TokenCounter
from agent_memory.engine.append import Appender
from agent_memory.engine.guard import Guard
from agent_memory.engine.later import late_property, part
from agent_memory.engine.leases import Leases, Locks
from agent_memory.engine.paging import Windows, all_heads
from agent_memory.engine.processing.absorb import Absorber
from agent_memory.engine.processing.compaction import Compaction, Retention
from agent_memory.engine.processing.failures import DeadLetters
from agent_memory.engine.processing.session_work import SessionWork
from agent_memory.engine.processing.worker import Backlog, Heartbeats, Housekeeping, Worker
from agent_memory.engine.spending import Spending
from agent_memory.engine.system_records import SystemRecords
from agent_memory.errors import ConfigError, UnknownKind
from agent_memory.ltm_blocks.base import Block, FactBlock, NoteBlock, Resources
from agent_memory.models.embedders import is_remote, open_embedder
from agent_memory.models.embedders.base import Embedder, Encoder
from agent_memory.models.loading import load_litellm
from agent_memory.models.usage import Charges, Ledger, Prices
from agent_memory.stores import open_store
from agent_memory.stores.base import Store, VectorStore

if TYPE_CHECKING:
    from agent_memory.core.records import Head, Scope
    from agent_memory.engine.edit.delete import Deletion
    from agent_memory.engine.edit.edit import Editor
    from agent_memory.engine.edit.receipts import Deleted, Receipts
    from agent_memory.engine.edit.repair import Repair
    from agent_memory.engine.listing import Listing
    from agent_memory.engine.pins import Pins
    from agent_memory.engine.processing.worker import OnDone
    from agent_memory.engine.reading import Finding, MessagePages
    from agent_memory.engine.recall.contexts import Contexts
    from agent_memory.engine.recall.merged_search import LogBlock, Search
    from agent_memory.engine.recall.prompt_log import PromptLog, Recalls
    from agent_memory.engine.sharing.grants import Authors, Grants, Redaction
    from agent_memory.engine.stats import Counted, Stats
    from agent_memory.engine.tool_calls import Toolbox
    from agent_memory.engine.values.key_values import KeyValues, Values
    from agent_memory.models.llm import LLM

logger = logging.getLogger(__name__)


class Components:
    """The objects behind an `AgentMemory`, such as the open store and the bound blocks.

    An attribute that is made by `part` is created at its first read. `only` is the name of the only
    block to bind. None binds all blocks.

    Attributes:
        lacking_models: A warning for each block without its language model, by the block's name.
        elsewhere: The names of the blocks that have databases of their own.

    Raises:
        ConfigError: A block cannot work with these settings. The store is closed again.
        StoreError: The store cannot be opened.
    """

    authors: Authors = part("sharing.grants:Authors", takes="store")
    contexts: Contexts = part("recall.contexts:Contexts")
    deleted: Deleted = part("edit.receipts:Deleted", takes="store")
    deletion: Deletion = part("edit.delete:Deletion")
    editor: Editor = part("edit.edit:Editor")
    finding: Finding = part("reading:Finding")
    grants: Grants = part("sharing.grants:Grants", takes="store")
    listing: Listing = part("listing:Listing")
    pages: MessagePages = part("reading:MessagePages")
    pins: Pins = part("pins:Pins")
    receipts: Receipts = part("edit.receipts:Receipts")
    redaction: Redaction = part("sharing.grants:Redaction")
    repair: Repair = part("edit.repair:Repair")
    search: Search = part("recall.merged_search:Search")
    prompt_log: PromptLog = part("recall.prompt_log:PromptLog")
    toolbox: Toolbox = part("tool_calls:Toolbox")

    def __init__(self, config: AgentMemoryConfig, only: str | None = None) -> None:
        self.config = config
        self.services = Services(config)
        self.resources = resources = self.services.resources
        self.store = store = resources.store
        self.blocks: dict[str, Block] = {}
        with ExitStack() as opened:  # after a failure, closes the opened parts
            opened.callback(self.services.close)
            for block in config.all_blocks:
                if only in (None, block.name):
                    self.blocks[block.name] = bound = _bound(block, resources)
                    opened.callback(bound.close)
            if config.shares:
                self.grants.begin(config.shares)
            opened.pop_all()
        self.elsewhere = [name for name, block in self.blocks.items() if block.store is not None]
        if self.elsewhere:
            from agent_memory.ltm_blocks.registry import register

            for name in self.elsewhere:
                register(store, name, "elsewhere")
        lacking = config.lacking_models.items()
        self.lacking_models = {name: text for name, text in lacking if name in self.blocks}
        for message in self.lacking_models.values():
            logger.warning("%s", message)
        self._begin_work()

    def _begin_work(self) -> None:
        """Make the objects that shorten windows, absorb messages and delete expired messages."""
        config, store, blocks = self.config, self.store, list(self.blocks.values())
        self.guard, self.records, self.leases = Guard(store), SystemRecords(store), Leases(store)
        self.heartbeats, self.windows = Heartbeats(self.records), Windows(store)
        self.dead_letters = DeadLetters(store, config.absorb_attempts)
        self.absorber, self.compaction = Absorber(self), Compaction(self)
        self.retention = Retention(self)
        backlog = Backlog([block.name for block in blocks if block.recalls_pending])
        self.work = SessionWork(self, backlog)
        self.appender = Appender(self)

    @late_property
    def values(self) -> Values:
        from agent_memory.engine.values.items import StoredValue
        from agent_memory.ltm_blocks.versions import Versioned

        return Versioned(lambda records: [StoredValue(record) for record in records], len)

    def values_of(
        self, scope: Scope, embedder: Embedder | None = None, *, of_session: bool = False
    ) -> KeyValues:
        """Return the key-value store of a scope's user or, with `of_session`, of its session."""
        from agent_memory.engine.values.key_values import KeyValues

        opened = partial(self.resources.embedders, embedder)
        return KeyValues(self._value_store(), scope, opened, self.values, of_session=of_session)

    def _value_store(self) -> Store:
        return self.store

    def open(self, kind: str, scope: Scope) -> Any:
        return self.block(kind).open(scope)

    @late_property
    def recalls(self) -> Recalls:
        from agent_memory.engine.recall.prompt_log import Recalls

        return Recalls()

    @late_property
    def log_block(self) -> LogBlock | None:
        """The word search in the log. None if a block recalls pending messages itself."""
        from agent_memory.engine.recall.merged_search import LogBlock

        if any(block.recalls_pending for block in self.blocks.values()):
            return None
        return LogBlock(behind=tuple(self.absorber.blocks)).bind(self.resources)

    def new_in(self, session_id: str, messages: Sequence[Any]) -> Sequence[Any]:
        if "contexts" not in vars(self):  # no context was returned yet
            return without_context(messages, None, ())
        return self.contexts.new_in(session_id, messages)

    def begun(self, head: Head) -> None:
        if "contexts" in vars(self):
            self.prompt_log.begun(head)

    def warnings(self, head: Head | None) -> list[str]:
        failing = self.absorber.failures.warnings(besides=self.lacking_models)
        reached = self.services.spending.reached(None if head is None else head.user_id)
        limits = [] if reached is None else [reached]
        return [*self.lacking_models.values(), *failing, *limits, *self.compaction.warnings(head)]

    @late_property
    def default_notes(self) -> Block:
        """The block that stores notes: a configured block, or a default block."""
        block = self.config.note_block
        configured = self.blocks.get(block.name)
        return configured if isinstance(configured, NoteBlock) else block.bind(self.resources)

    @property
    def all_blocks(self) -> dict[str, Block]:
        """The configured blocks and the block that stores notes, by name."""
        return {**self.blocks, self.default_notes.name: self.default_notes}

    def block(self, kind: str) -> Block:
        """Return the first block of a kind. If there is none, return the block with that name.

        For the kind "notes", return the block that stores notes, whatever its kind. Raise
        `ConfigError` if there is no such block.
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
        try:
            error = _lacking(kind)
        except UnknownKind:
            names = ", ".join(blocks) or "none"
            text = f"No block has the kind or name {quoted(kind)}. There are: {names}."
            error = ConfigError(text)
        raise error

    @property
    def fact_blocks(self) -> list[FactBlock]:
        """The configured blocks that store facts."""
        return [block for block in self.blocks.values() if isinstance(block, FactBlock)]

    def needed_fact_blocks(self) -> list[FactBlock]:
        """Return `fact_blocks`. Raise `ConfigError` if there is none."""
        if not self.fact_blocks:
            raise _lacking("extractive")
        return self.fact_blocks

    def stats(self) -> Stats:
        from agent_memory.engine.stats import BlockStats, Stats

        counts, absorbing = self.store.counts(), self.absorber.blocks
        letters = self.dead_letters
        errors = {**self.absorber.failures.errors(now=True), **self.lacking_models}
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

    def worker(self, threads: int, on_done: OnDone | None = None, *, polls: bool = True) -> Worker:
        """Return a worker for this store, not started yet."""
        return Worker(self.store, self.work, Housekeeping(self).run, threads, on_done, polls)

    @off_main_thread
    def warm_up(self, scope: Scope | None = None) -> None:
        """Load slow parts in advance. An error is only logged: a part's first use raises it."""
        config = self.config
        steps: list[tuple[str, Callable[[], object]]] = []
        steps.append(("the tokenizer", self.resources.counter.load))
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
            except Exception as error:  # noqa: BLE001 - no call needs the part yet
                if not self.guard.closed:
                    logger.warning("%s was not loaded in advance: %r", name, error)

    def close(self) -> None:
        self.resources.ahead.stop()
        for block in self.blocks.values():
            block.close()
        self.services.close()


def _bound(block: Block, resources: Resources) -> Block:
    bound: object = block.bind(resources)
    if isinstance(bound, Block):
        return bound
    text = f"`bind` of {type(block).__name__} returned a {type(bound).__name__}."
    raise ConfigError(f"{text} Return the copy that super().bind(resources) returns.")


def _lacking(kind: str) -> ConfigError:
    wanted = find_kind("agent_memory.ltm_blocks", kind).__name__
    return ConfigError(f"No {wanted} is configured. Add one: AgentMemory(blocks=[{wanted}(...)]).")


class Services:
    """The store, tokenizer and models of one `AgentMemory`. Models and embedders load at first use.

    `at` maps the URL of a block's own database to the URL to open, such as the URL of a copy.
    """

    def __init__(self, config: AgentMemoryConfig, at: Callable[[str], str] = str) -> None:
        self.ledger = Ledger()
        self._owned: list[Store] = []
        counter = TokenCounter(config.model, config.tokenizer)

        @cache
        def models(name: str | None) -> LLM | None:
            model = name or config.model
            if model is None:
                return None
            from agent_memory.models.llm import LLM

            base, key, seconds = config.api_base, config.api_key, config.model_timeout
            return LLM(model, api_base=base, api_key=key, timeout=seconds, charges=charges)

        @cache
        def opened_embedder(name: object) -> Encoder:
            return open_embedder(
                name,
                api_base=config.api_base,
                api_key=config.api_key,
                timeout=config.model_timeout,
                charges=charges,
                threads=config.embedding_threads,
            )

        def embedders(name: object) -> Encoder:
            # None and the configured name share one embedder, so that each text is embedded once
            return opened_embedder(name or config.embedding)

        keys = None
        if config.encryption is not None:
            from agent_memory.stores.encrypted.keys import Keys

            keys = Keys.from_environment(config.encryption)

        def opened(location: str | Store) -> Store:
            store = location
            if isinstance(store, str):
                durability = config.durability if "durability" in config.model_fields_set else None
                store = open_store(store, config.namespace, durability)
                self._owned.append(store)
            if keys is None:
                return store
            from agent_memory.stores.encrypted.store import EncryptedStore

            return EncryptedStore(store, keys, config.namespace)

        main = opened(config.store)
        # no `isinstance`: the caller's store may be a proxy around an encrypted store
        self.keys = keys or getattr(main, "signing_keys", None)
        block_store = main

        def vectors(url: str | None) -> VectorStore:
            if url is None:
                return block_store
            from agent_memory.stores.qdrant.store import QdrantStore

            # no `isinstance`: `main` may be a proxy around an encrypted store
            around: Callable[[VectorStore], VectorStore]
            around = getattr(main, "vectors_of", lambda other: other)
            return around(QdrantStore(url, config.namespace))

        with ExitStack() as stores:  # if a store cannot be opened, the other stores are closed
            stores.callback(self.close)
            places = {block.name: block.routed_to for block in config.all_blocks}
            urls = dict.fromkeys(url for url in places.values() if url is not None)
            others = {url: opened(at(url)) for url in urls}
            if others:
                from agent_memory.stores.split import RoutedStore

                block_store = RoutedStore(
                    main, {name: others[url] for name, url in places.items() if url is not None}
                )
            store = block_store
            if config.system_store is not None:
                from agent_memory.stores.split import SplitStore

                store = SplitStore(block_store, opened(config.system_store))
            stores.pop_all()
        prices = Prices(config.prices)
        self.spending = Spending(store, config.spending_limits, prices)
        hold = self.spending.hold if self.spending.is_limited else None
        charges = Charges(self.ledger, hold, prices, counter)
        self.resources = Resources(
            store=store,
            namespace=config.namespace,
            counter=counter,
            models=models,
            embedders=embedders,
            vectors=vectors,
            locked=Locks(store).held,
            redact=config.redact or str,
            min_relevance=config.min_relevance,
            zones=Zones(config.timezone),
            is_local=_is_local(config),
        )

    def close(self) -> None:
        for store in self._owned:
            store.close()


def _is_local(config: AgentMemoryConfig) -> bool:
    """Return whether the store and the embedder need no network. False for a caller's objects."""
    store, embedding = config.store, config.embedding
    is_near = isinstance(store, str) and store.startswith(("memory:", "sqlite:"))
    return is_near and isinstance(embedding, str | None) and not is_remote(embedding)
