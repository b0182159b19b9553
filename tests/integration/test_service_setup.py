"""The service's OpenAPI document, its mount in another application, its traces and logs."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import jsonschema
import openapi_spec_validator
import pytest
from fastapi import FastAPI, HTTPException
from starlette.requests import Request
from starlette.testclient import TestClient

import agent_memory
from agent_memory import AgentMemory, AsyncAgentMemory
from agent_memory.errors import StoreUnavailable
from agent_memory.server.application import OPENAPI, Application
from agent_memory.server.calls import OPERATIONS
from agent_memory.server.credentials import Principal
from agent_memory.server.monitoring import JsonLines
from agent_memory.server.operation import document
from tests.integration.serving import Service, serving
from tests.integration.tracing import Spans, traced

FROZEN = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"


def test_the_openapi_document_equals_the_stored_copy(tmp_path: Path) -> None:
    """Wrong: a call, a field or an answer changed, and clients built from the document break. `make
    reference` updates the document after an intended change."""
    made = json.loads(json.dumps(document(OPERATIONS, agent_memory.__version__)))
    openapi_spec_validator.validate(made)
    assert made == json.loads(FROZEN.read_text(encoding="utf-8")), "run: make reference"
    with serving(tmp_path) as service:
        assert service.ask("GET", OPENAPI, None).json == made


def test_the_openapi_document_describes_every_call() -> None:
    """Wrong: a call is missing, has no description, or refers to a missing schema."""
    made = document(OPERATIONS, "0")
    assert made["openapi"] == "3.1.0"
    told = [call for path in made["paths"].values() for call in path.values()]
    assert sorted(one["operationId"] for one in told) == sorted(one.name for one in OPERATIONS)
    schemas = made["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    text = json.dumps(made)
    for name in text.split("#/components/schemas/")[1:]:
        assert name.partition('"')[0] in schemas
    for one in told:
        assert one["summary"].endswith(".")
        assert "Needs the right: " in one["description"]
        placed = [each["name"] for each in one.get("parameters", ()) if each["in"] == "path"]
        path = next(path for path, calls in made["paths"].items() if one in calls.values())
        assert placed == [part.split("}")[0] for part in path.split("{")[1:]]


def test_operations_have_unique_names_and_valid_paths() -> None:
    """Wrong: two calls have one name, or a path names a field that the call does not have."""
    names = [one.name for one in OPERATIONS]
    assert len(names) == len(set(names))
    for one in OPERATIONS:
        assert set(one.in_path) <= set(one.form.model_fields)
        assert "user_id" not in one.form.model_fields
        for name, field in one.form.model_fields.items():
            assert name in one.in_path or one.has_body or field.annotation is not dict


HI = {"messages": [{"role": "user", "content": "I moved to Lisbon."}]}


async def signed_in(request: Request) -> Principal:
    """The user who has signed in to the application."""
    user = request.headers.get("x-user")
    if user is None:
        raise HTTPException(401, "Log in first.")
    return Principal.of_user("session", user, ["read", "write"])


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A FastAPI application with its own route, and the memory mounted at /memory."""
    with AgentMemory(store="memory://") as memory:
        app = FastAPI()
        app.mount("/memory", Application(AsyncAgentMemory(memory), signed_in))

        @app.get("/")
        def home() -> str:
            return "home"

        with TestClient(app) as client:
            yield client


