"""Spans in OpenTelemetry's conventions for GenAI. Nothing is done without a tracer provider."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from agent_memory.core.messages import Message
    from agent_memory.core.records import Recall

Kind = Literal["internal", "client", "server"]
Arguments = Mapping[str, Any]
Attributes = Mapping[str, Any]

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
OPERATION = "gen_ai.operation.name"

_API = "opentelemetry.trace"
_WITH_CONTENT = ("true", "1", "span_only", "span_and_event")


def set_attributes(span: Span | None, attributes: Attributes) -> None:
    """Add attributes to a span, if there is one. Attributes that are None are left out."""
    if span is not None:
        span.set_attributes(_without_none(attributes))


def failed(span: Span, kind: str) -> None:
    """Mark a span as failed. The error's text is left out, because it may repeat a user's words."""
    span.set_attribute("error.type", kind)
    span.set_status(_api().StatusCode.ERROR)


def is_on() -> bool:
    return _provider() is not None


def records_content() -> bool:
    """Return whether spans record messages, queries and memories."""
    return os.environ.get(CONTENT, "").lower() in _WITH_CONTENT


@contextmanager
def span(
    name: str,
    attributes: Attributes,
    kind: Kind = "internal",
    within: Context | None = None,
    *,
    is_parent: bool = True,
) -> Iterator[Span | None]:
    """Start a span for the duration of the `with` block. Without a tracer provider, yield None.

    Spans that begin in the block become children of this span, unless `is_parent` is False. If
    `is_parent` is True, a generator must not yield in the block.
    """
    provider = _provider()
    if provider is None:
        yield None
        return
    from agent_memory import __version__

    tracer = provider.get_tracer("agent_memory", __version__)
    span = tracer.start_span(name, within, _api().SpanKind[kind.upper()], _without_none(attributes))
    try:
        with current(span if is_parent else None):
            yield span
    except Exception as error:
        failed(span, _name_of(error))
        raise
    finally:
        span.end()


def current(span: Span | None) -> AbstractContextManager[object]:
    """Make spans that begin in this block children of `span`. With None, do nothing."""
    if span is None:
        return nullcontext()
    context: AbstractContextManager[object] = _api().use_span(
        span, record_exception=False, set_status_on_exception=False
    )
    return context


def here() -> Context | None:
    """Return the current parent of spans, for another thread. None without a tracer provider."""
    if _provider() is None:
        return None
    from opentelemetry.context import get_current

    return get_current()


@contextmanager
def within(context: Context | None) -> Iterator[None]:
    """Make spans in this block children of the span that `here` returned."""
    if context is None:
        yield
        return
    from opentelemetry.context import attach, detach

    token = attach(context)
    try:
        yield
    finally:
        detach(token)


def ids() -> tuple[str, str] | None:
    """Return the ids of the current trace and span in hexadecimal. None without a span."""
    if _provider() is None:
        return None
    context = _api().get_current_span().get_span_context()
    return (f"{context.trace_id:032x}", f"{context.span_id:016x}") if context.is_valid else None


def leaving() -> dict[str, str]:
    """Return the HTTP headers with which another service continues the trace."""
    headers: dict[str, str] = {}
    if _provider() is not None:
        from opentelemetry.propagate import inject

        inject(headers)
    return headers


def arriving(headers: Iterable[tuple[bytes, bytes]]) -> Context | None:
    """Return the parent span that the headers of a request name. None without a provider."""
    if _provider() is None:
        return None
    from opentelemetry.propagate import extract

    return extract({name.decode("latin-1"): value.decode("latin-1") for name, value in headers})


def as_json(value: object) -> str:
    return json.dumps(value, default=str)


def _api() -> Any:
    return sys.modules[_API]


def _provider() -> Any:
    api = sys.modules.get(_API)
    provider_of = getattr(api, "get_tracer_provider", None)  # the module may be half imported
    if api is None or provider_of is None:
        return None
    provider = provider_of()
    is_default = isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider))
    return None if is_default else provider


def _without_none(attributes: Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _name_of(error: BaseException) -> str:
    kind = type(error)
    is_builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"


P = ParamSpec("P")
T = TypeVar("T")

Operation = Literal[
    "search_memory", "create_memory", "update_memory", "upsert_memory", "delete_memory"
]


Describe = Callable[[Arguments, Any], Attributes]
"""Returns a span's attributes from the arguments and the result of a call."""


