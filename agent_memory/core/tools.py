"""Tools that a model is offered: what it may ask of a memory, and how that is checked.

A tool knows nothing of users and sessions but the scope that its caller binds: none of its
arguments can name another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from agent_memory.core.records import Scope
from agent_memory.errors import ToolRefused

_VALUES = ("const", "default", "enum", "examples")
_MOST_PLACE = 300  # characters that say where it is wrong: a model nests and names as it likes


DOWN = "The memory cannot be reached right now. Go on without it, and try again later."
"""What a model reads in an outage; what went wrong is for people, in the log."""


READ_MESSAGE = "memory_read_message"
"""What a model calls to read a message on; whatever marks one as cut names it."""


Effect = Literal["read", "write", "delete"]
"""What comes of a call: something of the memory is told, is put there, or is gone from it."""

EFFECTS: tuple[Effect, ...] = get_args(Effect)
"""All of them."""


class Arguments(BaseModel):
    """Base of a tool's arguments. What is not listed is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class Tool:
    """One thing that a model may ask for.

    Attributes:
        name: What the model calls it; at most 64 of a-z, 0-9 and _.
        description: What it does and when to use it, for the model.
        arguments: What it takes. Field descriptions are for the model too.
        run: Does it, for the scope that the caller has bound and the checked arguments; gives the
            text that the model reads. An `InvalidInput` that it raises is for the model to read.
        effects: All that may come of a call. Who may not do all of that is not offered the tool.
    """

    name: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Scope, Any], str]
    effects: tuple[Effect, ...] = EFFECTS

    def schema(self) -> dict[str, Any]:
        """The tool in OpenAI's form, as chat APIs take it."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters(),
            },
        }

    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        schema: dict[str, Any] = untitled(self.arguments.model_json_schema())
        schema.pop("description", None)  # the class's docstring, which is for people
        named = schema.get("properties", {})
        schema["properties"] = {name: _given(one) for name, one in named.items()}
        return schema

    def call(self, scope: Scope, arguments: Mapping[str, Any] | str | None) -> str:
        """Check the arguments, and do it.

        Args:
            scope: Whose memory.
            arguments: A mapping, or its JSON, as models send it; None and "" for none.

        Raises:
            ToolRefused: They are not what the tool takes.
            InvalidInput: It cannot be done; the sentence is for the model.
        """
        return self.run(scope, self._checked(arguments))

    def _checked(self, arguments: Mapping[str, Any] | str | None) -> Arguments:
        given: Any = arguments
        if isinstance(arguments, str):
            given = self._read(arguments) if arguments.strip() else None
        if given is None:
            given = {}
        if not isinstance(given, Mapping):
            raise ToolRefused(f"The arguments of {self.name} are not a JSON object. Send one.")
        try:
            return self.arguments.model_validate(dict(given))
        except ValidationError as error:
            raise bad_arguments(self.name, error) from None

    def _read(self, arguments: str) -> Any:
        try:
            return from_json(arguments, allow_inf_nan=False)
        except (ValueError, TypeError) as error:  # TypeError: what UTF-8 cannot say
            raise ToolRefused(
                f"The arguments of {self.name} are not JSON: {error}. Send them as one JSON object."
            ) from None


def bad_arguments(name: str, error: ValidationError) -> ToolRefused:
    """What is wrong with the arguments that a tool was called with, for the model to read."""
    found = "; ".join(_problem_at(one["loc"], one["msg"]) for one in error.errors()[:3])
    return ToolRefused(f"{name} was called with bad arguments: {found}.")


def _problem_at(place: tuple[int | str, ...], problem: str) -> str:
    name = ".".join(str(part) for part in place)
    if len(name) > _MOST_PLACE:
        name = name[:_MOST_PLACE] + "..."
    return f"{name}: {problem.rstrip('.')}" if name else problem.rstrip(".")


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """Of what may be left out, the schema of what is given: that null will do costs tokens."""
    forms = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(forms) != 1 or schema.get("default") is not None:
        return schema
    rest = {key: one for key, one in schema.items() if key not in ("anyOf", "default")}
    return {**forms[0], **rest}


def untitled(schema: Any) -> Any:
    """A JSON schema without the titles that pydantic adds: they cost tokens and say nothing."""
    if isinstance(schema, list):
        return [untitled(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "title"}
    for key, value in kept.items():
        if key in ("properties", "$defs"):
            kept[key] = _properties(value)
        elif key not in _VALUES:
            kept[key] = untitled(value)
    return kept


def _properties(named: dict[str, Any]) -> dict[str, Any]:
    """Schemas by name: a property may be called "title"."""
    return {name: untitled(schema) for name, schema in named.items()}
