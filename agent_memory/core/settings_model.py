"""The base of models with settings, and the types of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SecretStr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
)
from pydantic import WrapSerializer as Serializer
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError
from pydantic_core.core_schema import no_info_after_validator_function

from agent_memory.core.limits import MOST, without_password
from agent_memory.errors import InvalidSetting

_WANTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "mapping_type": "a mapping",
    "sequence_str": "a list",
    "string_type": "text",
}


_BEGINNINGS = ("Input should be ", "Give a value ", "must be ")
_HINTS: dict[str, str] = dict.fromkeys(["session_id", "user_id"], "Pass it to each call.")


def as_base_init(init: Any) -> None:
    """Hide an `__init__` from pydantic, so that errors of nested models name the whole path."""
    init.__pydantic_base_init__ = True


class SettingsModel(BaseModel):
    """A frozen model with settings. Its errors do not show invalid values, which may be secrets."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True
    )

    if not TYPE_CHECKING:  # type checkers derive the arguments from the fields

        def __init__(self, /, **fields):
            try:
                super().__init__(**fields)
                return
            except ValidationError as error:
                sentence = sentence_of(error, type(self), fields)
            # The error is raised outside of `except`, so that its context does not hold the values.
            raise InvalidSetting(sentence)

        as_base_init(__init__)

        def __setattr__(self, name, value):
            if name in type(self).model_fields:
                raise InvalidSetting(
                    f"`{name}` of {_shown(type(self))} cannot be changed. "
                    f"Create another {_shown(type(self))} with the new value."
                )
            super().__setattr__(name, value)


def sentence_of(error: ValidationError, model: type[BaseModel], fields: Mapping[str, Any]) -> str:
    """Describe the invalid fields of a model, without their values."""
    by_path: dict[str, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        by_path.setdefault(".".join(_parts(detail, fields)), []).append(detail)
    return " ".join(
        _unknown([*_parts(errors[0], fields)], model, fields)
        if errors[0]["type"] == "extra_forbidden"
        else _invalid(path, errors, model)
        for path, errors in by_path.items()
        # A union gives errors for each of its types. An error deeper in the value shows which type
        # was meant, so only the deepest errors are kept.
        if not any(other.startswith(f"{path}.") for other in by_path)
    )


def _unknown(path: list[str], model: type[BaseModel], fields: Mapping[str, Any]) -> str:
    from difflib import get_close_matches

    *above, name = path
    owner = f"`{'.'.join(above)}`" if above else _shown(model)
    near = get_close_matches(name, _names_at(above, fields) if above else model.model_fields, n=1)
    hint = f"Did you mean `{near[0]}`?" if near else _HINTS.get(name, "Remove it.")
    return f"{owner} has no setting `{name}`. {hint}"


def _names_at(path: list[str], fields: Mapping[str, Any]) -> list[str]:
    """Return the setting names of all models that have the `kind` of the mapping at `path`."""
    value: Any = fields
    for part in path:
        value = value[part] if isinstance(value, Mapping) else value[int(part)]
    models: list[type[SettingsModel]] = SettingsModel.__subclasses__()
    for model in models:  # the list grows in this loop
        models += model.__subclasses__()
    return [
        name
        for model in models
        if getattr(model.model_fields.get("kind"), "default", None) == value.get("kind")
        for name in model.model_fields
    ]


def _invalid(path: str, errors: list[ErrorDetails], model: type[BaseModel]) -> str:
    name = f"`{path}` of {_shown(model)}" if path else _shown(model)
    return f"{name} {requirement(errors)}."


def requirement(errors: list[ErrorDetails]) -> str:
    """Describe the valid values of a field from its errors. Example: "must be text or a list"."""
    wanted: list[str] = []
    for detail in errors:
        kind, says = detail["type"], detail["msg"].removeprefix("Value error, ").rstrip(".")
        begins = next((begin for begin in _BEGINNINGS if says.startswith(begin)), None)
        if kind == "missing":
            return "is missing. Set it"
        if kind in _WANTED:
            wanted.append(_WANTED[kind])
        elif kind == "is_instance_of":
            expected = detail.get("ctx", {})["class"]
            wanted.append("a list" if expected == "Sequence" else f"a {expected}")
        elif begins is not None:
            wanted.append(says.removeprefix(begins))
        else:  # the sentence of a validator of this package
            return f"is not valid: {says}"
    return f"must be {' or '.join(dict.fromkeys(wanted))}"


def _parts(error: ErrorDetails, fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys and indexes of an error's location, without the tags that pydantic adds."""
    value: Any = fields
    for place, part in enumerate(error["loc"]):
        last = place == len(error["loc"]) - 1
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(part, int) and isinstance(value, Sequence) and not isinstance(value, str):
            value = value[part] if part < len(value) else None
        elif not place or (last and error["type"] in ("missing", "extra_forbidden")):
            value = None
        else:
            continue
        yield str(part)


def _shown(model: type[BaseModel]) -> str:
    return model.__name__.removesuffix("Config")


YEAR_SECONDS = 31_536_000


@dataclass(frozen=True, slots=True)
class Range:
    """Refuses values outside a range, and NaN. With `above`, `least` itself is refused too."""

    least: Any
    most: Any
    above: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        json_schema: dict[str, Any] = handler(schema)
        if isinstance(self.most, int):
            json_schema["exclusiveMinimum" if self.above else "minimum"] = self.least
            json_schema["maximum"] = self.most
        return json_schema

    def _check(self, value: Any) -> Any:
        if not self.least <= value <= self.most or (self.above and value == self.least):
            begins = f"above {self.least} and at most" if self.above else f"from {self.least} to"
            allowed_range = f"{begins} {self.most}"
            raise PydanticCustomError(
                "out_of_range", "Give a value {allowed}", {"allowed": allowed_range}
            )
        return value


Positive = Annotated[int, Range(1, MOST)]
Amount = Annotated[int, Range(0, MOST)]
Threads = Annotated[int, Range(1, 256)]

_InSeconds = BeforeValidator(
    lambda value: value.total_seconds() if isinstance(value, timedelta) else value
)

Seconds = Annotated[float, _InSeconds, Range(0, YEAR_SECONDS, above=True)]
"""A time limit of up to a year, in seconds or as a timedelta."""

Pause = Annotated[float, _InSeconds, Range(0, YEAR_SECONDS)]
"""A pause of up to a year, in seconds or as a timedelta. 0 for none."""

Weight = Annotated[float, Range(0, 1_000_000)]


def _with_unit(value: Any) -> Any:
    if isinstance(value, int | float):  # 90 may mean days, but would be read as seconds
        raise PydanticCustomError(
            "no_unit",
            'Input should be a duration with a unit, such as timedelta(days=90) or "P90D"',
        )
    return value


Duration = Annotated[
    timedelta, Range(timedelta(), timedelta(days=36_500), above=True), BeforeValidator(_with_unit)
]

MemoryRole = Literal["system", "user", "leading"]
"""The place of recalls in a context; see `MemoryContext.to_messages`."""

T = TypeVar("T")


def _unwrapped(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _serialized(value: Any, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
    if not isinstance(value, str):
        return handler(value)
    shown = without_password(value)
    if shown == value:
        return value
    return shown if info.mode == "json" else SecretStr(value)


Address = Annotated[T, BeforeValidator(_unwrapped), Serializer(_serialized)]
"""A field that may hold the address of a server.

`model_dump` returns an address with a password as a `SecretStr`, which the field accepts again. A
dump to JSON masks the password.
"""