def test_a_mounted_service_uses_the_sign_in_of_its_application(client: TestClient) -> None:
    """Wrong: below a mount a path, right or user differs, or a key is accepted."""
    ana, ben = {"x-user": "ana"}, {"x-user": "ben"}
    assert client.get("/").json() == "home"
    path = "/memory/v1/sessions/a%2Fb/messages"
    assert client.post(path, json=HI).json()["detail"] == "Log in first."
    assert client.post(path, json=HI, headers={"X-API-Key": "am_1"}).status_code == 401
    assert client.post(path, json=HI, headers=ana).json()["end"] == 1
    assert client.get("/memory/v1/sessions", headers=ana).json()["sessions"][0]["id"] == "a/b"
    assert client.get(path, headers=ben).status_code == 404
    assert client.get(f"{path}?user_id=ana", headers=ben).status_code == 404
    for pattern in ("*", "an*"):  # a user may have chosen this name
        assert client.get(f"{path}?user_id=ana", headers={"x-user": pattern}).status_code == 422
    assert client.delete("/memory/v1/sessions/a%2Fb", headers=ana).status_code == 403
    assert client.get("/memory/v1/nothing", headers=ana).json()["type"].endswith("no-such-call")
    assert client.patch("/memory/v1/sessions", headers=ana).status_code == 405
    assert client.get("/memory/").headers["content-type"].startswith("text/html")
    assert client.get("/memory/v1/openapi.json").json()["openapi"] == "3.1.0"
    assert client.get("/memory/metrics", headers=ana).status_code == 404


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


def test_a_request_continues_the_callers_trace(spans: Spans, service: Service) -> None:
    """Wrong: the service begins a new trace, so its spans are missing from the caller's."""
    key = service.key("ana")
    told = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    asked = {"session_id": "s-1", **SAID}
    assert service.call("append_messages", key, asked, **told).status == 200
    request = spans.one("POST /v1/sessions/{session_id}/messages")
    assert request.kind.name == "SERVER"
    assert (request.context.trace_id, request.parent.span_id) == (int(TRACE, 16), int(PARENT, 16))
    attributes = dict(request.attributes or {})
    assert attributes["http.route"] == "/v1/sessions/{session_id}/messages"
    assert attributes["http.response.status_code"] == 200
    (stored,) = spans.all("upsert_memory")
    assert stored.context.trace_id == int(TRACE, 16)
    assert stored.parent.span_id == request.context.span_id


def test_spans_of_requests_contain_no_user_data(spans: Spans, service: Service) -> None:
    """Wrong: a span, and so a metric, has a user's id, a message or an invented method."""
    key = service.key("ana", "canaryuser")
    service.call("append_messages", key, {"session_id": "s-1", **SAID}, user="canaryuser")
    service.ask("GET", "/v1/canary/none?user_id=canaryuser", key)
    service.ask("CANARY", "/none", None)
    told = json.dumps([[one.name, dict(one.attributes or {})] for one in spans.all()])
    assert "canary" not in told.lower()
    assert spans.of("GET unknown")["http.response.status_code"] == 404


@pytest.mark.parametrize("given", ["rubbish", "00-0-0-00", f"00-{TRACE}-{PARENT}", "\udcff"])
def test_an_invalid_traceparent_begins_a_trace(spans: Spans, service: Service, given: str) -> None:
    """Wrong: an invalid `traceparent` header fails the request."""
    shown = [("Authorization", f"Bearer {service.key('ana')}")]
    raw = given.encode("utf-8", "surrogateescape").decode("latin-1")
    answer = service.raw("GET", "/v1/sessions", [*shown, ("traceparent", raw)])
    assert answer.status == 200
    assert spans.one("GET /v1/sessions").parent is None


def test_log_lines_of_the_engine_have_no_user_data_or_placeholders() -> None:
    """Wrong: the line has a user's id, reads "session %r not processed", or gives no reason."""
    text, level = "session %r not processed after %.1f s: %s", logging.WARNING
    args = "ana", 2.0, OSError("ana")
    record = logging.LogRecord("agent_memory.engine", level, "", 0, text, args, None)
    event = json.loads(JsonLines().format(record))["event"]
    assert event == "session ... not processed after 2.0 s: OSError"


def test_an_outage_is_logged(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong: the log does not say why the store fails, such as a full disk."""
    key, full = service.key("ana"), StoreUnavailable("disk is full")
    monkeypatch.setattr(service.memory.components.store, "head", Mock(side_effect=full))
    assert service.ask("GET", "/v1/sessions/s", key).status == 503
    assert "A call failed: disk is full" in caplog.text


def test_log_has_trace_id(spans: Spans, service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: a log line lacks its trace id, so that neither leads to the other."""
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
