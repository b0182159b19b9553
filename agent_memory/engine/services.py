"""Opening what a configuration names: store, tokenizer, models."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.engine.leases import Locks
from agent_memory.engine.spending import Spending
from agent_memory.ltm_blocks.base import Resources
from agent_memory.models.charges import Charges
from agent_memory.models.embedders import open_embedder
from agent_memory.models.embedders.base import Encoder
from agent_memory.models.prices import Prices
from agent_memory.models.usage import Ledger
from agent_memory.stores import open_store
from agent_memory.stores.base import Store, VectorStore

if TYPE_CHECKING:
    from agent_memory.models.llm import LLM


class Services:
    """What one `AgentMemory` works with; models and embedders open when first asked for.

    Args:
        config: Names them.
        at: Where a database of blocks is to be opened, whose URL is given: a copy of it, perhaps.

    Attributes:
        ledger: Counts model calls, tokens and cost.
        spending: Keeps them within the limits.
        resources: What blocks and strategies are given.
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

            return LLM(
                model,
                api_base=config.api_base,
                api_key=config.api_key,
                timeout=config.model_timeout,
                charges=charges,
            )

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
            # of two names for one embedder each text is embedded once
            return opened_embedder(name or config.embedding)

        self.keys = keys = None
        if config.encryption is not None:
            from agent_memory.stores.encrypted.keys import Keys

            self.keys = keys = Keys.from_environment(config.encryption)

        def opened(given: str | Store) -> Store:
            store = given
            if isinstance(store, str):
                store = open_store(store, config.namespace, config.durability)
                self._owned.append(store)
            if keys is None:
                return store
            from agent_memory.stores.encrypted.store import EncryptedStore

            return EncryptedStore(store, keys, config.namespace)

        main = opened(config.store)
        try:
            places = {block.name: block.routed_to for block in config.all_blocks}
            urls = dict.fromkeys(url for url in places.values() if url is not None)
            others = {url: opened(at(url)) for url in urls}
        except BaseException:
            self.close()
            raise
        beside = main
        if others:
            from agent_memory.stores.routed import RoutedStore

            beside = RoutedStore(
                main, {name: others[url] for name, url in places.items() if url is not None}
            )

        def vectors(url: str | None) -> VectorStore:
            if url is None:
                return beside
            from agent_memory.stores.qdrant.store import QdrantStore

            # asked for, since a proxy of an encrypted store is of another class
            around: Callable[[VectorStore], VectorStore]
            around = getattr(main, "vectors_of", lambda beside: beside)
            return around(QdrantStore(url, config.namespace))

        store = beside
        if config.system_store is not None:
            from agent_memory.stores.split import SplitStore

            try:
                store = SplitStore(beside, opened(config.system_store))
            except BaseException:
                self.close()
                raise
        prices = Prices(config.prices)
        self.spending = Spending(store, config.spending_limits, prices)
        meter = self.spending if self.spending.is_limited else None
        charges = Charges(self.ledger, meter, prices, counter)
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
        )

    def close(self) -> None:
        """Close the stores, but for those that were given open."""
        for store in self._owned:
            store.close()
