"""Read settings from the environment and from files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from agent_memory.core.limits import quoted
from agent_memory.errors import ConfigError, InvalidSetting

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

PREFIX = "AGENT_MEMORY_"
NESTED = "__"

_MOST = 16 * 2**20


def from_environment(model: type[BaseModel], prefix: str = PREFIX) -> dict[str, Any]:
    """Return the fields that are set in the environment, by the rules of pydantic-settings.

    `prefix` is the prefix of the variables, in capitals.
    """
    if not any(name.upper().startswith(prefix) for name in os.environ):
        return {}
    check_variables(prefix, [*model.model_fields, "stores"])  # `stores` belongs to a deployment
    from pydantic_settings import EnvSettingsSource, SettingsError  # slow, and rarely needed

    source = EnvSettingsSource(
        cast("type[BaseSettings]", model),  # the source reads only attributes of `BaseModel`
        case_sensitive=False,
        env_prefix=prefix,
        env_nested_delimiter=NESTED,
        env_parse_none_str="null",
    )
    try:
        return source()
    except SettingsError as error:
        field = str(error).split('"')[1]  # such as: error parsing value for field "blocks" from ...
        raise InvalidSetting(
            f"{prefix}{field.upper()} is not valid JSON. Set it to JSON."
        ) from None


def check_variables(prefix: str, names: Sequence[str]) -> None:
    """Refuse variables with a name after the prefix that is similar to one of `names`."""
    from difflib import get_close_matches

    unknown = [
        f"{variable} is not a setting. Did you mean {prefix}{near[0].upper()}?"
        for variable in sorted(name.upper() for name in os.environ)
        if variable.startswith(prefix)
        for name in [variable[len(prefix) :].partition(NESTED)[0].lower()]
        if name not in names and (near := get_close_matches(name, names, n=1, cutoff=0.85))
    ]
    if unknown:
        raise InvalidSetting(" ".join(unknown))


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge two mappings key by key, recursively. `above` overrides `below`."""
    both = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], dict) and isinstance(above[name], dict):
            both[name] = merged(below[name], above[name])
    return both


def read_text(path: Path, what: str) -> str:
    """Read a UTF-8 file of at most 16 MiB. `what` describes the file in a `ConfigError`."""
    try:
        with path.open("rb") as file:  # a device may have no end
            raw = file.read(_MOST + 1)
        if len(raw) <= _MOST:
            return raw.decode()
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    except (OSError, ValueError) as error:  # ValueError: the path is invalid
        reason = getattr(error, "strerror", None) or str(error)
    else:
        reason = f"it has more than {_MOST // 2**20} MiB"
    raise ConfigError(f"Cannot read {what} {path}: {reason}.") from None


def read_settings(file: str | Path) -> dict[str, Any]:
    """Read a TOML, YAML or JSON file of settings, or raise `ConfigError`."""
    if not isinstance(file, str | PathLike):
        raise ConfigError(f"Settings cannot be read from {quoted(file)}. Pass the path of a file.")
    path = Path(file)
    text = read_text(path, "the configuration").removeprefix("\ufeff")  # Windows editors add it
    try:
        match path.suffix.lower():
            case ".toml":
                import tomllib

                table = tomllib.loads(text)
            case ".json":
                table = json.loads(text)
            case ".yaml" | ".yml":
                import yaml

                try:
                    table = yaml.safe_load(text)
                except yaml.YAMLError as error:
                    mark = getattr(error, "problem_mark", None)
                    line = f" (at line {mark.line + 1})" if mark else ""
                    # the parser's message repeats the line, which may contain a password
                    raise ConfigError(f"{path} is not valid YAML{line}.") from None
            case _:
                raise ConfigError(f"{path} is not a .toml, .yaml, .yml or .json file.")
    except ValueError as error:
        raise ConfigError(f"{path} is not valid {path.suffix[1:].upper()}: {error}") from error
    if not isinstance(table, dict):
        raise ConfigError(f"{path} must hold a table of settings.")
    return table
