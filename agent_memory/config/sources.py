"""Where settings come from beside code: the environment and a file."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from agent_memory.core.limits import quoted
from agent_memory.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

PREFIX = "AGENT_MEMORY_"
NESTED = "__"

_HIDDEN = "**********"
_MOST = 16 * 2**20

_file: ContextVar[dict[str, Any] | None] = ContextVar("config_file", default=None)


class Sourced(BaseModel):
    """A frozen model whose fields can come from code, the environment and a file.

    What the code gives wins over the environment, and the environment over the file. Mappings are
    merged, key by key.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        validate_default=True,
        hide_input_in_errors=True,  # it may be a secret, in the wrong place
    )

    @model_validator(mode="wrap")
    @classmethod
    def _discreet(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Errors repeat nothing of what was given, in `errors()` either."""
        try:
            return handler(data)
        except ValidationError as error:
            raise ValidationError.from_exception_data(
                error.title, list(map(_without_input, error.errors())), hide_input=True
            ) from None

    def __init__(self, /, **fields: Any) -> None:
        settings = merged(_file.get() or {}, from_environment(type(self)))
        super().__init__(**merged(settings, fields))

    @classmethod
    def alone(cls, **fields: Any) -> Self:
        """From these fields only: neither a file nor the environment is asked.

        Raises:
            pydantic.ValidationError: A field is unknown or its value bad.
        """
        made = cls.__new__(cls)
        BaseModel.__init__(made, **fields)
        return made


def _without_input(told: ErrorDetails) -> InitErrorDetails:
    kind: Any = told["type"]  # pydantic wants literals
    says: Any = told["msg"]
    return InitErrorDetails(type=PydanticCustomError(kind, says), loc=told["loc"], input=_HIDDEN)


@contextmanager
def settings(table: dict[str, Any]) -> Iterator[None]:
    """Within this, every `Sourced` model reads these settings too, as those of a file."""
    token = _file.set(table)
    try:
        yield
    finally:
        _file.reset(token)


def from_environment(
    model: type[BaseModel], prefix: str = PREFIX, without: Collection[str] = ()
) -> dict[str, Any]:
    """The fields that the environment sets, as pydantic-settings reads it.

    Args:
        model: Whose fields.
        prefix: What their variables begin with, in capitals.
        without: Fields whose variables are passed over.

    Raises:
        pydantic_settings.SettingsError: A variable that stands for a list or table is not JSON.
    """
    if not any(name.upper().startswith(prefix) for name in os.environ):
        return {}
    from pydantic_settings import EnvSettingsSource  # slow to import, and seldom needed

    source = EnvSettingsSource(
        cast("type[BaseSettings]", model),  # any model has the fields and settings that it reads
        case_sensitive=False,
        env_prefix=prefix,
        env_nested_delimiter=NESTED,
    )
    passed = tuple(f"{prefix}{name}".lower() for name in without)
    source.env_vars = {
        name: value for name, value in source.env_vars.items() if not name.startswith(passed)
    }
    return source()


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both mappings in one, and those that they hold too; `above` wins."""
    both = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], dict) and isinstance(above[name], dict):
            both[name] = merged(below[name], above[name])
    return both


def read_text(path: Path, what: str) -> str:
    """The text of a file that people write.

    Args:
        path: The file.
        what: Names it in errors.

    Raises:
        ConfigError: It cannot be read, is no text in UTF-8, or is larger than anybody writes.
    """
    try:
        with path.open("rb") as file:  # which may have no end, as a device has none
            raw = file.read(_MOST + 1)
        if len(raw) <= _MOST:
            return raw.decode()
    except UnicodeDecodeError:
        told = "it is not UTF-8 text"
    except (OSError, ValueError) as error:  # ValueError: its path is none
        told = getattr(error, "strerror", None) or str(error)
    else:
        told = f"it has more than {_MOST // 2**20} MiB"
    raise ConfigError(f"Cannot read {what} {path}: {told}.") from None


def read_settings(given: str | Path) -> dict[str, Any]:
    """The table of settings that a file holds.

    Raises:
        ConfigError: The file cannot be read, or is not TOML, YAML or JSON.
    """
    if not isinstance(given, str | PathLike):
        raise ConfigError(f"Settings cannot be read from {quoted(given)}. Give the path of a file.")
    path = Path(given)
    text = read_text(path, "the configuration")
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
                    mark = getattr(error, "problem_mark", None)
                    line = f" (at line {mark.line + 1})" if mark else ""
                    # its text repeats the line, which may hold a password
                    raise ConfigError(f"{path} is not valid YAML{line}.") from None
            case _:
                raise ConfigError(f"{path} is not a .toml, .yaml, .yml or .json file.")
    except ValueError as error:
        raise ConfigError(f"{path} is not valid {path.suffix[1:].upper()}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} must hold a table of settings.")
    return found
