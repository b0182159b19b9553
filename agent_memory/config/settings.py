"""`AgentMemoryConfig`: every setting, from code, a file, or the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    Field,
    ImportString,
    SecretStr,
    field_validator,
    model_validator,
)

from agent_memory.config.sources import Sourced, read_settings, settings
from agent_memory.core.addresses import Address
from agent_memory.core.context import MemoryRole
from agent_memory.core.ids import Access, check_id, check_share
from agent_memory.core.kinds import find_kind
from agent_memory.core.protocols import Offering
from agent_memory.core.redaction import Redactor
from agent_memory.core.spending import SpendingLimits
from agent_memory.errors import ConfigError, InvalidBudget, InvalidId, InvalidShares
from agent_memory.ltm_blocks.base import Block, NoteBlock
from agent_memory.ltm_blocks.foreign import BlockField
from agent_memory.models.embedders.given import EmbeddingField
from agent_memory.models.prices import Price
from agent_memory.stores import check_url
from agent_memory.stores.base import Durability, Store
from agent_memory.strategies.base import Strategy, StrategyField

MIN_TOKENS = 64

NOTES = "notes"
"""The kind of the block that takes notes where none is configured that does."""

StoreField = Annotated[Store, Offering()]

Retention = Literal["forever", "window"] | Annotated[timedelta, Field(gt=timedelta())]
"""How long a log keeps what nothing reads any more."""

KeepKeys = Literal["forever"] | Annotated[timedelta, Field(gt=timedelta())]
"""How long it is known under which keys was written."""


class AgentMemoryConfig(Sourced):
    """All settings of a memory. Frozen; an unknown field is refused.

    `model_dump()` has an address with a password or options as a `SecretStr`, as it has the key:
    `AgentMemoryConfig(**dump)` takes it. `model_dump_json()` masks both.

    Any field can come from the environment as `AGENT_MEMORY_<FIELD>`, nested ones with `__`
    (`AGENT_MEMORY_OVERFLOW__KIND=trim`). What the code gives wins over the environment, and the
    environment over a file.

    Attributes:
        store: Where all is kept: "sqlite:///file.db", "folder:///memories" (plain files),
            "memory://", or a server's address, such as "postgresql://...", "mysql://..." or
            "redis://..."; or a store that is open, which several memories may share and which
            whoever opened it closes.
        durability: What an acknowledged update survives. "process": the end of the process, however
            sudden; a power loss may take the newest. "power": that too, with a disk sync for each
            update.
        encryption: Name of the environment variable that holds the keys ("AGENT_MEMORY_KEYS") with
            which all that was said is encrypted before it is stored; see `stores.Keys`. None
            encrypts nothing.
        system_store: Where system messages are kept, as `store`; None keeps them with all else.
        namespace: Deployments with different namespaces share a database unseen by each other.
        max_tokens: What a context may cost, recalls included.
        max_messages: How many messages a context may show at most, beside the system message, the
            summary and recalls; None for any number. A tool call and its results are never split:
            the newest stay together, with the question they serve, though they be more.
        max_message_bytes: What one message may have, as JSON. That is all that `update` refuses for
            its size: a message that is too long for a context is shown in part.
        max_recall_tokens: What recalls may take of `max_tokens` at most. None for a fifth of it,
            but no less than 500 and no more than 2,000.
        min_relevance: The probability, from 0 to 1, that a recall has to do with the message, which
            it needs to stand in a context. 0 takes all that has room. `search` asks a twentieth of
            it.
        model: A litellm model, such as "openai/gpt-4o-mini"; it also picks the tokenizer. None
            works without a language model.
        api_base: Address of the model's API, where it is not the provider's own.
        api_key: Its key, where it is not in the provider's environment variable.
        model_timeout: Seconds that one model call may take.
        spending_limits: What memory may spend on models of its own accord in a day (UTC): `total`,
            over all users and processes, and `per_user`, each with `calls`, `tokens` and `cost`
            (US dollars). What is over waits for the next day. `{"total": {"calls": 0}}` asks no
            model at all. The caller's own `completion` is not limited.
        prices: By the name of a model, what it costs, where litellm does not know or another price
            was agreed on: `input` and `output`, in US dollars for a million tokens.
        tokenizer: "exact" counts with the model's own encoding, where it is public; "approximate"
            estimates without loading any. docs/tokens.md says how far off that may be.
        embedding: An embedding model: None for the local default, "fastembed/<model>", any litellm
            embedding model; or a function that takes a list of texts and returns a vector for each;
            or an object with LangChain's or LlamaIndex's names for that.
        embedding_threads: Cores that an embedding model on this machine may use.
        overflow: What happens when the window passes its share; None for `Summarize` where a model
            is configured, else `Trim`.
        blocks: Long-term blocks beside those of the strategy. By default a `VectorMemory`, unless
            the strategy brings blocks of its own; `[]` adds none. Where there is any, notes are
            recalled too.
        overflow_mode: "inline": an update that overflows makes room before it returns.
            "background": an update returns once its messages are stored; threads of this process do
            the rest, as does `agent-memory worker`.
        background_threads: How many sessions they work on at a time.
        quiet_seconds: A block that asks a language model waits until a batch is full: 10,000
            tokens, 160 messages, or half of `max_tokens`. With `absorb="every_update"` it also
            absorbs what was said once the session has been quiet for so long. 0: it does not wait,
            and each message may be a call. A pause between two messages is seen by the next
            update; before that, by the background threads or a worker.
        idle_minutes: A session that is silent for so long is absorbed wholly, by the background
            threads or a worker; None for never.
        absorb_attempts: Attempts after which messages that a block cannot absorb are set aside as a
            dead letter. An outage does not count.
        absorb_timeout: Seconds that a block may take for one batch.
        memory_role: Where recalls and the summary stand: as "system" or "user"; or "leading", in
            the one system message at the top, for models that take no other. Prompt caches then
            keep little: see docs/recall.md.
        retention: How long the log keeps a message that has left the window and that every block
            has absorbed. "forever"; "window": no longer; or a timedelta after the message's own
            time, in files an ISO 8601 duration ("P30D"). What blocks made of it stays.
        keep_keys: How long a retried update is known by its key, or by its messages' ids: a
            timedelta, in files an ISO 8601 duration ("P30D"), or "forever". It goes by each
            session: what is older is removed with the session's next update that has a key. What
            `retention` removes from the log stays known for as long.
        redact: Runs over each text before it is kept: in the log, and so in all that is made of it,
            in notes, files, working memory and places. A `Redactor`, a function, or where that is,
            as "module.name". What of a message is not as it was given its metadata says.
        keep_contexts: Whether it is kept what models were sent, for `AgentMemory.contexts`: one
            more write with each context. It goes as the messages and sessions go of which it was
            made.
        recall_timeout: Seconds that `get` and `search` wait for blocks.
        shares: Shared namespaces, each with the agents that may "read" or "write" it at first.
            Written when a memory opens, for pairs of which the store knows nothing yet; what is
            granted or revoked in calls wins for good.
    """

    store: Address[str | StoreField] = Field(default="sqlite:///agent_memory.db", repr=False)
    durability: Durability = "process"
    encryption: str | None = None
    system_store: Address[str | StoreField | None] = Field(default=None, repr=False)
    namespace: str = Field(default="default", min_length=1, max_length=64)
    max_tokens: int = 100_000
    max_messages: int | None = Field(default=None, ge=2)
    max_message_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    max_recall_tokens: int | None = Field(default=None, ge=0)
    min_relevance: float = Field(default=0.1, ge=0, le=1)
    model: str | None = None
    api_base: Address[str | None] = Field(default=None, repr=False)
    api_key: SecretStr | None = None
    model_timeout: float = Field(default=30.0, gt=0)
    spending_limits: SpendingLimits = SpendingLimits()
    prices: Mapping[str, Price] = {}
    tokenizer: Literal["exact", "approximate"] = "exact"
    embedding: EmbeddingField = None
    embedding_threads: int = Field(default=1, gt=0)
    overflow: StrategyField | None = None
    blocks: Annotated[Sequence[BlockField], AfterValidator(tuple)] = ()
    overflow_mode: Literal["inline", "background"] = "inline"
    background_threads: int = Field(default=4, gt=0)
    quiet_seconds: float = Field(default=300.0, ge=0)
    idle_minutes: float | None = Field(default=10.0, gt=0)
    absorb_attempts: int = Field(default=8, gt=0)
    absorb_timeout: float = Field(default=300.0, gt=0)
    memory_role: MemoryRole = "system"
    retention: Retention = "forever"
    keep_keys: KeepKeys = timedelta(days=30)
    redact: Redactor | ImportString[Callable[[str], str]] | None = None
    keep_contexts: bool = False
    recall_timeout: float = Field(default=2.0, gt=0)
    shares: Mapping[str, Mapping[str, Access]] = {}

    @field_validator("max_tokens")
    @classmethod
    def _budget(cls, value: int) -> int:
        if value < MIN_TOKENS:
            raise InvalidBudget(
                f"max_tokens is {value}; a context needs at least {MIN_TOKENS} tokens. "
                "Give the number of tokens your prompt may use, such as 8000."
            )
        return value

    @field_validator("store", "system_store")
    @classmethod
    def _scheme(cls, value: str | Store | None) -> str | Store | None:
        if isinstance(value, str):
            check_url(value)
        return value

    @field_validator("shares")
    @classmethod
    def _ids(cls, value: Mapping[str, Mapping[str, Access]]) -> Mapping[str, Mapping[str, Access]]:
        try:
            for share, agents in value.items():
                check_share(share)
                for agent in agents:
                    check_id("agent_id", agent)
        except InvalidId as error:
            raise ConfigError(f"shares: {error}") from None
        return value

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.strategy.summary_tokens * 2 > self.max_tokens:
            raise InvalidShares(
                f"A summary of {self.strategy.summary_tokens} tokens takes more than half of "
                f"max_tokens={self.max_tokens}. Lower max_summary_tokens or raise max_tokens."
            )
        return self

    @model_validator(mode="after")
    def _kept_as_sent(self) -> Self:
        if self.redact is not None and self.keep_contexts:
            raise ConfigError(
                "keep_contexts keeps what models are sent to the byte, and redact lets nothing be "
                "kept as it was given. Leave one of them out."
            )
        return self

    @model_validator(mode="after")
    def _default_blocks(self) -> Self:
        if "blocks" not in self.model_fields_set and not self.all_blocks:
            object.__setattr__(self, "blocks", (_default("vector"),))
        return self

    @model_validator(mode="after")
    def _names(self) -> Self:
        for block in self.all_blocks:
            if block.routed_to is not None:
                check_url(block.routed_to)
        names = [block.name for block in self.all_blocks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(
                f"Two blocks are named {twice[0]!r}. Give one a name of its own, such as "
                f'name="{twice[0]}_2": their records are kept under it.'
            )
        return self

    @classmethod
    def from_file(cls, path: str | Path, **fields: Any) -> Self:
        """Read a TOML, YAML or JSON file; `AGENT_MEMORY_*` and `fields` win over it.

        Raises:
            ConfigError: The file cannot be read, is none of these formats, or describes several
                stores; see `Deployment`.
            pydantic.ValidationError: A field is unknown or its value bad.
        """
        table = read_settings(path)
        if "stores" in table:
            raise ConfigError(
                f"{path} describes a deployment of several stores. Open it with "
                "Deployment.from_file; on the command line, name one of them: FILE#NAME."
            )
        with settings(table):
            return cls(**fields)

    @property
    def recall_tokens(self) -> int:
        """What recalls may take of `max_tokens` at most, in number."""
        if self.max_recall_tokens is not None:
            return self.max_recall_tokens
        return min(2_000, max(500, self.max_tokens // 5))

    @property
    def strategy(self) -> Strategy:
        """The strategy in force."""
        if self.overflow is not None:
            return self.overflow
        if self.model is not None:
            from agent_memory.strategies.summarize import Summarize

            return Summarize(max_summary_tokens=min(500, self.max_tokens // 4))
        from agent_memory.strategies.trim import Trim

        return Trim()

    @property
    def all_blocks(self) -> tuple[Block, ...]:
        """Blocks of the strategy and of the configuration, in this order."""
        of_strategy = self.overflow.ltm_blocks if self.overflow is not None else ()
        return (*of_strategy, *self.blocks)

    @property
    def note_block(self) -> NoteBlock:
        """The block that takes notes: the first configured one that does.

        Without one it is a block that every memory has beside those configured. `search` asks it,
        and where any block is configured so do contexts.
        """
        blocks = {block.name: block for block in self.all_blocks}
        for block in blocks.values():
            if isinstance(block, NoteBlock):
                return block
        name = f"model_{NOTES}" if NOTES in blocks else NOTES  # that is somebody's own then
        return cast("NoteBlock", _default(NOTES, name=name))

    @property
    def lacking_models(self) -> dict[str, str]:
        """What to say of each block that needs the configured language model, where none is."""
        return {
            block.name: f"The block {block.name!r} {_without_model(block)} a language model, and "
            'none is configured. Set `model`, such as model="openai/gpt-4o-mini".'
            for block in self.all_blocks
            if self.model is None and None in block.language_models
        }

    @property
    def language_models(self) -> frozenset[str]:
        """The language models that the strategy and the blocks will ask."""
        asked = [*self.strategy.language_models]
        for block in self.all_blocks:
            asked += block.language_models
        return frozenset(name for one in asked if (name := one or self.model) is not None)


def _without_model(block: Block) -> str:
    if block.absorbs:
        return "absorbs nothing: it needs"
    return "recalls by the local ranking alone: what it is set to ask needs"


def _default(kind: str, **fields: Any) -> Block:
    """A block of a kind, with its defaults."""
    return cast("Block", find_kind("agent_memory.ltm_blocks", kind)(**fields))
