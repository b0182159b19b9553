"""Where settings come from beside code: the environment and a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict

from agent_memory.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

PREFIX = "AGENT_MEMORY_"
NESTED = "__"

_file: ContextVar[dict[str, Any] | None] = ContextVar("config_file", default=None)


class Sourced(BaseModel):
    """A frozen model whose fields can come from code, the environment and a file.

    What the code gives wins over the environment, and the environment over the file. Mappings are
    merged, key by key.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, validate_default=True
    )

    def __init__(self, /, **fields: Any) -> None:
        settings = _merged(_file.get() or {}, _from_environment(type(self)))
        super().__init__(**_merged(settings, fields))


@contextmanager
def settings_file(path: Path) -> Iterator[None]:
    """Within this, every `Sourced` model reads the file too.

    Raises:
        ConfigError: The file cannot be read, or is not TOML, YAML or JSON.
    """
    token = _file.set(_read(path))
    try:
        yield
    finally:
        _file.reset(token)


def _from_environment(model: type[BaseModel]) -> dict[str, Any]:
    """The fields that the environment sets, as pydantic-settings reads it."""
    if not any(name.upper().startswith(PREFIX) for name in os.environ):
        return {}
    from pydantic_settings import EnvSettingsSource  # slow to import, and seldom needed

    return EnvSettingsSource(
        cast("type[BaseSettings]", model),  # any model has the fields and settings that it reads
        case_sensitive=False,
        env_prefix=PREFIX,
        env_nested_delimiter=NESTED,
    )()


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both mappings in one, and those that they hold too; `above` wins."""
    both = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], dict) and isinstance(above[name], dict):
            both[name] = _merged(below[name], above[name])
    return both


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the configuration {path}: {error}.") from error
    try:
        match path.suffix.lower():
            case ".toml":
                import tomllib

                found = tomllib.loads(text)
            case ".json":
                found = json.loads(text)
            case ".yaml" | ".yml":
                import yaml

                try:
                    found = yaml.safe_load(text)
                except yaml.YAMLError as error:
                    raise ConfigError(f"{path} is not valid YAML: {error}") from error
            case _:
                raise ConfigError(f"{path} is not a .toml, .yaml, .yml or .json file.")
    except ValueError as error:
        raise ConfigError(f"{path} is not valid {path.suffix[1:].upper()}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} must hold a table of settings.")
    return found
