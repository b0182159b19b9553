"""Spans of model calls, with the names of OpenTelemetry's GenAI conventions; see `core.tracing`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent_memory.core import tracing
from agent_memory.core.usage import Usage
from agent_memory.models.usage import Call

if TYPE_CHECKING:
    from opentelemetry.trace import Span

PURPOSE = "agent_memory.purpose"

_OPERATIONS = {"completion": "chat", "embedding": "embeddings"}
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""Maps litellm's names of providers to the conventions' names, if the two differ."""

_PORTS = {"http": 80, "https": 443}


@contextmanager
def traced(call: Call, api_base: str | None, options: Mapping[str, Any]) -> Iterator[Span | None]:
    """Open a span for a model call and all its attempts, without making it the current span."""
    if not tracing.is_on():
        yield None
        return
    provider, _, model = call.model.rpartition("/")
    operation = _OPERATIONS[call.kind]
    kind, where = options.get("response_format"), urlsplit(api_base or "")
    attributes: dict[str, Any] = {
        tracing.OPERATION: operation,
        "gen_ai.provider.name": _provider(provider.partition("/")[0], model),
        "gen_ai.request.model": model,
        "gen_ai.request.max_tokens": options.get("max_tokens"),
        "gen_ai.request.stream": options.get("stream"),
        "gen_ai.output.type": None if kind is None else "json",
        PURPOSE: call.purpose,
        "server.address": where.hostname,
        "server.port": where.port or _PORTS.get(where.scheme),
    }
    with tracing.span(f"{operation} {model}", attributes, "client", is_parent=False) as span:
        if span is not None and call.kind == "completion" and tracing.records_content():
            messages = [_message(message) for message in call.request]
            tracing.set_attributes(span, {"gen_ai.input.messages": tracing.as_json(messages)})
        yield span


def answered(span: Span | None, response: Any, usage: Usage) -> None:
    if span is None:
        return
    choices = getattr(response, "choices", None) or ()
    reasons = [str(choice.finish_reason) for choice in choices if choice.finish_reason]
    details = getattr(getattr(response, "usage", None), "prompt_tokens_details", None)
    tracing.set_attributes(
        span,
        {
            "gen_ai.response.id": getattr(response, "id", None),
            "gen_ai.response.model": getattr(response, "model", None),
            "gen_ai.response.finish_reasons": reasons or None,
            "gen_ai.usage.input_tokens": usage.prompt_tokens or usage.embedding_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens or None,
            "gen_ai.usage.cache_read.input_tokens": getattr(details, "cached_tokens", None),
            "agent_memory.cost": usage.cost,
        },
    )
    if choices and tracing.records_content():
        answers = [
            {**_message(choice.message.model_dump()), "finish_reason": str(choice.finish_reason)}
            for choice in choices
        ]
        tracing.set_attributes(span, {"gen_ai.output.messages": tracing.as_json(answers)})


def _provider(prefix: str, model: str) -> str:
    if not prefix:
        from agent_memory.models.loading import load_litellm

        entry = load_litellm().model_cost.get(model) or {}
        prefix = str(entry.get("litellm_provider", "_OTHER"))
    return _PROVIDERS.get(prefix, prefix)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a chat message to the conventions' form: a role and parts."""
    role, content = message.get("role", ""), message.get("content")
    if role == "tool":
        answer = {"type": "tool_call_response", "response": content}
        return {"role": role, "parts": [{**answer, "id": message.get("tool_call_id")}]}
    calls = message.get("tool_calls") or ()
    return {"role": role, "parts": [*_parts(content), *map(_tool_call, calls)]}


def _parts(content: str | Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    if not content:
        return []
    if isinstance(content, str):
        return [{"type": "text", "content": content}]
    return [
        {"type": "text", "content": part["text"]} if part.get("type") == "text" else dict(part)
        for part in content
    ]


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    fields = {"name": function.get("name"), "arguments": function.get("arguments")}
    return {"type": "tool_call", "id": call.get("id"), **fields}
