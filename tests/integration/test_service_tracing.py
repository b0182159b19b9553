"""Traces that come to the service and go through it, and its log lines that tell them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_memory.server.logs import JsonLines
from tests.integration.serving import Service, serving
from tests.integration.tracing import Spans, traced

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SAID = {"messages": [{"role": "user", "content": "The canary lives in Lisbon."}]}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    return traced(monkeypatch)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path) as one:
        yield one


def test_a_request_goes_on_with_the_callers_trace(spans: Spans, service: Service) -> None:
    """A service that begins a trace anew is a hole in its callers' traces."""
    key = service.key("ana")
    told = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    asked = {"session_id": "s-1", **SAID}
    assert service.call("append_messages", key, asked, **told).status == 200
    request = spans.one("POST /v1/sessions/{session_id}/messages")
    assert request.kind.name == "SERVER"
    assert request.parent is not None
    assert (request.context.trace_id, request.parent.span_id) == (int(TRACE, 16), int(PARENT, 16))
    attributes = dict(request.attributes or {})
    assert attributes["http.route"] == "/v1/sessions/{session_id}/messages"
    assert attributes["http.response.status_code"] == 200
    (stored,) = spans.all("upsert_memory")
    assert stored.context.trace_id == int(TRACE, 16)
    assert stored.parent is not None
    assert stored.parent.span_id == request.context.span_id


def test_no_span_of_a_request_names_what_was_asked_for(spans: Spans, service: Service) -> None:
    """Ids of users and what was said have no place in a trace."""
    key = service.key("ana", "canaryuser")
    service.call("append_messages", key, {"session_id": "s-1", **SAID}, user="canaryuser")
    service.ask("GET", "/v1/canary/none?user_id=canaryuser", key)
    told = json.dumps([[one.name, dict(one.attributes or {})] for one in spans.all()])
    assert "canary" not in told
    assert spans.of("GET unknown")["http.response.status_code"] == 404


@pytest.mark.parametrize("given", ["rubbish", "00-0-0-00", f"00-{TRACE}-{PARENT}", "\udcff"])
def test_a_traceparent_that_is_none_begins_a_trace(
    spans: Spans, service: Service, given: str
) -> None:
    """Anybody may send anything there: it must fail no request."""
    shown = [("Authorization", f"Bearer {service.key('ana')}")]
    raw = given.encode("utf-8", "surrogateescape").decode("latin-1")
    answer = service.raw("GET", "/v1/sessions", [*shown, ("traceparent", raw)])
    assert answer.status == 200
    assert spans.one("GET /v1/sessions").parent is None


def test_log_lines_tell_the_trace(
    spans: Spans, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """From a line nobody could find the trace, and from a trace nobody the line."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonLines().format(record))

    logger, handler = logging.getLogger("agent_memory.server"), Keep()
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, logger.name):
            told = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
            service.ask("GET", "/v1/sessions", service.key("ana"), **told)
    finally:
        logger.removeHandler(handler)
    (line,) = [json.loads(one) for one in lines if json.loads(one)["event"] == "request"]
    assert line["trace_id"] == TRACE
    assert line["span_id"] == f"{spans.one('GET /v1/sessions').context.span_id:016x}"
