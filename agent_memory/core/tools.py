"""Tools for a model: methods, their schemas in each provider's form, and the validation of calls.

The calling code passes the scope (user and session) of a call. The model's arguments cannot name
another user, nor a session of another user.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import PydanticSerializationError, from_json, to_json

from agent_memory.core.formats.registry import ANTHROPIC, CHAT, GOOGLE, LANGCHAIN, RESPONSES
from agent_memory.core.limits import quoted
from agent_memory.core.records import Scope
from agent_memory.errors import InvalidInput, ToolRefused

_VALUE_KEYWORDS = ("const", "default", "enum", "examples")  # their content is no schema
_MOST_PLACE = 300  # characters of the path to a wrong argument, which the model wrote

_SCHEMA_KEYS = {  # by format, the key of the arguments' schema in a tool
    CHAT: "parameters",
    RESPONSES: "parameters",
    ANTHROPIC: "input_schema",
    GOOGLE: "parameters_json_schema",
    LANGCHAIN: "parameters",
    "mcp": "inputSchema",
}

DOWN = "The memory cannot be reached right now. Go on without it, and try again later."
"""The answer of a tool while the store cannot be reached. The error itself is logged."""


READ_MESSAGE = "memory_read_message"
"""The name of the tool that reads a message in full. Shortened messages refer to this tool."""


Effect = Literal["read", "write", "delete"]
EFFECTS: tuple[Effect, ...] = get_args(Effect)


class Arguments(BaseModel):
    """Base of a tool's arguments. Unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool that a model may call.

    Attributes:
        name: The name for the model, with at most 64 characters of a-z, 0-9 and _.
        description: The purpose of the tool and when to use it, for the model.
        arguments: The arguments. Field descriptions are for the model too.
        run: Runs the tool for a scope and the validated arguments, and returns the text for the
            model. If it raises `InvalidInput`, the error's text is for the model.
        effects: The possible effects of a call. A model is offered the tool only if all these
            effects are permitted.
    """

    name: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Scope, Any], str]
    effects: tuple[Effect, ...] = EFFECTS

    def schema(self, format: str = CHAT) -> dict[str, Any]:
        """Return the tool in a provider's format.

        Args:
            format: "openai.chat", "openai.responses", "anthropic.messages", "google.contents",
                "langchain" or "mcp".

        Raises:
            InvalidInput: The format has no tools.
        """
        place = _SCHEMA_KEYS.get(format) if isinstance(format, str) else None
        if place is None:
            formats = ", ".join(_SCHEMA_KEYS)
            raise InvalidInput(f"The format {quoted(format)} has no tools. Formats: {formats}.")
        described = {"name": self.name, "description": self.description, place: self.parameters()}
        if format in (CHAT, LANGCHAIN):
            return {"type": "function", "function": described}
        if format == RESPONSES:  # strict schemas have no optional arguments
            return {"type": "function", **described, "strict": False}
        return described

    def parameters(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        schema: dict[str, Any] = from_json(_parameters(self.arguments))
        return schema

    def call(self, scope: Scope, arguments: Mapping[str, Any] | str | None) -> str:
        """Validate the arguments, run the tool, and return its result as text or JSON.

        Args:
            scope: The user and session.
            arguments: A mapping, or its JSON, as models send it. None and "" mean no arguments.

        Raises:
            ToolRefused: The arguments are invalid.
            InvalidInput: The call cannot be carried out. The error text is for the model.
        """
        return result_text(self.run(scope, self._checked(arguments)))

    def _checked(self, arguments: Mapping[str, Any] | str | None) -> Arguments:
        values: Any = arguments
        try:
            if isinstance(arguments, str):
                values = from_json(arguments.strip() or "null", allow_inf_nan=False)
        except (ValueError, TypeError) as error:  # TypeError: text that UTF-8 cannot encode
            raise ToolRefused(
                f"The arguments of {self.name} are not JSON: {error}. Send them as one JSON object."
            ) from None
        if not isinstance(values, Mapping | None):
            raise ToolRefused(f"The arguments of {self.name} are not a JSON object. Send one.")
        try:
            return self.arguments.model_validate(dict(values or {}))
        except ValidationError as error:
            raise bad_arguments(self.name, error) from None


M = TypeVar("M", bound=Callable[..., str])
_MARK = "__tool__"


def tool(name: str, description: str, effects: tuple[Effect, ...] = EFFECTS) -> Callable[[M], M]:
    """Mark a method as a tool; see `tools_of`.

    The method takes a scope and the tool's arguments, and returns text, or data for JSON. The
    schema comes from the method's signature. A default may be pydantic's `Field(...)`. "{name}" in
    `name` or `description` is replaced by the attribute `name` of the method's object.
    """

    def mark(method: M) -> M:
        if inspect.iscoroutinefunction(method):
            raise InvalidInput(f"The tool {name!r} is an async function. Define it without async.")
        setattr(method, _MARK, (name, description, effects))
        return method

    return mark


def tools_of(owner: Any, **words: object) -> list[Tool]:
    """Return the tools of an object. `words` replace further names in braces; see `tool`."""
    words = {"name": getattr(owner, "name", ""), **words}
    methods = {name: item for cls in type(owner).__mro__[::-1] for name, item in vars(cls).items()}
    return [
        _tool(getattr(owner, name), method, words)
        for name, method in methods.items()
        if hasattr(method, _MARK)
    ]


def _tool(bound: Callable[..., str], method: Any, words: Mapping[str, object]) -> Tool:
    name, description, effects = getattr(method, _MARK)
    arguments, takes_model = _arguments(method)

    def run(scope: Scope, values: Arguments) -> str:
        return bound(scope, values) if takes_model else bound(scope, **dict(values))

    return Tool(name.format(**words), description.format(**words), arguments, run, effects)


@cache
def _arguments(method: Callable[..., str]) -> tuple[type[Arguments], bool]:
    """Return a method's arguments as a pydantic model, and whether the method takes the model."""
    hints = get_type_hints(method, include_extras=True)
    _, _, *parameters = inspect.signature(method).parameters.values()
    first = hints.get(parameters[0].name) if parameters else None
    if isinstance(first, type) and issubclass(first, Arguments):
        return first, True
    fields: dict[str, Any] = {
        each.name: (hints.get(each.name, Any), ... if each.default is each.empty else each.default)
        for each in parameters
    }
    return create_model(method.__name__, __base__=Arguments, **fields), False


