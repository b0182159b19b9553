"""`Deployment`: one file that describes several stores, each with its own settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.config.sources import (
    NESTED,
    PREFIX,
    check_variables,
    from_environment,
    merged,
    read_settings,
)
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import AgentMemoryError, ConfigError

STORES = "stores"
ONLY = "default"
"""The name of the only store in a file without a table of stores."""

_PREFIX = f"{PREFIX}{STORES}{NESTED}".upper()
_NOTE = "This is about the store {!r} of the deployment."
_NAME = re.compile(r"[A-Za-z0-9]+([-_][A-Za-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Deployment:
    """The settings of several stores, from one file.

    The top of the file has fields of `AgentMemoryConfig`, as defaults for all stores. A table
    `[stores.NAME]` for each store overrides them. A file without such a table describes one store
    with the name "default".

    Attributes:
        stores: The settings of each store, by the store's name.
    """

    stores: Mapping[str, AgentMemoryConfig]

    @classmethod
    def from_file(cls, path: str | Path, **fields: Any) -> Self:
        """Read a TOML, YAML or JSON file.

        Environment variables override the file. `AGENT_MEMORY_<FIELD>` sets a field of all stores.
        `AGENT_MEMORY_STORES__<NAME>__<FIELD>` sets a field of one store, and has priority. Write
        "_" for each "-" in the store's name.

        Args:
            path: The file.
            **fields: Fields of all stores. They override the file and the environment.

        Raises:
            ConfigError: The file cannot be read or has another format, or a setting cannot work. A
                note of the exception (`__notes__`) names the store.
            InvalidSetting: A field is unknown or its value is invalid. A note names the store.
        """
        tables = store_tables(read_settings(path))
        return cls({name: store_config(name, table, **fields) for name, table in tables.items()})

    def open(self) -> Memories:
        """Open the memories of all stores. If a store cannot be opened, close the other memories.

        Raises:
            ConfigError: As for `AgentMemory`. A note of the exception names the store.
            StoreError: A store cannot be opened.
        """
        with ExitStack() as opened:
            memories: dict[str, AgentMemory] = {}
            for name, config in self.stores.items():
                try:
                    memories[name] = opened.enter_context(AgentMemory(config))
                except AgentMemoryError as error:
                    error.add_note(_NOTE.format(name))
                    raise
            return Memories(memories, opened.pop_all())


class Memories(dict[str, AgentMemory]):
    """The open memories of a deployment, by the names of its stores; a context manager."""

    def __init__(self, memories: dict[str, AgentMemory], closing: ExitStack) -> None:
        super().__init__(memories)
        self._closing = closing

    def __repr__(self) -> str:
        return f"Memories({super().__repr__()})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all memories, even if one of them fails to close. Idempotent."""
        self._closing.close()


def store_tables(table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of each store in a file, by the store's name, with the defaults."""
    top = {name: value for name, value in table.items() if name != STORES}
    if STORES not in table:
        return {ONLY: top}
    stores = table[STORES]
    if not isinstance(stores, dict) or not stores:
        raise ConfigError("`stores` must be a table with a table for each store, [stores.NAME].")
    problems: list[str] = []
    for name, own in stores.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problem = 'A store is named by letters and digits, with single "-" or "_" between them.'
        elif not isinstance(own, dict):
            problem = f"This must be a table of settings, [stores.{name}]."
        else:
            continue
        problems.append(f"stores.{name}: {problem}")
    if problems:
        raise ConfigError(" ".join(problems))
    check_variables(_PREFIX, [name.replace("-", "_").lower() for name in stores])
    return {name: {**top, **own} for name, own in stores.items()}


def store_config(name: str, table: dict[str, Any], **fields: Any) -> AgentMemoryConfig:
    """Return the settings of one store, from the file's `table`, the environment and `fields`."""
    try:
        prefix = f"{_PREFIX}{name.replace('-', '_')}{NESTED}".upper()
        shared, own = (from_environment(AgentMemoryConfig, start) for start in (PREFIX, prefix))
        return AgentMemoryConfig(**merged(merged(table, shared), merged(own, fields)))
    except AgentMemoryError as error:
        error.add_note(_NOTE.format(name))
        raise
