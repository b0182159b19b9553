"""What may go wrong with settings that are valid: what they lack, and what they hardly mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from itertools import combinations
from os.path import abspath
from typing import TYPE_CHECKING

from agent_memory.cli.common import local_embedder
from agent_memory.cli.config_mistakes import Finding, unknown
from agent_memory.cli.doctor import missing_keys
from agent_memory.cli.doctor_store import NO_EMBEDDER, is_remote
from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.config.sources import NESTED, PREFIX
from agent_memory.engine.deployment import STORES, store_prefix
from agent_memory.errors import AgentMemoryError, MissingExtra
from agent_memory.ltm_blocks import ExtractiveMemory, SpatialMemory, VectorMemory
from agent_memory.strategies import Chain, Strategy, Summarize

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.base import Block

_NO_FIELDS = {"mcp_token"}
"""What the environment may say beside fields."""

_DRIVERS = {
    "postgres": ("psycopg", "postgres"),
    "mysql": ("pymysql", "mysql"),
    "mariadb": ("pymysql", "mysql"),
    "redis": ("redis", "redis"),
    "unix": ("redis", "redis"),
    "mongodb": ("pymongo", "mongodb"),
}
"""What the schemes of URLs begin with, the module that opens them, and the extra that has it."""

PLACED_BY = frozenset({"store", "namespace", "blocks", "overflow"})
"""The fields that `places` goes by."""

Remark = tuple[tuple[str, ...], str]
"""The field that it is about with the others that it depends on, and what is to be known."""


def lacking(config: AgentMemoryConfig) -> Iterator[Remark]:
    """What is not here that the store needs to open."""
    for field in ("store", "system_store"):
        url = getattr(config, field)
        for scheme, (module, extra) in _DRIVERS.items():
            if str(url).startswith(scheme) and find_spec(module) is None:
                yield (field,), str(MissingExtra(f"{str(url).partition('://')[0]}://", extra))
    names = [config.embedding]
    for block in config.all_blocks:
        if isinstance(block, VectorMemory):
            names.append(block.embedding)
            if block.store is not None and find_spec("qdrant_client") is None:
                yield ("blocks", "overflow"), str(MissingExtra("A Qdrant vector store", "qdrant"))
        if isinstance(block, SpatialMemory) and find_spec("rtree") is None:
            yield ("blocks", "overflow"), str(MissingExtra("SpatialMemory", "spatial"))
    if "local" in names and not local_embedder():
        yield ("embedding",), str(MissingExtra("The local embedder", "local"))
    onnx = any(name is not None and name.startswith("fastembed/") for name in names)
    if onnx and find_spec("fastembed") is None:
        yield ("embedding",), str(MissingExtra("A fastembed embedder", "fastembed"))
    if config.encryption is not None:
        yield from ((("encryption",), told) for told in _keys(config.encryption))


def doubtful(config: AgentMemoryConfig) -> Iterator[Remark]:
    """What works, and perhaps not as it was meant."""
    yield from _models(config)
    yield from _bounds(config)
    if not str(config.store).startswith("memory:"):
        return
    lost = "memory:// is gone with the process"
    if config.retention != "forever":
        yield ("retention", "store"), f"{lost}: there is little for it to shorten."
    if config.overflow_mode == "background":
        yield ("overflow_mode", "store"), f"{lost}, and no `agent-memory worker` can reach it."


def places(stores: Mapping[str, AgentMemoryConfig]) -> Iterator[Finding]:
    """Stores of one deployment that are kept in the same place."""
    for (first, one), (second, other) in combinations(stores.items(), 2):
        if str(one.store).startswith("memory:") or _place(one) != _place(other):
            continue
        where = f"{STORES}.{second}.store"
        told = f"It is kept where {first} is: each sees the other's sessions."
        mend = "Give one of them a `namespace` of its own"
        if _blocks(one.all_blocks) == _blocks(other.all_blocks):
            yield Finding("warning", where, f"{told} {mend}, unless that is meant.")
        else:
            told += " Their blocks differ, so that each leaves out what the other's absorb."
            yield Finding("error", where, f"{told} {mend}.")


def variables(environ: Iterable[str], stores: Mapping[str, AgentMemoryConfig]) -> Iterator[Finding]:
    """Environment variables that look like settings and are none.

    Args:
        environ: The names of all variables.
        stores: The stores of the file, each with what is right of its settings.
    """
    keys = {config.encryption for config in stores.values()}
    prefixes = [store_prefix(name) for name in stores]
    known = {*AgentMemoryConfig.model_fields, *_NO_FIELDS}
    for name in sorted(environ):
        upper = name.upper()
        if not upper.startswith(PREFIX) or name in keys:
            continue
        prefix = next((one for one in prefixes if upper.startswith(one)), PREFIX)
        field = upper.removeprefix(prefix).lower().partition(NESTED)[0]
        if field in (known if prefix == PREFIX else AgentMemoryConfig.model_fields):
            continue
        if field == STORES:
            told = f"It names no store of this file: {', '.join(stores)}."
        else:
            told = unknown(field, known) + " Nothing reads this variable."
        yield Finding("warning", name, told)


def _keys(variable: str) -> Iterator[str]:
    """What keeps the keys of an environment variable from being used."""
    from agent_memory.stores.encrypted.keys import Keys

    if not variable.isidentifier():  # perhaps it is the keys
        yield "This is to name an environment variable; the keys belong into that."
        return
    try:
        Keys.from_environment(variable)
    except AgentMemoryError as error:
        yield str(error)


def _models(config: AgentMemoryConfig) -> Iterator[Remark]:
    blocks = config.all_blocks
    asking: list[tuple[Block | Strategy, str]] = [
        *((one, "facts wait for one") for one in blocks if isinstance(one, ExtractiveMemory)),
        *((one, "summaries are local extracts") for one in _summaries(config.strategy)),
    ]
    without = dict.fromkeys(told for one, told in asking if None in one.language_models)
    if config.model is None and without:
        told = " and ".join(without)
        yield (
            ("model", "blocks", "overflow"),
            f"None is named: {told}. Name one, such as openai/gpt-4o-mini.",
        )
    vectors = [block for block in blocks if isinstance(block, VectorMemory)]
    asked = {block.embedding or config.embedding for block in vectors}
    if None in asked and not local_embedder():
        yield ("embedding", "blocks", "overflow"), NO_EMBEDDER
    for field, names in (
        ("model", config.language_models),
        ("embedding", {name for name in asked if name is not None and is_remote(name)}),
    ):
        for name in sorted(names):
            if missing := missing_keys(name, config):
                yield (
                    (field, "blocks", "overflow", "api_key", "api_base"),
                    f"{name} needs {missing} in the environment, or `api_key`.",
                )


def _bounds(config: AgentMemoryConfig) -> Iterator[Remark]:
    if config.all_blocks and config.max_recall_tokens >= config.max_tokens:
        yield (
            ("max_recall_tokens", "max_tokens", "blocks", "overflow"),
            f"Recalls may take {config.max_recall_tokens:,} tokens of {config.max_tokens:,}: what "
            "the window leaves is all they get. Lower it, or raise max_tokens.",
        )
    for strategy in _members(config.strategy):
        keep = getattr(strategy, "keep_messages", None)
        if keep is not None and config.max_messages is not None and keep > config.max_messages:
            yield (
                ("max_messages", "overflow"),
                f"{strategy.kind} is to keep {keep:,} messages, and a context may show "
                f"{config.max_messages:,}. Lower keep_messages, or raise max_messages.",
            )


def _members(strategy: Strategy) -> Iterator[Strategy]:
    yield strategy
    if isinstance(strategy, Chain):
        for member in strategy.members:
            yield from _members(member)


def _summaries(strategy: Strategy) -> list[Summarize]:
    return [one for one in _members(strategy) if isinstance(one, Summarize)]


def _place(config: AgentMemoryConfig) -> tuple[str, str]:
    """What two configurations that see the same records have in common."""
    scheme, _, rest = str(config.store).partition("://")
    if scheme == "sqlite":
        return abspath(rest.removeprefix("/")), config.namespace
    return f"{scheme}://{rest.rpartition('@')[2]}", config.namespace


def _blocks(blocks: Iterable[Block]) -> list[tuple[str, str]]:
    return sorted((block.name, str(block.kind)) for block in blocks)
