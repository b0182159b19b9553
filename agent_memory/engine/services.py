"""The store, tokenizer and models of a configuration."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.timestamps import Zones
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.engine.leases import Locks
from agent_memory.engine.spending import Spending
from agent_memory.ltm_blocks.base import Resources
from agent_memory.models.embedders import is_remote, open_embedder
from agent_memory.models.embedders.base import Encoder
from agent_memory.models.usage import Charges, Ledger, Prices
from agent_memory.stores import open_store
from agent_memory.stores.base import Store, VectorStore

if TYPE_CHECKING:
    from agent_memory.models.llm import LLM


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
        beside = main

        def vectors(url: str | None) -> VectorStore:
            if url is None:
                return beside
            from agent_memory.stores.qdrant.store import QdrantStore

            # no `isinstance`: `main` may be a proxy around an encrypted store
            around: Callable[[VectorStore], VectorStore]
            around = getattr(main, "vectors_of", lambda beside: beside)
            return around(QdrantStore(url, config.namespace))

        with ExitStack() as stores:  # if a store cannot be opened, the other stores are closed
            stores.callback(self.close)
            places = {block.name: block.routed_to for block in config.all_blocks}
            urls = dict.fromkeys(url for url in places.values() if url is not None)
            others = {url: opened(at(url)) for url in urls}
            if others:
                from agent_memory.stores.split import RoutedStore

                beside = RoutedStore(
                    main, {name: others[url] for name, url in places.items() if url is not None}
                )
            store = beside
            if config.system_store is not None:
                from agent_memory.stores.split import SplitStore

                store = SplitStore(beside, opened(config.system_store))
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
