"""Spans of the library, if the application records spans."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, ExtractiveMemory, InvalidInput, ModelError, VectorMemory
from agent_memory.core import tracing
from agent_memory.testing import FakeLLM
from tests.integration.fact_model import Model
from tests.integration.tracing import Spans, traced
from tests.kit import with_model

SAID = {"role": "user", "content": "The canary lives in Lisbon."}
QUESTION = "Where does the canary live?"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    return traced(monkeypatch)


def memory_of(fake: FakeLLM, **fields: Any) -> AgentMemory:
    return with_model(fake, **{"namespace": "ns", "blocks": [VectorMemory()], **fields})


def test_each_operation_has_a_span_named_by_the_conventions(spans: Spans, fake: FakeLLM) -> None:
    """Wrong: a span lacks the names of OpenTelemetry's conventions."""
    with memory_of(fake) as memory:
        memory.update("s-1", [SAID, SAID], user_id="ana")
        assert memory.search(QUESTION, user_id="ana", session_id="s-1")
        note = memory.remember("Ana likes tea.", user_id="ana")
        memory.user("ana").notes().update(note.id, "Ana likes coffee.")
        memory.user("ana").notes().delete(note.id)
        memory.delete("s-1")
    told = {
        "gen_ai.operation.name": "upsert_memory",
        "gen_ai.provider.name": "agent_memory",
        "gen_ai.memory.store.id": "ns",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.memory.record.count": 2,
    }
    assert spans.of("upsert_memory") == told
    assert spans.of("search_memory")["gen_ai.memory.record.count"] >= 1
    assert spans.of("search_memory")["gen_ai.conversation.id"] == "s-1"
    assert spans.of("create_memory")["gen_ai.memory.record.id"] == note.id
    assert spans.of("update_memory")["gen_ai.memory.record.id"] == note.id
    noted, session = (dict(one.attributes or {}) for one in spans.all("delete_memory"))
    assert (noted["gen_ai.memory.record.id"], noted["gen_ai.memory.record.count"]) == (note.id, 1)
    assert "gen_ai.memory.record.id" not in session
    assert all(one.kind.name == "INTERNAL" for one in spans.all())


