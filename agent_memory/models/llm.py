"""The language model, which returns text, streamed text, or an instance of a pydantic model."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from agent_memory.core.threads import is_unwanted, off_main_thread
from agent_memory.core.tracing import current
from agent_memory.errors import ModelOutputInvalid
from agent_memory.models.loading import load_litellm
from agent_memory.models.provider import Provider
from agent_memory.models.tracing import answered, traced
from agent_memory.models.usage import Call, Charges, Ledger, Usage

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["LLM", "Charges", "Ledger", "Usage"]

T = TypeVar("T", bound=BaseModel)
ChatMessages = Sequence[dict[str, Any]]

DEFAULT_CONTEXT_WINDOW = 8192

_END = object()
_OTHER_CONTENT = ("tool_calls", "function_call", "audio", "images")
_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n?\s*```", re.DOTALL)


class LLM(Provider):
    """A chat model by its litellm name, such as "openai/gpt-4o-mini". Thread-safe."""

    def complete(self, messages: ChatMessages, **options: Any) -> str:
        """Return the model's answer to OpenAI-style messages; for options see `respond`.

        Raises:
            ModelUnavailable: All attempts failed; a later call may succeed.
            ModelRefused: The provider rejected the key or the request.
            ContextTooLong: The messages exceed the context window.
            ModelOutputInvalid: The answer was empty.
        """
        text = self.respond(messages, **options).choices[0].message.content
        if not text or not text.strip():
            raise ModelOutputInvalid(f"{self.model} answered with no text.")
        return str(text)

    def respond(self, messages: ChatMessages, **options: Any) -> Any:
        """Return the model's whole response in litellm's form, with text or tool calls.

        Args:
            **options: Further fields for litellm to send, such as `max_tokens` or `tools`.
        """
        fields = {"messages": list(messages), **options}
        limit = options.get("max_tokens")
        return self.answered("completion", messages, fields, limit, self._checked)

    def chunks(self, messages: ChatMessages, **options: Any) -> Generator[Any, None, Any]:
        """Yield litellm's chunks as they arrive. The generator returns the whole response.

        A chunk without choices reports the usage, even if the caller did not request the usage.
        There are no retries after the first chunk. If the stream is not read to its end, the usage
        is an estimate for the part that was read.
        """
        stream_options = {"include_usage": True, **(options.get("stream_options") or {})}
        fields = {**options, "stream_options": stream_options, "stream": True}
        call = self.begin("completion", messages, options.get("max_tokens"))
        with traced(call, self.api_base, fields) as span:
            response, usage = yield from self._streamed(call, messages, fields, span)
            answered(span, response, usage)
            return self._checked(response)

    @off_main_thread
    def _opened(self, messages: ChatMessages, fields: dict[str, Any]) -> Reading:
        """Open a stream. If the caller was interrupted meanwhile, close the stream."""
        stream = Reading(self.send("completion", messages=list(messages), **fields))
        if is_unwanted():
            stream.close()
        return stream

    def _streamed(
        self, call: Call, messages: ChatMessages, fields: dict[str, Any], span: Span | None
    ) -> Generator[Any, None, tuple[Any, Usage]]:
        def begin() -> tuple[list[Any], Reading]:
            stream = self._opened(messages, fields)
            try:
                return list(islice(stream, 1)), stream
            except BaseException:
                stream.close()
                raise

        with current(span):  # this block ends before the caller gets a chunk
            read, stream = self.retried(call, begin)
        try:
            yield from read
            with self.translated(call, midway=True):
                for chunk in stream:
                    read.append(chunk)
                    yield chunk
                self.check_complete(call, stream.stream)
                response = load_litellm().stream_chunk_builder(read, messages=list(messages))
        except GeneratorExit:
            self.charges.left(
                call,
                "".join(chunk.choices[0].delta.content or "" for chunk in read if chunk.choices),
            )
            raise
        finally:
            stream.close()
        # litellm counts the tokens if no chunk reports the usage
        is_reported = any(getattr(chunk, "usage", None) for chunk in read)
        charges = self.charges
        return response, charges.done(call, response.usage, response, estimated=not is_reported)

    def as_response(self, message: Mapping[str, Any]) -> Any:
        """Wrap an assistant's message in a litellm response."""
        choice = {"index": 0, "finish_reason": "stop", "message": dict(message)}
        return load_litellm().ModelResponse(model=self.model, choices=[choice])

    def as_chunk(self, message: Mapping[str, Any]) -> Any:
        """Wrap an assistant's message in the only chunk of a stream."""
        kinds = load_litellm().types.utils
        delta = kinds.Delta(**dict(message))
        choice = kinds.StreamingChoices(index=0, finish_reason="stop", delta=delta)
        return kinds.ModelResponseStream(model=self.model, choices=[choice])

    def structured(self, messages: ChatMessages, schema: type[T], **options: Any) -> T:
        """Return the answer as an instance of `schema`; for options see `respond`.

        If the first answer is invalid, a second request shows the language model this answer with
        its validation errors.

        Raises:
            ModelOutputInvalid: Both answers were invalid, or an answer was empty.
        """
        is_supported = load_litellm().supports_response_schema(self.model)
        request = list(messages) if is_supported else _with_schema(messages, schema)
        options |= {"response_format": schema if is_supported else {"type": "json_object"}}
        problem: ValidationError | None = None
        for _ in range(2):
            text = self.complete(request, **options)
            try:
                return _parse(text, schema)
            except ValidationError as error:
                problem = error
            correction = (
                f"That answer does not have the requested form:\n{problem}\n"
                "Answer again, with the corrected JSON only."
            )
            request += [
                {"role": "assistant", "content": text},
                {"role": "user", "content": correction},
            ]
        raise ModelOutputInvalid(
            f"{self.model} answered twice, but no answer fits the schema {schema.__name__}. "
            "Use another model, if possible one with structured output."
        ) from problem

    def context_window(self) -> int:
        """Return the tokens of the context window; 8192 if litellm does not know the model."""
        try:
            info = load_litellm().get_model_info(self.model, api_base=self.api_base)
        except Exception as error:  # litellm raises a plain Exception for an unknown model
            if "isn't mapped" not in str(error):
                raise
            info = {}
        return int(info.get("max_input_tokens") or DEFAULT_CONTEXT_WINDOW)

    def _checked(self, response: Any) -> Any:
        """Return the response if it has text or tool calls."""
        choice = response.choices[0] if response.choices else None
        if choice is None or not _says_something(choice.message):
            reason = getattr(choice, "finish_reason", None)
            raise ModelOutputInvalid(
                f"{self.model} answered with no text (finish reason: {reason}). Try again, or "
                "use another model. If the request limits its `max_tokens`, raise the limit."
            )
        return response


