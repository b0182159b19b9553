"""`AgentMemoryConfig`: every setting, from code, a file, or the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ImportString,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from agent_memory.config.sources import from_environment, merged, read_settings
from agent_memory.core.limits import MOST, Access, check_id, check_share, quoted
from agent_memory.core.plugins import find_kind, offering
from agent_memory.core.redaction import Redactor
from agent_memory.core.settings_model import (
    YEAR_SECONDS,
    Address,
    Amount,
    Duration,
    MemoryRole,
    Pause,
    Positive,
    Range,
    Seconds,
    SettingsModel,
    Threads,
)
from agent_memory.core.timestamps import Timezone, zone_of
from agent_memory.core.usage import SpendingLimits
from agent_memory.errors import ConfigError, InvalidBudget, InvalidId, InvalidShares
from agent_memory.ltm_blocks.base import Block, NoteBlock
from agent_memory.ltm_blocks.duck_typed import BlockField
from agent_memory.models.embedders import EmbeddingField
from agent_memory.models.usage import Price
from agent_memory.stores import check_url
from agent_memory.stores.base import Durability, Store
from agent_memory.strategies.base import Strategy, StrategyField

MIN_TOKENS = 64

NOTES = "notes"
"""The kind of the default block for notes. It is used if no configured block stores notes."""

StoreField = Annotated[Store, offering(Store), SkipJsonSchema()]  # pyright: ignore[reportCallIssue]

Retention = Literal["forever", "window"] | Duration
"""How long a log stores messages that left the window and that all blocks have absorbed."""

KeepKeys = Literal["forever"] | Duration
"""How long idempotency keys are stored."""


class AgentMemoryConfig(SettingsModel):
    """All settings of a memory. An instance is frozen. An unknown field raises `InvalidSetting`.

    `model_dump()` returns the API key, and addresses with a password or options, as `SecretStr`.
    `AgentMemoryConfig(**dump)` accepts these values. `model_dump_json()` masks them.

    The environment variable `AGENT_MEMORY_<FIELD>` sets a field. Separate nested fields by `__`:
    `AGENT_MEMORY_OVERFLOW__KIND=trim`. Arguments override the environment, and the environment
    overrides a file.

    Attributes:
        store: The store: "sqlite:///file.db", "folder:///memories" (plain files), "memory://", or a
            server's URL, such as "postgresql://...", "mysql://..." or "redis://...". An open store
            can be passed too, even to several memories. The caller closes this store.
        durability: The failures after which a stored update is still there. "power": a crash of the
            process and a power loss, with a disk sync for each update. "process": a crash of
            the process. A power loss may then lose the newest updates, but never restores deleted
            data. By default Redis and MySQL follow their server's configuration. If "power" is set
            explicitly, a server that does not sync is refused.
        encryption: The name of the environment variable with the keys, such as "AGENT_MEMORY_KEYS".
            All content is encrypted before it is stored; see `stores.Keys`. None encrypts nothing.
        system_store: The store for system messages, in any form of `store`. None uses `store`.
        namespace: Separates deployments that share a database.
        max_tokens: The token budget of a context, recalls included.
        max_messages: The maximum number of messages in a context. The system message, the summary,
            recalls and the current turn do not count. None for no limit. Tool calls are never
            separated from their results. The newest calls, their results and their question stay
            even if they exceed the limit.
        max_message_bytes: The largest size of a message, as JSON. `update` refuses larger messages.
            A message that is too long for a context is accepted, and shortened there.
        max_recall_tokens: The maximum number of tokens of recalls within `max_tokens`. None for a
            fifth of `max_tokens`, but at least 500 and at most 2,000.
        min_relevance: The minimum probability, from 0 to 1, that a recall is relevant to the
            message. A context leaves out less relevant recalls. 0 adds all recalls that fit.
            `search` requires only a twentieth of this value.
        model: A litellm model, such as "openai/gpt-4o-mini". It also selects the tokenizer. None
            means no language model.
        api_base: The URL of the model's API, if it is not the provider's own.
        api_key: The API key, if it is not in the provider's environment variable.
        model_timeout: The time limit of a model call, in seconds.
        spending_limits: Limits of the memory's own model calls in a day (UTC): `total`, over all
            users and processes, and `per_user`. Each limits `calls`, `tokens` and `cost` (US
            dollars). Work above a limit waits for the next day. `{"total": {"calls": 0}}` calls no
            model. Calls of `completion` are not limited.
        prices: The prices of models by name, in place of litellm's: `input` and `output`, in US
            dollars per million tokens.
        tokenizer: "exact" counts with the model's own encoding, if it is public. "approximate"
            estimates the count without an encoding; see docs/tokens.md for the error.
        embedding: An embedding model: None for the local default, "fastembed/<model>", or any
            litellm embedding model. A function that returns a vector for each text of a list, or an
            object with the methods of LangChain or LlamaIndex, can be passed too.
        embedding_threads: The number of cores for an embedding model on this machine.
        overflow: The strategy for a window that exceeds its part of the budget. None for
            `ClearTools` with `Summarize` if a model is configured, and with `Trim` otherwise.
        blocks: Long-term blocks in addition to those of the strategy. The default is a
            `VectorMemory`, or none if the strategy has blocks. `[]` adds none. If there is any
            block, contexts also recall notes.
        overflow_mode: The time at which an overflowing window is shortened. "inline": before
            `update` returns. "background": later, by threads of this process or by
            `agent-memory worker`.
        background_threads: The number of sessions that the threads work on in parallel.
        quiet_seconds: Blocks that call a language model wait until a batch is full: 10,000 tokens,
            160 messages, or half of `max_tokens`. With `absorb="every_update"`, they also absorb
            after a pause of this many seconds in the session. With 0 they never wait, so that each
            message may cause a model call. Only background threads or a worker notice a pause.
            Without these, the messages wait for the next update.
        idle_minutes: The pause in a session, in minutes, after which the background threads or a
            worker absorb all its messages. None means never.
        absorb_attempts: The number of attempts after which messages that a block cannot absorb
            become a dead letter. Attempts during an outage do not count.
        absorb_timeout: The time limit of a block for one batch, in seconds.
        memory_role: The role of the messages with recalls and the summary: "system" or "user".
            "leading" puts recalls and summary into the first system message, for models that accept
            only one. Prompt caches are then less effective: see docs/recall.md.
        retention: How long the log stores a message after it has left the window and all blocks
            have absorbed it. "forever" never removes it. "window" removes it immediately. A
            timedelta, in files an ISO 8601 duration ("P30D"), counts from the message's own time.
            Records derived from the message stay.
        keep_keys: How long a retried update is recognized by its key, or by its messages' ids: a
            timedelta, in files an ISO 8601 duration ("P30D"), or "forever". A session's older keys
            are removed with its next update that has a key. `retention` removes no keys.
        redact: Redacts each text before it is stored: messages and everything derived from them,
            notes, files, working memory and places. A `Redactor`, a function, or the import path of
            a function, "module.name". A message's metadata lists the redactions.
        keep_contexts: Whether to log each prompt. `AgentMemory.contexts` returns the logged
            prompts. The log costs two more writes for each context. A logged prompt is deleted
            together with its messages or its session.
        recall_timeout: The maximum number of seconds that `get` and `search` wait for blocks.
        timezone: The users' time zone by its IANA name, such as "Europe/Lisbon", or None for UTC.
            It applies to messages without a time or a UTC offset, to the days of notes, and to
            "today" in a question. For a time zone per user, pass a mapping from user ids to names,
            with "*" for all other users. Or pass a function from a user id to a name, or its import
            path "module.name".
        shares: The first grants of shared namespaces: for each namespace, the agents with "read" or
            "write". A grant is stored when a memory opens, unless the store has one for the same
            namespace and agent. Later grants and revocations are not overwritten.
    """

    model_config = ConfigDict(validate_default=True)

    store: Address[str | StoreField] = Field(default="sqlite:///agent_memory.db", repr=False)
    durability: Durability = "power"
    encryption: str | None = None
    system_store: Address[str | StoreField | None] = Field(default=None, repr=False)
    namespace: str = Field(default="default", min_length=1, max_length=64)
    max_tokens: Annotated[int, Field(le=MOST)] = 100_000
    max_messages: Annotated[int, Range(2, MOST)] | None = None
    max_message_bytes: Positive = 64 * 1024 * 1024
    max_recall_tokens: Amount | None = None
    min_relevance: float = Field(default=0.1, ge=0, le=1)
    model: str | None = Field(default=None, min_length=1)
    api_base: Address[str | None] = Field(default=None, repr=False)
    api_key: SecretStr | None = None
    model_timeout: Seconds = 30.0
    spending_limits: SpendingLimits = SpendingLimits()
    prices: Mapping[str, Price] = {}
    tokenizer: Literal["exact", "approximate"] = "exact"
    embedding: EmbeddingField = None
    embedding_threads: Threads = 1
    overflow: StrategyField | None = None
    blocks: Annotated[Sequence[BlockField], AfterValidator(tuple)] = ()
    overflow_mode: Literal["inline", "background"] = "inline"
    background_threads: Threads = 4
    quiet_seconds: Pause = 300.0
    idle_minutes: Annotated[float, Range(0, YEAR_SECONDS // 60, above=True)] | None = 10.0
    absorb_attempts: Positive = 8
    absorb_timeout: Seconds = 300.0
    memory_role: MemoryRole = "system"
    retention: Retention = "forever"
    keep_keys: KeepKeys = timedelta(days=30)
    redact: Redactor | ImportString[Callable[[str], str]] | None = None
    keep_contexts: bool = False
    recall_timeout: Seconds = 2.0
    timezone: Annotated[
        ImportString[Callable[[str | None], str | None]] | Mapping[str, str] | str | None,
        Field(union_mode="left_to_right"),
    ] = None
    shares: Mapping[str, Mapping[str, Access]] = {}

    def __init__(self, /, **fields: Any) -> None:
        super().__init__(**merged(from_environment(type(self)), fields))

    @classmethod
    def alone(cls, **fields: Any) -> Self:
        """Create from these fields only, without a file or the environment."""
        created = cls.__new__(cls)
        SettingsModel.__init__(created, **fields)
        return created

    @field_validator("max_tokens")
    @classmethod
    def _budget(cls, value: int) -> int:
        if value < MIN_TOKENS:
            raise InvalidBudget(
                f"max_tokens is {value}; a context needs at least {MIN_TOKENS} tokens. "
                "Set it to the number of tokens your prompt may use, such as 8000."
            )
        return value

    @field_validator("timezone")
    @classmethod
    def _known_zones(cls, value: Timezone) -> Timezone:
        for name in value.values() if isinstance(value, Mapping) else [value]:
            if isinstance(name, str) and zone_of(name) is None:
                raise ConfigError(
                    f"timezone is {quoted(name)}. Use an IANA name, such as 'Europe/Lisbon'. "
                    "If this machine has no time zones, install tzdata."
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
    def _check_pairs(self) -> Self:
        if self.strategy.summary_tokens * 2 > self.max_tokens:
            raise InvalidShares(
                f"A summary of {self.strategy.summary_tokens} tokens takes more than half of "
                f"max_tokens={self.max_tokens}. Lower max_summary_tokens or raise max_tokens."
            )
        if self.redact is not None and self.keep_contexts:
            raise ConfigError(
                "keep_contexts stores prompts exactly, and redact changes every text before it is "
                "stored. Remove one of these two settings."
            )
        return self

    @model_validator(mode="after")
    def _check_blocks(self) -> Self:
        if "blocks" not in self.model_fields_set and not self.all_blocks:
            object.__setattr__(self, "blocks", (_default("vector"),))
        for block in self.all_blocks:
            if block.routed_to is not None:
                check_url(block.routed_to)
        names = [block.name for block in self.all_blocks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(
                f"Two blocks are named {twice[0]!r}. Records are stored under the name of their "
                f'block. Give one of the blocks another name, such as name="{twice[0]}_2".'
            )
        return self

    @classmethod
    def from_file(cls, path: str | Path, **fields: Any) -> Self:
        """Read a TOML, YAML or JSON file. `AGENT_MEMORY_*` and `fields` override it.

        Raises:
            ConfigError: The file cannot be read or has another format. Or it describes several
                stores: use `Deployment.from_file`.
            InvalidSetting: A field is unknown or its value is invalid.
        """
        table = read_settings(path)
        if "stores" in table:
            raise ConfigError(
                f"{path} describes a deployment of several stores. Open it with "
                "Deployment.from_file, or on the command line select one: FILE#NAME."
            )
        return cls(**merged(merged(table, from_environment(cls)), fields))

    @property
    def recall_tokens(self) -> int:
        """The maximum number of tokens of recalls."""
        if self.max_recall_tokens is not None:
            return self.max_recall_tokens
        return min(2_000, max(500, self.max_tokens // 5))

    @property
    def strategy(self) -> Strategy:
        """The configured strategy, or the default strategy."""
        if self.overflow is not None:
            return self.overflow
        from agent_memory import strategies  # each class is loaded at its first use

        last: Strategy
        if self.model is None:
            last = strategies.Trim()
        else:
            last = strategies.Summarize(max_summary_tokens=min(500, self.max_tokens // 4))
        return strategies.Chain([strategies.ClearTools(), last])

    @property
    def all_blocks(self) -> tuple[Block, ...]:
        """The blocks of the strategy, then those of `blocks`."""
        of_strategy = self.overflow.ltm_blocks if self.overflow is not None else ()
        return (*of_strategy, *self.blocks)

    @property
    def note_block(self) -> NoteBlock:
        """The block that stores notes: the first configured block with notes, or a default block.

        `search` includes the default block. Contexts include it if any block is configured.
        """
        blocks = {block.name: block for block in self.all_blocks}
        for block in blocks.values():
            if isinstance(block, NoteBlock):
                return block
        name = f"model_{NOTES}" if NOTES in blocks else NOTES  # another block may have the name
        return cast("NoteBlock", _default(NOTES, name=name))

    @property
    def lacking_models(self) -> dict[str, str]:
        """If `model` is None, a warning for each block that needs a model, by the block's name."""
        absorber = "absorbs nothing: it needs"
        reranker = "recalls by the local ranking only: its LLM reranker needs"
        return {
            block.name: f"The block {block.name!r} {absorber if block.absorbs else reranker} a "
            "language model, and none is configured. Set `model`, such as "
            'model="openai/gpt-4o-mini".'
            for block in self.all_blocks
            if self.model is None and None in block.language_models
        }

    @property
    def language_models(self) -> frozenset[str]:
        """The language models that the strategy and the blocks call."""
        models = [*self.strategy.language_models]
        for block in self.all_blocks:
            models += block.language_models
        return frozenset(name for model in models if (name := model or self.model) is not None)


def _default(kind: str, **fields: Any) -> Block:
    """Create a block of a kind, with its defaults."""
    return cast("Block", find_kind("agent_memory.ltm_blocks", kind)(**fields))
