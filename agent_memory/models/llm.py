"""The language model: text, streamed text, or an answer that fits a pydantic schema."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from itertools import islice
from typing import Any, Self, TypeVar

from pydantic import BaseModel, SecretStr, ValidationError

from agent_memory.core.threads import apart, given_up
from agent_memory.core.tracing import Span, current
from agent_memory.errors import ModelOutputInvalid
from agent_memory.models.loading import load_litellm
from agent_memory.models.provider import Provider
from agent_memory.models.reading import Reading
from agent_memory.models.tracing import answered, asking
from agent_memory.models.usage import Account, Call, Charges, Ledger, Usage

__all__ = ["LLM", "Charges", "Ledger", "Usage"]

T = TypeVar("T", bound=BaseModel)
ChatMessages = Sequence[dict[str, Any]]

DEFAULT_CONTEXT_WINDOW = 8192

_SAID_OTHERWISE = ("tool_calls", "function_call", "audio", "images")
_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n?\s*```", re.DOTALL)


class LLM:
    """A chat model by its litellm name. Thread-safe.

    Retries with growing waits after rate limits, timeouts, lost connections and server errors.

    Args:
        model: A litellm model name, such as "openai/gpt-4o-mini".
    """

    def __init__(
        self,
        model: str,
        *,
        api_base: str | None = None,
        api_key: SecretStr | None = None,
        timeout: float = 30.0,
        attempts: int = 4,
        max_wait: float = 20.0,
        initial_wait: float = 0.5,
        charges: Charges | None = None,
    ) -> None:
        self.model = model
        self._provider = Provider(
            model,
            api_base=api_base,
            api_key=api_key,
            timeout=timeout,
            attempts=attempts,
            max_wait=max_wait,
            initial_wait=initial_wait,
            charges=charges,
        )
        self._window: int | None = None

    def __repr__(self) -> str:
        return f"LLM({self.model!r})"

    @property
    def ledger(self) -> Ledger:
        """The ledger that adds up usage."""
        return self._provider.ledger

    def charged_to(self, account: Account) -> Self:
        """Return the same model with all its calls charged to one account."""
        other = copy(self)
        other._provider = self._provider.charged_to(account)
        return other

    def complete(
        self,
        messages: ChatMessages,
        *,
        max_tokens: int | None = None,
        timeout: float | None = None,
    ) -> str:
        """Return the model's answer to OpenAI-style messages.

        Raises:
            ModelUnavailable: All attempts failed; a later call may succeed.
            ModelRefused: The provider rejected the key or the request.
            ContextTooLong: The messages exceed the context window.
            ModelOutputInvalid: The answer was empty.
        """
        return self._ask(messages, max_tokens=max_tokens, timeout=timeout)

    def stream(
        self,
        messages: ChatMessages,
        *,
        max_tokens: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[str]:
        """Yield the answer in pieces as they arrive. Does not retry after the first piece.

        If the stream is not read to its end, its usage is an estimate for the part that was read.
        """
        with closing(self.chunks(messages, max_tokens=max_tokens, timeout=timeout)) as chunks:
            for chunk in chunks:
                if text := _text_of(chunk):
                    yield text

    def respond(self, messages: ChatMessages, **options: Any) -> Any:
        """Return the model's whole response as litellm gives it: a text or tool calls."""
        call = self._provider.begin("completion", messages, options.get("max_tokens"))
        with asking(call, self._provider.api_base, options) as span:
            with current(span):
                response = self._provider.retried(
                    call,
                    lambda: self._provider.send("completion", messages=list(messages), **options),
                )
            usage = getattr(response, "usage", None)
            answered(span, response, self._provider.charges.done(call, usage, response))
            return self._checked(response)

    def chunks(self, messages: ChatMessages, **options: Any) -> Generator[Any, None, Any]:
        """Yield litellm's chunks as they arrive, and return the whole response.

        A chunk without choices reports the usage, even if the caller did not request it. Does not
        retry after the first chunk. If the stream is not read to its end, its usage is an estimate
        for the part that was read.
        """
        asked = options.get("stream_options") or {}
        fields = {**options, "stream_options": {"include_usage": True, **asked}, "stream": True}
        call = self._provider.begin("completion", messages, options.get("max_tokens"))
        with asking(call, self._provider.api_base, fields) as span:
            response, took = yield from self._streamed(call, messages, fields, span)
            answered(span, response, took)
            return self._checked(response)

    @apart
    def _opened(self, messages: ChatMessages, fields: dict[str, Any]) -> Reading:
        """Open a stream, and close it again if the caller is interrupted meanwhile."""
        stream = Reading(self._provider.send("completion", messages=list(messages), **fields))
        if given_up():
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

        with current(span):  # only while reading, not while the caller handles a chunk
            read, stream = self._provider.retried(call, begin)
        try:
            yield from read
            with self._provider.translated(call, midway=True):
                for chunk in stream:
                    read.append(chunk)
                    yield chunk
                self._provider.whole(call, stream.stream)
                response = load_litellm().stream_chunk_builder(read, messages=list(messages))
        except GeneratorExit:
            self._provider.charges.left(call, "".join(map(_text_of, read)))
            raise
        finally:
            stream.close()
        told = any(getattr(chunk, "usage", None) for chunk in read)  # otherwise litellm counts
        charges = self._provider.charges
        return response, charges.done(call, response.usage, response, estimated=not told)

    def as_response(self, message: Mapping[str, Any]) -> Any:
        """Wrap an assistant's message in a litellm response."""
        choice = {"index": 0, "finish_reason": "stop", "message": dict(message)}
        return load_litellm().ModelResponse(model=self.model, choices=[choice])

    def as_chunk(self, message: Mapping[str, Any]) -> Any:
        """Wrap an assistant's message in the only chunk of a stream."""
        kinds = load_litellm().types.utils
        choice = kinds.StreamingChoices(
            index=0, finish_reason="stop", delta=kinds.Delta(**dict(message))
        )
        return kinds.ModelResponseStream(model=self.model, choices=[choice])

    def structured(
        self,
        messages: ChatMessages,
        schema: type[T],
        *,
        max_tokens: int | None = None,
        timeout: float | None = None,
    ) -> T:
        """Return an answer that fits a pydantic model.

        An answer that does not fit is returned to the model once, with its validation errors.

        Raises:
            ModelOutputInvalid: The second answer did not fit either, or an answer was empty.
        """
        asked: list[dict[str, Any]]
        response_format: Any
        if load_litellm().supports_response_schema(self.model):
            asked, response_format = list(messages), schema
        else:
            asked, response_format = _with_schema(messages, schema), {"type": "json_object"}
        fields = {"response_format": response_format, "max_tokens": max_tokens, "timeout": timeout}
        text = self._ask(asked, **fields)
        try:
            return _parse(text, schema)
        except ValidationError as error:
            problem = str(error)
        asked += [
            {"role": "assistant", "content": text},
            {
                "role": "user",
                "content": f"That answer does not have the form asked for:\n{problem}\n"
                "Answer again, with the corrected JSON only.",
            },
        ]
        try:
            return _parse(self._ask(asked, **fields), schema)
        except ValidationError as error:
            raise ModelOutputInvalid(
                f"{self.model} answered twice without fitting the schema {schema.__name__}. "
                "Raise `max_tokens`, or use a model with structured output."
            ) from error

    def context_window(self) -> int:
        """Size of the context window in tokens; 8192 where litellm does not know the model."""
        if self._window is None:
            try:
                info = load_litellm().get_model_info(self.model, api_base=self._provider.api_base)
            except Exception as error:  # older litellm raises a plain Exception here
                if "isn't mapped" not in str(error):
                    raise
                info = {}
            self._window = int(info.get("max_input_tokens") or DEFAULT_CONTEXT_WINDOW)
        return self._window

    def _ask(self, messages: ChatMessages, **fields: Any) -> str:
        text = self.respond(messages, **fields).choices[0].message.content
        if not text or not text.strip():
            raise ModelOutputInvalid(f"{self.model} answered with no text.")
        return str(text)

    def _checked(self, response: Any) -> Any:
        """Return the response if it has text or tool calls."""
        choice = response.choices[0] if response.choices else None
        if choice is None or not _says_something(choice.message):
            reason = getattr(choice, "finish_reason", None)
            raise ModelOutputInvalid(
                f"{self.model} answered with no text (finish reason: {reason}). Try again, or "
                "raise `max_tokens`."
            )
        return response


def _text_of(chunk: Any) -> str:
    return (chunk.choices[0].delta.content if chunk.choices else None) or ""


def _says_something(message: Any) -> bool:
    text = message.content
    if isinstance(text, str) and text.strip():
        return True
    return any(getattr(message, name, None) for name in _SAID_OTHERWISE)


def _with_schema(messages: ChatMessages, schema: type[BaseModel]) -> list[dict[str, Any]]:
    """Add the schema to the messages as text, for models that accept none in the request.

    It joins a leading system message of text, since some models accept only one.
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
    """Parse an answer, which some models put between ``` fences."""
    fenced = _FENCE.search(text)
    if fenced is not None and not text.lstrip().startswith(("{", "[")):
        text = fenced[1]
    return schema.model_validate_json(text.strip())