class Reading(Iterator[Any]):
    """The chunks of a litellm stream.

    litellm and the HTTP client hold locks while a chunk is read. A signal handler that raises then
    would leave the locks held forever. The main thread therefore reads each chunk on another
    thread.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        # Disable the finalizer, which sets context variables. Before Python 3.12, it may run while
        # another variable is being set, and then crashes the process (python/cpython#148891).
        logged = getattr(stream, "logging_obj", None)
        if logged is not None:
            logged._restore_correlation_context_if_unclaimed = None
        self._lock = threading.Lock()
        self._stopped = False

    def __next__(self) -> Any:
        chunk = self._step()
        if chunk is _END:
            raise StopIteration
        return chunk

    @off_main_thread
    def _step(self) -> Any:
        try:
            with self._lock:
                return _END if self._stopped else next(self.stream, _END)
        finally:  # outside the lock: if `close` ran meanwhile, this call closes the connection
            if self._stopped:
                self._hang_up()

    @off_main_thread
    def close(self) -> None:
        """Close the connection, or let a thread that is reading a chunk close it afterwards."""
        self._stopped = True
        self._hang_up()

    def _hang_up(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                close = getattr(self.stream.completion_stream, "close", None)
                if close is not None:
                    close()
            finally:
                self._lock.release()


def _says_something(message: Any) -> bool:
    text = message.content
    if isinstance(text, str) and text.strip():
        return True
    return any(getattr(message, name, None) for name in _OTHER_CONTENT)


def _with_schema(messages: ChatMessages, schema: type[BaseModel]) -> list[dict[str, Any]]:
    """Add the schema to the messages as text, for models whose requests cannot contain a schema.

    The text extends a leading system message, because some models accept only one such message.
    """
    text = (
        "Answer with one JSON object only, without any other text, that is valid under this JSON "
        f"schema:\n{json.dumps(schema.model_json_schema(), ensure_ascii=False)}"
    )
    first = messages[0] if messages else {}
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _parse(text: str, schema: type[T]) -> T:
    """Parse a JSON answer. Some models put it between ``` fences."""
    fenced = _FENCE.search(text)
    if fenced is not None and not text.lstrip().startswith(("{", "[")):
        text = fenced[1]
    return schema.model_validate_json(text.strip())