def operation(
    name: Operation, store_id: str | None, session_id: str | None = None
) -> AbstractContextManager[Span | None]:
    attributes = {
        OPERATION: name,
        "gen_ai.provider.name": "agent_memory",
        "gen_ai.memory.store.id": store_id,
        "gen_ai.conversation.id": session_id,
    }
    return span(name, attributes)


def traced(
    name: Operation, store_id: Callable[[Any], str], describe: Describe | None = None
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Trace each call of a method as an operation. `store_id` gets the object of the method."""

    def decorate(call: Callable[P, T]) -> Callable[P, T]:
        signature = cache(partial(inspect.signature, call))  # computed only if spans are recorded

        @wraps(call)
        def traced_call(*args: P.args, **kwargs: P.kwargs) -> T:
            if not is_on():
                return call(*args, **kwargs)
            try:
                arguments = signature().bind(*args, **kwargs).arguments
            except TypeError:
                return call(*args, **kwargs)  # raises a TypeError that names the method
            with operation(name, store_id(args[0]), _id(arguments.get("session_id"))) as span:
                result = call(*args, **kwargs)
                if span is not None and describe is not None:
                    set_attributes(span, describe(arguments, result))
                return result

        return traced_call

    return decorate


def describe_search(span: Span | None, query: Message | None, recalls: Iterable[Recall]) -> None:
    if span is None:
        return
    records = list(recalls)
    set_attributes(span, {"gen_ai.memory.record.count": len(records)})
    if records_content():
        text = None if query is None else query.text()
        set_attributes(span, {"gen_ai.memory.query.text": text, **_records(map(_record, records))})


def describe_absorb(span: Span | None, block: str, messages: int) -> None:
    """Add a block's name to a span, and the number of messages that the block will absorb."""
    set_attributes(span, {"agent_memory.block": block, "gen_ai.memory.record.count": messages})


def of_messages(arguments: Arguments, result: Any) -> Attributes:
    argument = arguments["message"]
    messages = list(argument) if isinstance(argument, list | tuple) else [argument]
    count = {"gen_ai.memory.record.count": len(messages)}
    if not records_content():
        return count
    from agent_memory.core.messages import Message

    passed = [message for value in messages for message in Message.all_of(value)]
    return {**count, **_records({"content": message.to_dict()} for message in passed)}


def of_record(arguments: Arguments, result: Any) -> Attributes:
    attributes = {"gen_ai.memory.record.id": result.id, "gen_ai.memory.record.count": 1}
    if not records_content():
        return attributes
    return {**attributes, **_records([{"id": result.id, "content": result.text}])}


def of_id(arguments: Arguments, result: Any) -> Attributes:
    """Return the attributes for a change of a record, or of a list of records, by id."""
    count = len(result) if isinstance(result, list) else int(result is not False)
    record_id = _id(arguments.get("note_id", arguments.get("fact_id")))
    return {"gen_ai.memory.record.id": record_id, "gen_ai.memory.record.count": count}


def _records(records: Iterable[Mapping[str, Any]]) -> Attributes:
    return {"gen_ai.memory.records": as_json(list(records))}


def _record(recall: Recall) -> dict[str, Any]:
    metadata = {"block": recall.block}
    return {"id": recall.id, "content": recall.text, "score": recall.score, "metadata": metadata}


def _id(value: object) -> str | None:
    return value if isinstance(value, str) else None