def result_text(value: Any) -> str:
    """Return a tool's result as text for the model: a text unchanged, other values as JSON."""
    if isinstance(value, str):
        return value
    try:
        return to_json(value, fallback=str).decode()
    except PydanticSerializationError:  # the value contains bytes or a lone surrogate
        return str(value)


def bad_arguments(name: str, error: ValidationError) -> ToolRefused:
    """Return the error for invalid arguments. Its text is for the model."""
    problems = "; ".join(_problem_at(each["loc"], each["msg"]) for each in error.errors()[:3])
    return ToolRefused(f"{name} was called with bad arguments: {problems}.")


def _problem_at(place: tuple[int | str, ...], problem: str) -> str:
    name = ".".join(str(part) for part in place)
    if len(name) > _MOST_PLACE:
        name = name[:_MOST_PLACE] + "..."
    return f"{name}: {problem.rstrip('.')}" if name else problem.rstrip(".")


@lru_cache(256)  # a conversation needs the schemas at each turn
def _parameters(arguments: type[Arguments]) -> bytes:
    schema: dict[str, Any] = untitled(arguments.model_json_schema())
    schema.pop("description", None)  # the docstring of the class, which is not for models
    properties = schema.get("properties", {})
    schema["properties"] = {name: _without_null(each) for name, each in properties.items()}
    return to_json(schema)


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional argument without null, which would cost tokens."""
    forms = [form for form in schema.get("anyOf", ()) if form != {"type": "null"}]
    if len(forms) != 1 or schema.get("default") is not None:
        return schema
    rest = {key: form for key, form in schema.items() if key not in ("anyOf", "default")}
    return {**forms[0], **rest}


def untitled(schema: Any) -> Any:
    """Return a JSON schema without pydantic's titles, which only cost tokens."""
    if isinstance(schema, list):
        return [untitled(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    stripped = {key: value for key, value in schema.items() if key != "title"}
    for key, value in stripped.items():
        if key in ("properties", "$defs"):
            # a property may be named "title"
            stripped[key] = {name: untitled(item) for name, item in value.items()}
        elif key not in _VALUE_KEYWORDS:
            stripped[key] = untitled(value)
    return stripped