def test_a_turn_has_spans_for_recall_model_tools_and_storing(spans: Spans, fake: FakeLLM) -> None:
    """Wrong: a trace lacks a model call's tokens or a tool's name."""
    fake.call(("memory_write", {"text": "Ana likes tea."}))
    fake.reply("Noted.")
    with memory_of(fake) as memory:
        memory.completion("s-1", "I like tea.", user_id="ana", tools=memory.tools("s-1"))
    first, second = (dict(one.attributes or {}) for one in spans.all("chat any"))
    assert first["gen_ai.operation.name"] == "chat"
    assert first["gen_ai.provider.name"] == "openai"
    assert first["gen_ai.request.model"] == "any"
    assert first["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert first["agent_memory.purpose"] == "completion"
    assert first["gen_ai.usage.input_tokens"] > 0
    assert second["gen_ai.usage.output_tokens"] > 0
    assert (first["server.address"], type(first["server.port"])) == ("127.0.0.1", int)
    assert all(one.kind.name == "CLIENT" for one in spans.all("chat any"))
    assert spans.of("execute_tool memory_write")["gen_ai.tool.name"] == "memory_write"
    assert spans.parents("create_memory") == ["execute_tool memory_write"]
    assert spans.of("upsert_memory")["gen_ai.memory.record.count"] == 4


def test_a_streamed_answer_is_one_span_to_its_end(spans: Spans, fake: FakeLLM) -> None:
    """Wrong: a streamed answer's span is current between chunks, and adopts other spans."""
    with memory_of(fake) as memory, tracing.span("mine", {}):
        before = tracing.ids()
        for _ in memory.completion("s-1", "Hello", stream=True):
            assert tracing.ids() == before
    told = spans.of("chat any")
    assert told["gen_ai.request.stream"] is True
    assert told["gen_ai.response.finish_reasons"] == ("stop",)
    assert spans.parents("chat any") == ["mine"]


def test_a_blocks_model_call_is_a_child_of_the_blocks_span(spans: Spans, fake: FakeLLM) -> None:
    """Wrong: a model call of a block, on another thread, starts a trace of its own."""
    fake.default = Model()
    blocks = [VectorMemory(), ExtractiveMemory()]
    with memory_of(fake, blocks=blocks, embedding="openai/embed") as memory:
        memory.update("s-1", SAID, user_id="ana")
        memory.flush("s-1")
        absorbed = spans.all("upsert_memory")[1:]
        blocks = {one.attributes["agent_memory.block"] for one in absorbed}
        assert blocks == {"vector", "extractive"}
        assert spans.parents("chat any") == ["upsert_memory"]
        assert spans.of("chat any")["agent_memory.purpose"] == "extraction"
        memory.search("The first one measures the embedder", user_id="ana")
        embedded = len(spans.all("embeddings embed"))
        memory.search("Something else", user_id="ana")
    last = spans.all("embeddings embed")[embedded:]
    assert len(last) == 1
    assert last[0].attributes["gen_ai.usage.input_tokens"] > 0
    assert last[0].parent.span_id == spans.all("search_memory")[-1].context.span_id


def test_spans_contain_no_text_of_messages(spans: Spans, fake: FakeLLM) -> None:
    """Wrong: a span contains text of messages."""
    with memory_of(fake) as memory:
        busy(memory, fake)
    told = json.dumps([[one.name, dict(one.attributes or {})] for one in spans.all()])
    assert "canary" not in told
    assert "Good to know" not in told
    assert not any(one.events or one.status.description for one in spans.all())


@pytest.mark.parametrize("asked", ["true", "SPAN_ONLY", "span_and_event"])
def test_spans_have_content_in_the_conventions_form(
    spans: Spans, fake: FakeLLM, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: with content switched on, spans lack it, or have it in a form of their own."""
    monkeypatch.setenv(tracing.CONTENT, asked)
    with memory_of(fake) as memory:
        busy(memory, fake)
    search = spans.of("search_memory")
    assert search["gen_ai.memory.query.text"] == QUESTION
    (found, *_) = json.loads(search["gen_ai.memory.records"])
    assert "canary" in found["content"]
    assert found["metadata"] == {"block": "vector"}
    (stored,) = json.loads(spans.all("upsert_memory")[0].attributes["gen_ai.memory.records"])
    assert stored["content"] == SAID
    chat = spans.of("chat any")
    *_, last = json.loads(chat["gen_ai.input.messages"])
    assert last["role"] == "user"
    assert last["parts"][0]["content"].endswith(QUESTION)
    (answer,) = json.loads(chat["gen_ai.output.messages"])
    assert answer["parts"] == [{"type": "text", "content": "Good to know."}]
    assert answer["finish_reason"] == "stop"


def busy(memory: AgentMemory, fake: FakeLLM) -> None:
    memory.update("s-1", SAID, user_id="ana")
    memory.flush("s-1")
    fake.reply("Good to know.")
    memory.completion("s-2", QUESTION, user_id="ana")


def test_a_failed_span_has_the_error_type(spans: Spans, fake: FakeLLM) -> None:
    """Wrong: a failed span lacks the error's type."""
    with memory_of(fake) as memory:
        with pytest.raises(InvalidInput):
            memory.update("s-1", {"role": "canary"})
        fake.fail(400)
        with pytest.raises(ModelError):
            memory.completion("s-1", "Hello")
    assert spans.of("upsert_memory")["error.type"] == "agent_memory.errors.InvalidMessage"
    assert spans.of("chat any")["error.type"] == "agent_memory.errors.ModelRefused"
    assert spans.one("chat any").status.status_code.name == "ERROR"


def test_a_request_to_a_custom_address_has_a_trace_header(spans: Spans, fake: FakeLLM) -> None:
    """Wrong: a request to the user's own gateway lacks the trace header."""
    with memory_of(fake, embedding="openai/embed") as memory:
        memory.search(QUESTION, user_id="ana")
        memory.completion("s-1", "Hello")
    for name, path in (("embeddings embed", "/embeddings"), ("chat any", "/chat/completions")):
        ids = {f"{one.context.trace_id:032x}-{one.context.span_id:016x}" for one in spans.all(name)}
        sent = [
            headers["traceparent"].removeprefix("00-")[:49]
            for headers, request in zip(fake.headers, fake.requests, strict=True)
            if request["path"].endswith(path)
        ]
        assert sent
        assert set(sent) <= ids


def test_a_request_without_tracing_has_no_trace_header(fake: FakeLLM) -> None:
    """Wrong: without tracing, a request has a `traceparent` header."""
    with memory_of(fake) as memory:
        memory.completion("s-1", "Hello")
    assert all("traceparent" not in headers for headers in fake.headers)


def test_opentelemetry_is_not_imported_without_a_tracer_provider(tmp_path: Path) -> None:
    """Wrong: a process without tracing imports OpenTelemetry."""
    code = (
        "import sys\nfrom agent_memory import AgentMemory, VectorMemory\n"
        "with AgentMemory(store='memory://', blocks=[VectorMemory()]) as memory:\n"
        "    memory.update('s', {'role': 'user', 'content': 'x'})\n"
        "    memory.get('s', 'x')\n"
        "print(sorted(one for one in sys.modules if one.startswith('opentelemetry')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_no_span_is_created_without_a_tracer_provider() -> None:
    """Wrong: spans are made although no tracer provider is set."""
    pytest.importorskip("opentelemetry.trace")
    assert not tracing.is_on()
    assert tracing.here() is None
    assert tracing.leaving() == {}
    with tracing.span("x", {}) as span:
        assert span is None
        assert tracing.ids() is None
