"""Spans of one test, in memory."""

from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install opentelemetry-sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Spans:
    """The spans that `provider` collects."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self, name: str | None = None) -> list[ReadableSpan]:
        """Return the ended spans with this name, in order of their end."""
        return [one for one in self._exporter.get_finished_spans() if name in (None, one.name)]

    def one(self, name: str) -> ReadableSpan:
        found = self.all(name)
        assert len(found) == 1, [one.name for one in self.all()]
        return found[0]

    def of(self, name: str) -> dict[str, Any]:
        """Return the attributes of the only span with this name."""
        return dict(self.one(name).attributes or {})

    def parents(self, name: str) -> list[str]:
        by_id = {one.context.span_id: one for one in self.all()}
        names, at = [], self.one(name)
        while at.parent is not None:
            at = by_id[at.parent.span_id]
            names.append(at.name)
        return names


def traced(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """Collect all spans from now on, as if the application had set a provider."""
    found = Spans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", found.provider)
    return found
