"""Spans for OpenTelemetry, named by the GenAI conventions; nearly free without a provider."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.context import Context

Kind = Literal["internal", "client", "server"]
Attributes = Mapping[str, Any]

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
OPERATION = "gen_ai.operation.name"

_API = "opentelemetry.trace"
_WITH_CONTENT = ("true", "1", "span_only", "span_and_event")


class Span:
    """A span that is under way.

    Args:
        span: The span of OpenTelemetry.
    """

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def told(self, attributes: Attributes) -> None:
        """Add attributes. Those that are None are left out."""
        self._span.set_attributes(_known(attributes))

    def called(self, name: str) -> None:
        """Change the name of the span."""
        self._span.update_name(name)

    def failed(self, kind: str) -> None:
        """Set the type of the error with which the span ended.

        The error's text is left out, because it may repeat a user's words.
        """
        self._span.set_attribute("error.type", kind)
        self._span.set_status(_api().StatusCode.ERROR)

    def current(self) -> AbstractContextManager[object]:
        """Make spans that begin in this block children of the span."""
        options = {
            "end_on_exit": False,
            "record_exception": False,
            "set_status_on_exception": False,
        }
        context: AbstractContextManager[object] = _api().use_span(self._span, **options)
        return context

    def end(self) -> None:
        """End the span."""
        self._span.end()


def is_on() -> bool:
    """Return whether a tracer provider is set."""
    return _provider() is not None


def records_content() -> bool:
    """Return whether spans record messages, queries and memories."""
    return os.environ.get(CONTENT, "").lower() in _WITH_CONTENT


@contextmanager
def under_way(
    name: str, attributes: Attributes, kind: Kind = "internal", within: Context | None = None
) -> Iterator[Span | None]:
    """Start a span for the duration of the block; None without a provider.

    Spans that begin in the block are not its children; see `Span.current`. A generator may
    therefore hold it.

    Args:
        name: The name of the span.
        attributes: The attributes that are known at the start.
        kind: The kind of the span.
        within: The parent; None for the current span.
    """
    provider = _provider()
    if provider is None:
        yield None
        return
    from agent_memory import __version__

    kinds = _api().SpanKind
    tracer = provider.get_tracer("agent_memory", __version__)
    started = tracer.start_span(
        name,
        within,
        {"internal": kinds.INTERNAL, "client": kinds.CLIENT, "server": kinds.SERVER}[kind],
        _known(attributes),
    )
    span = Span(started)
    try:
        yield span
    except Exception as error:
        span.failed(_name_of(error))
        raise
    finally:
        span.end()


def span(
    name: str, attributes: Attributes, kind: Kind = "internal", within: Context | None = None
) -> AbstractContextManager[Span | None]:
    """Start a span whose children are the spans that begin in the block."""
    return nullcontext() if _provider() is None else _span(name, attributes, kind, within)


@contextmanager
def _span(
    name: str, attributes: Attributes, kind: Kind, within: Context | None
) -> Iterator[Span | None]:
    with under_way(name, attributes, kind, within) as started, current(started):
        yield started


def current(span: Span | None) -> AbstractContextManager[object]:
    """Make a span the current one, if there is one."""
    return nullcontext() if span is None else span.current()


def here() -> Context | None:
    """Return the current parent of spans, for another thread; None if there is none."""
    if _provider() is None:
        return None
    from opentelemetry.context import get_current

    return get_current()


@contextmanager
def within(context: Context | None) -> Iterator[None]:
    """Make spans in this block children of a result of `here`."""
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
    """Return the ids of the current trace and span, as logs show them; None without a span."""
    if _provider() is None:
        return None
    context = _api().get_current_span().get_span_context()
    return (f"{context.trace_id:032x}", f"{context.span_id:016x}") if context.is_valid else None


def leaving() -> dict[str, str]:
    """Return the headers that continue the trace in another service."""
    headers: dict[str, str] = {}
    if _provider() is not None:
        from opentelemetry.propagate import inject

        inject(headers)
    return headers


def arriving(headers: Iterable[tuple[bytes, bytes]]) -> Context | None:
    """Return the parent span of a request, from its headers; None without a provider."""
    if _provider() is None:
        return None
    from opentelemetry.propagate import extract

    return extract({name.decode("latin-1"): value.decode("latin-1") for name, value in headers})


def as_json(value: object) -> str:
    """Return a value with several parts as an attribute."""
    return json.dumps(value, default=str)


def _api() -> Any:
    return sys.modules[_API]


def _provider() -> Any:
    """Return the provider that the application has set, or None."""
    api = sys.modules.get(_API)
    provider_of = getattr(api, "get_tracer_provider", None)  # the module may be half imported
    if api is None or provider_of is None:
        return None
    provider = provider_of()
    is_default = isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider))
    return None if is_default else provider


def _known(attributes: Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _name_of(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__qualname__}")
    )


P = ParamSpec("P")
T = TypeVar("T")
