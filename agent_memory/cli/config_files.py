"""Read `--config`: a file of settings, or one store of a deployment file, FILE#NAME."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_memory.errors import ConfigError

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig


def read_config(file: Path | None, given: dict[str, Any]) -> AgentMemoryConfig:
    """Return the configuration of FILE, FILE#NAME, or the environment. `given` overrides both.

    Raises:
        ConfigError: A deployment has several stores and none is named, or no store of that name.
    """
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.config.sources import read_settings
    from agent_memory.engine.deployment import STORES, store_config, store_tables

    if file is None:
        return AgentMemoryConfig(**given)
    path, name = _parted(file)
    table = read_settings(path)
    if name is None and STORES not in table:
        return AgentMemoryConfig.from_file(path, **given)
    tables = store_tables(table)
    if name is None and len(tables) == 1:
        name = next(iter(tables))
    if name not in tables:
        which = "several stores" if name is None else f"no store {name!r}"
        ways = " or ".join(f"--config {path}#{one}" for one in tables)
        raise ConfigError(f"{path} describes {which}. Name one: {ways}")
    return store_config(name, tables[name], **given)


def store_files(file: Path | None) -> dict[str, Path | None]:
    """Return FILE#NAME of every store of a deployment, by name. Other files have the name ""."""
    from agent_memory.config.sources import read_settings
    from agent_memory.engine.deployment import STORES, store_tables

    if file is None or _parted(file)[1] is not None:
        return {"": file}
    table = read_settings(file)
    names = store_tables(table) if STORES in table else ()
    return {name: Path(f"{file}#{name}") for name in names} or {"": file}


def _parted(file: Path) -> tuple[Path, str | None]:
    """Split FILE#NAME."""
    path, mark, name = str(file).rpartition("#")
    return (Path(path), name) if mark and not file.exists() else (file, None)
