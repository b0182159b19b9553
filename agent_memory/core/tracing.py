"""Spans for OpenTelemetry, where the application has set a provider of them; else one look and no
more. Nothing is imported for it: whoever sets a provider has imported it.

Names are those of the GenAI semantic conventions 0.1.0 (open-telemetry/semantic-conventions-genai).
What somebody said is in a span only where the convention's environment variable asks for it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

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
        span: As OpenTelemetry has it.
    """

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def told(self, attributes: Attributes) -> None:
        """Add what is known by now; what is None is left out."""
        self._span.set_attributes(_known(attributes))

    def called(self, name: str) -> None:
        """Give it another name, now that more is known."""
        self._span.update_name(name)

    def failed(self, kind: str) -> None:
        """Say of what kind the error is that it ended with: no more, since a sentence may repeat
        what somebody said.
        """
        self._span.set_attribute("error.type", kind)
        self._span.set_status(_api().StatusCode.ERROR)

    def current(self) -> AbstractContextManager[object]:
        """Have spans that begin in this block be parts of it."""
        how = {"end_on_exit": False, "record_exception": False, "set_status_on_exception": False}
        entered: AbstractContextManager[object] = _api().use_span(self._span, **how)
        return entered

    def end(self) -> None:
        """It is over."""
        self._span.end()


def is_on() -> bool:
    """Whether anybody takes spans."""
    return _provider() is not None


def records_content() -> bool:
    """Whether spans are to have what was said, asked and remembered."""
    return os.environ.get(CONTENT, "").lower() in _WITH_CONTENT


@contextmanager
def under_way(
    name: str, attributes: Attributes, kind: Kind = "internal", within: Context | None = None
) -> Iterator[Span | None]:
    """A span for as long as the block takes; None where nobody takes spans.

    What begins in the block is no part of it: see `Span.current`. So a generator may hold it.

    Args:
        name: Its name.
        attributes: What is known of it beforehand.
        kind: What it is to others.
        within: What it is a part of; else the current span.
    """
    provider = _provider()
    if provider is None:
        yield None
        return
    from agent_memory import __version__

    kinds = _api().SpanKind
    tracer = provider.get_tracer("agent_memory", __version__)
    begun = tracer.start_span(
        name,
        within,
        {"internal": kinds.INTERNAL, "client": kinds.CLIENT, "server": kinds.SERVER}[kind],
        _known(attributes),
    )
    span = Span(begun)
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
    """The same, and what begins in the block is a part of it."""
    return nullcontext() if _provider() is None else _span(name, attributes, kind, within)


@contextmanager
def _span(
    name: str, attributes: Attributes, kind: Kind, within: Context | None
) -> Iterator[Span | None]:
    with under_way(name, attributes, kind, within) as one, current(one):
        yield one


def current(span: Span | None) -> AbstractContextManager[object]:
    """`Span.current`, where there is one."""
    return nullcontext() if span is None else span.current()


def here() -> Context | None:
    """What spans that begin here are parts of, to be handed to another thread; None for nothing."""
    if _provider() is None:
        return None
    from opentelemetry.context import get_current

    return get_current()


@contextmanager
def within(context: Context | None) -> Iterator[None]:
    """Have what begins in this block be a part of what `here` gave."""
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
    """The trace and the span at hand, as logs write them; None where there is none."""
    if _provider() is None:
        return None
    context = _api().get_current_span().get_span_context()
    return (f"{context.trace_id:032x}", f"{context.span_id:016x}") if context.is_valid else None


def leaving() -> dict[str, str]:
    """The headers that tell another service which trace a request is a part of."""
    headers: dict[str, str] = {}
    if _provider() is not None:
        from opentelemetry.propagate import inject

        inject(headers)
    return headers


def arriving(headers: Iterable[tuple[bytes, bytes]]) -> Context | None:
    """What a request is a part of, by its headers; None where nobody takes spans."""
    if _provider() is None:
        return None
    from opentelemetry.propagate import extract

    return extract({name.decode("latin-1"): value.decode("latin-1") for name, value in headers})


def as_json(value: object) -> str:
    """A value of several parts, as spans hold it."""
    return json.dumps(value, default=str)


def _api() -> Any:
    return sys.modules[_API]


def _provider() -> Any:
    """What the application has set; None where it has set nothing."""
    api = sys.modules.get(_API)
    provider_of = getattr(api, "get_tracer_provider", None)  # it may be half imported
    if api is None or provider_of is None:
        return None
    provider = provider_of()
    nothing = isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider))
    return None if nothing else provider


def _known(attributes: Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _name_of(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__qualname__}")
    )
