"""The rounds of a turn: a model calls tools, reads their results, and finally answers."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Self, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from agent_memory.core.limits import quoted
from agent_memory.core.messages import Message
from agent_memory.core.threads import wanted_until
from agent_memory.core.tools import bad_arguments, result_text, untitled
from agent_memory.core.turns import EARLIER, Turn, answer_in, check_so_far, open_calls, turn_of
from agent_memory.engine.reading import readable
from agent_memory.engine.recall.runner import resolve
from agent_memory.errors import InvalidInput, ModelOutputInvalid, ToolRefused
from agent_memory.models.usage import Account, Usage

if TYPE_CHECKING:
    from agent_memory.engine.recall.contexts import Pack
    from agent_memory.models.llm import LLM

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

ToolLike = Any
"""A tool: an OpenAI schema or a function. Type checkers infer `list[object]` for a mixed list, so
the type is `Any`."""


class Offer:
    """The tools that the model may call in one turn, as passed to `completion`.

    `call` runs a `built_in` tool, one of the memory's own, by its name and JSON arguments.
    """

    def __init__(
        self,
        tools: Sequence[ToolLike] | None,
        built_in: Collection[str],
        call: Callable[[str, str], str],
    ) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.run_here: dict[str, Callable[[str], str]] = {}
        self._named: set[str] = set()
        if not isinstance(tools, Iterable | None):
            raise InvalidInput(f"tools is {quoted(tools)}. Give a list of schemas or functions.")
        for tool in tools or ():
            if isinstance(tool, Mapping):
                name = str((tool.get("function") or {}).get("name", ""))
                self._new(name)
                self.schemas.append(dict(tool))
                if name in built_in:
                    self.run_here[name] = partial(call, name)
            elif callable(tool):
                function = _Function(tool)
                self._new(function.name)
                self.schemas.append(function.schema)
                self.run_here[function.name] = function.run
            else:
                raise InvalidInput(
                    f"Cannot offer a {type(tool).__name__} as a tool. Give OpenAI schemas or "
                    "Python functions."
                )

    def is_run_here(self, call: Mapping[str, Any]) -> bool:
        """Return whether a call is for a tool of the memory or for a function."""
        return _request(call)[0] in self.run_here

    def hands_back(self, answer: Message) -> bool:
        """Return whether a model's answer has a tool call that the caller of `completion` must run.

        If the caller passed no schemas, an unknown tool name is a mistake of the model.
        """
        if (answer.to_openai() or {}).get("function_call"):
            return True
        is_callers = len(self.run_here) < len(self.schemas)
        return is_callers and not all(map(self.is_run_here, answer.tool_calls or ()))

    def run(self, call: Mapping[str, Any]) -> str:
        """Run a tool call. Return the result for the model, or the text of a `ToolRefused`."""
        name, arguments = _request(call)
        run = self.run_here.get(name)
        if run is None:
            return f"There is no tool {quoted(name)}. Use the tools that were offered, or answer."
        try:
            return run(arguments)
        except ToolRefused as error:
            return str(error)

    def _new(self, name: str) -> None:
        if name in self._named:
            raise InvalidInput(f"Two tools are named {quoted(name)}. Give each tool its own name.")
        if name:
            self._named.add(name)


class _Function:
    """A Python function as a tool, described to the model by its docstring and annotations."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = str(getattr(function, "__name__", ""))
        if not _NAME.fullmatch(self.name):
            raise InvalidInput(
                f"{function!r} has no name that a model could use. Give a function that is defined "
                "with `def`."
            )
        self._function = function

        @wraps(function)
        def taken(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
            return args, kwargs

        taken.__annotations__ = getattr(function, "__annotations__", {})  # built-ins have none
        try:
            self._arguments: TypeAdapter[tuple[Any, Any]] = TypeAdapter(cast("Any", taken))
            parameters = untitled(self._arguments.json_schema())
        except (PydanticUserError, NameError, ValueError) as error:
            raise InvalidInput(
                f"The parameters of {self.name} have no JSON schema: {error}. Annotate its "
                "parameters with types of JSON, or with pydantic models."
            ) from error
        if parameters.get("type") != "object":
            raise InvalidInput(
                f"{self.name} takes arguments without names, which models cannot give. Remove "
                "the `/` or the `*` from its parameters."
            )
        described = {"name": self.name, "description": inspect.getdoc(function) or ""}
        self.schema = {"type": "function", "function": {**described, "parameters": parameters}}

    def run(self, arguments: str) -> str:
        """Call the function with a model's arguments and return the result as text."""
        try:
            args, kwargs = self._arguments.validate_json(arguments or "{}")
        except ValidationError as error:
            raise bad_arguments(self.name, error) from None
        return result_text(resolve(self._function(*args, **kwargs)))


def _request(call: Mapping[str, Any]) -> tuple[str, str]:
    function = call.get("function") or {}
    return str(function.get("name", "")), function.get("arguments") or ""


Chunks = Generator[Any, None, Any]


@dataclass(eq=False)
class Conversation:
    """Runs the rounds of one turn.

    Raises `InvalidMessage` if a tool call in the turn has no result and only the caller can run it.
    """

    _turn: Turn
    _pack: Pack
    _llm: LLM
    _offer: Offer
    _max_rounds: int
    _options: Mapping[str, Any]
    _store: Callable[[Turn, Message, Any], Chunks]

    def __post_init__(self) -> None:
        messages = self._turn.turn_messages
        self._waiting = list(filter(self._offer.is_run_here, open_calls(messages)))
        check_so_far(messages, self._waiting)

    def rounds(self, *, stream: bool) -> Chunks:
        """Call the model and run its tools until the model answers. Then store the turn.

        With `stream`, yield the chunks of all rounds. Return the model's last response. If that
        response calls a tool that the caller must run, nothing is stored. If the model calls tools
        after the last round, raise `ModelOutputInvalid`.
        """
        first = len(self._turn.turn_messages)
        turn = self._done(self._turn, [], self._waiting)
        for run in range(self._max_rounds + 1):
            is_last = run == self._max_rounds
            fields = self._fields(is_first=run == 0, is_last=is_last)
            if stream:
                response = yield from self._llm.chunks(turn.messages, **fields)
            else:
                response = self._llm.respond(turn.messages, **fields)
            answer = answer_in(response)
            if self._offer.hands_back(answer):
                earlier = turn.turn_messages[first:]
                if earlier:
                    setattr(response, EARLIER, [message.to_dict() for message in earlier])
                return response
            if not answer.tool_calls:
                return (yield from self._store(turn, answer, response))
            if not is_last:
                turn = self._done(turn, [answer], answer.tool_calls)
        raise ModelOutputInvalid(
            f"{self._llm.model} calls more tools after max_rounds={self._max_rounds} rounds, "
            "although it was told to answer. Nothing was stored. Raise max_rounds, or ask for "
            "less at once."
        )

    def _fields(self, *, is_first: bool, is_last: bool) -> dict[str, Any]:
        """Return the arguments of one request, without its messages.

        Only the first request has the caller's `tool_choice`: a model that must call a tool in each
        round would never answer.
        """
        fields = dict(self._options)
        if not is_first:
            fields.pop("tool_choice", None)
        if self._offer.schemas:
            fields["tools"] = self._offer.schemas
            if is_last:
                fields["tool_choice"] = "none"
        return fields

    def _done(
        self, turn: Turn, messages: Iterable[Message], calls: Iterable[Mapping[str, Any]]
    ) -> Turn:
        """Run tool calls. Return the turn with new messages and with the results of the calls."""
        so_far, todo = [*turn.turn_messages, *messages], list(calls)
        for call in todo:
            with readable(turn.session_id, turn.context.head, so_far):
                text = self._offer.run(call)
            so_far.append(Message(role="tool", tool_call_id=str(call.get("id")), content=text))
        if len(so_far) == len(turn.turn_messages):
            return turn
        return turn_of(turn.session_id, turn.user_id, so_far, self._pack(so_far), turn.regenerates)


class CompletionStream:
    """An iterator of litellm's chunks, as they arrive. When the iterator ends, the turn is stored.

    If a stream is closed before its end, or fails, nothing is stored. With `include_usage`, chunks
    that have no choices and report only the usage are yielded too.

    Attributes:
        response: The whole response of the last round. None until the stream has ended.
            `response.cost` is the cost of the whole turn.
    """

    def __init__(self, chunks: Chunks, account: Account, *, include_usage: bool = False) -> None:
        self._chunks = chunks
        self._account = account
        self._include_usage = include_usage
        self._reading = threading.Lock()
        self._stopped = False
        self.response: Any = None

    @property
    def usage(self) -> Usage:
        """The model usage of this turn so far, including recall."""
        return self._account.usage

    @property
    def cost(self) -> float | None:
        """The cost so far in US dollars. None if the price of a model is unknown."""
        return self.usage.cost

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self._reading, wanted_until(lambda: self._stopped):
            try:
                while not self._stopped:
                    chunk = next(self._chunks)
                    if chunk.choices or self._include_usage:
                        return chunk
                raise StopIteration
            except StopIteration as end:
                if end.value is not None:
                    self.response = end.value
                    setattr(self.response, "cost", self.cost)  # noqa: B010 - the class is litellm's
                raise
            finally:
                if self._stopped:
                    self._chunks.close()

    def close(self) -> None:
        """Stop, from any thread. A reading thread stops after its current chunk or attempt."""
        self._stopped = True
        if self._reading.acquire(blocking=False):
            try:
                self._chunks.close()
            finally:
                self._reading.release()
