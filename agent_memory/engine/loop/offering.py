"""What a model is offered in a turn: tools of the memory, Python functions, the caller's own."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, to_json

from agent_memory.core.limits import quoted
from agent_memory.core.messages import Message
from agent_memory.core.tools import bad_arguments, untitled
from agent_memory.engine.recall.runner import resolve
from agent_memory.errors import InvalidInput, ToolRefused

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

GivenTool = Any
"""A schema in OpenAI's form, or a function; for type checkers a list of both is one of objects."""


class Offer:
    """The tools of one turn, by who runs them.

    Args:
        tools: Schemas and functions.
        known: Names of the memory's own tools.
        call: Runs one of these, by its name and arguments.

    Attributes:
        schemas: All of them, for the model.

    Raises:
        InvalidInput: Something else is among them, a function cannot be offered, or two have the
            same name.
    """

    def __init__(
        self,
        tools: Sequence[GivenTool] | None,
        known: Collection[str],
        call: Callable[[str, str], str],
    ) -> None:
        self.schemas: list[dict[str, Any]] = []
        self._here: dict[str, Callable[[str], str]] = {}
        self._named: set[str] = set()
        if not isinstance(tools, Iterable | None):
            raise InvalidInput(f"tools is {quoted(tools)}. Give a list of schemas or functions.")
        for tool in tools or ():
            if isinstance(tool, Mapping):
                name = str((tool.get("function") or {}).get("name", ""))
                self._new(name)
                self.schemas.append(dict(tool))
                if name in known:
                    self._here[name] = partial(call, name)
            elif callable(tool):
                function = _Function(tool)
                self._new(function.name)
                self.schemas.append(function.schema)
                self._here[function.name] = function.run
            else:
                raise InvalidInput(
                    f"Cannot offer a {type(tool).__name__} as a tool. Give OpenAI schemas or "
                    "Python functions."
                )

    @property
    def run_here(self) -> Collection[str]:
        """The names of those that are run here."""
        return self._here.keys()

    def is_run_here(self, call: Mapping[str, Any]) -> bool:
        """Whether a call is for a tool of the memory or a function."""
        return _asked(call)[0] in self._here

    def hands_back(self, answer: Message) -> bool:
        """Whether the caller has to run something that a model's answer asks for.

        Without schemas of the caller's own, what nobody offered is the model's mistake.
        """
        if "function_call" in (answer.to_openai() or {}):
            return True
        is_callers = len(self._here) < len(self.schemas)
        return is_callers and not all(map(self.is_run_here, answer.tool_calls or ()))

    def run(self, call: Mapping[str, Any]) -> str:
        """Do what a call asks for; the text is its result, for the model to read."""
        name, arguments = _asked(call)
        run = self._here.get(name)
        if run is None:
            return f"There is no tool {quoted(name)}. Use those that you were offered, or answer."
        try:
            return run(arguments)
        except ToolRefused as error:
            return str(error)

    def _new(self, name: str) -> None:
        if name in self._named:
            raise InvalidInput(f"Two tools are named {quoted(name)}. Give each a name of its own.")
        if name:
            self._named.add(name)


class _Function:
    """A Python function as a tool.

    Args:
        function: Sync or async. Its docstring tells the model what it does, its annotations what it
            takes.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = str(getattr(function, "__name__", ""))
        if not _NAME.fullmatch(self.name):
            raise InvalidInput(
                f"{function!r} has no name that a model can call it by. Give a function, made with "
                "`def`."
            )
        self._function = function

        @wraps(function)
        def taken(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
            return args, kwargs

        taken.__annotations__ = getattr(function, "__annotations__", {})  # built-in ones have none
        try:
            self._arguments: TypeAdapter[tuple[Any, Any]] = TypeAdapter(cast("Any", taken))
            parameters = untitled(self._arguments.json_schema())
        except (PydanticUserError, NameError, ValueError) as error:
            raise InvalidInput(
                f"What {self.name} takes cannot be told to a model: {error}. Annotate its "
                "parameters with types of JSON, or with pydantic models."
            ) from error
        if parameters.get("type") != "object":
            raise InvalidInput(
                f"{self.name} takes arguments without names, which models cannot give. Take the "
                "`/` or the `*` out of its parameters."
            )
        described = {"name": self.name, "description": inspect.getdoc(function) or ""}
        self.schema = {"type": "function", "function": {**described, "parameters": parameters}}

    def run(self, arguments: str) -> str:
        """Call it with what a model gave; what it returns, as text.

        Raises:
            ToolRefused: The arguments are not what it takes.
        """
        try:
            args, kwargs = self._arguments.validate_json(arguments or "{}")
        except ValidationError as error:
            raise bad_arguments(self.name, error) from None
        return _text(resolve(self._function(*args, **kwargs)))


def _asked(call: Mapping[str, Any]) -> tuple[str, str]:
    """The name and the arguments of a call."""
    function = call.get("function") or {}
    return str(function.get("name", "")), function.get("arguments") or ""


def _text(value: Any) -> str:
    """What a function returned, as the text that a model reads."""
    if isinstance(value, str):
        return value
    try:
        return to_json(value, fallback=str).decode()
    except PydanticSerializationError:  # bytes or half a surrogate pair within it
        return str(value)
