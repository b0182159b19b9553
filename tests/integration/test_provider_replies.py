"""Whole replies of every provider's SDK or HTTP API can be continued with any other."""

from collections.abc import Callable
from typing import Any

import pytest
from anthropic.types import MessageParam
from google.genai.types import Content
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import convert_to_messages
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import ConfigDict, TypeAdapter

from agent_memory import AgentMemory, StaticMemory
from agent_memory.core.formats.registry import format_of
from agent_memory.testing import check_context
from tests.histories import histories, unpaired
from tests.integration.test_provider_contexts import converse_takes
from tests.provider_logs import SHAPES

Json = dict[str, Any]

USAGE = {"input_tokens": 3, "output_tokens": 2}
ENDS = {"stop_reason": "end_turn", "stop_sequence": None, "usage": USAGE, "container": None}


def of_claude(content: Any) -> Json:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude"}
    return {**head, "content": content, **ENDS}


TEXT = {"type": "text", "text": "It is nine.", "citations": None}
THOUGHT = {"type": "thinking", "thinking": "hm"}
SAID = {
    "role": "assistant", "content": "It is nine.", "refusal": None, "annotations": [],
    "audio": None, "function_call": None, "tool_calls": None,
}  # fmt: skip
CHOICE = {"index": 0, "message": SAID, "finish_reason": "stop", "logprobs": None}
OUTPUT = {"type": "output_text", "text": "It is nine.", "annotations": [], "logprobs": []}
ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
ITEM |= {"content": [OUTPUT]}
PARTS = {"role": "model", "parts": [{"text": "It is nine.", "thoughtSignature": "c2ln"}]}
CANDIDATE = {"content": PARTS, "finishReason": "STOP", "index": 0, "avgLogprobs": -0.1}
BLOCKS = {"role": "assistant", "content": [{"text": "It is nine."}]}

REPLIES: dict[str, Json] = {
    "anthropic": of_claude([TEXT]),
    "anthropic, text alone": of_claude("It is nine."),
    "anthropic, thinking": of_claude([{**THOUGHT, "signature": "s"}, TEXT]),
    "openai.chat": {
        **{"id": "c", "object": "chat.completion", "created": 1, "model": "gpt"},
        **{"choices": [CHOICE], "usage": {"total_tokens": 5}, "service_tier": "default"},
    },
    "openai.chat, a choice": CHOICE,
    "openai.chat, a message": SAID,
    "openai.chat, parsed": {**SAID, "tool_calls": []},
    "openai.responses": {
        **{"id": "resp_1", "object": "response", "created_at": 1_700_000_000, "model": "gpt"},
        **{"status": "completed", "output": [ITEM], "usage": USAGE, "tools": []},
    },
    "openai.responses, an item": ITEM,
    "google": {
        **{"candidates": [CANDIDATE], "usageMetadata": {"totalTokenCount": 5}},
        **{"modelVersion": "gemini", "responseId": "r"},
    },
    "google, a candidate": CANDIDATE,
    "bedrock": {
        **{"output": {"message": BLOCKS}, "stopReason": "end_turn", "usage": {"inputTokens": 3}},
        **{"metrics": {"latencyMs": 1}, "ResponseMetadata": {"HTTPStatusCode": 200}},
    },
    "langchain": {
        **{"type": "ai", "content": "It is nine.", "additional_kwargs": {"refusal": None}},
        **{"response_metadata": {"model_name": "gpt"}, "id": "run--1", "name": None},
        **{"tool_calls": [], "invalid_tool_calls": [], "usage_metadata": USAGE},
    },
    "ollama": {
        **{"model": "llama", "created_at": "2026-01-01T00:00:00Z", "done": True},
        **{"message": {"role": "assistant", "content": "It is nine."}, "done_reason": "stop"},
    },
}


def strict(model: Any) -> Callable[[Any], Any]:
    """Validate messages by an SDK's types, and refuse unknown fields."""
    return TypeAdapter(list[model], config=ConfigDict(extra="forbid")).validate_python


TAKES: dict[str, Callable[[list[Any]], Any]] = {
    "openai.chat": strict(ChatCompletionMessageParam),
    "openai.responses": strict(ResponseInputItemParam),
    "anthropic.messages": strict(MessageParam),
    "google.contents": strict(Content),
    "bedrock.converse": converse_takes,
    "langchain": convert_to_messages,
}


@pytest.mark.parametrize("form", SHAPES)
@pytest.mark.parametrize("name", REPLIES)
def test_a_whole_reply_goes_on_with_any_provider(name: str, form: str) -> None:
    """Wrong: a field such as `usage` is sent to another provider, which refuses it."""
    with AgentMemory(store="memory://", blocks=[]) as memory:
        for message in ("When?", REPLIES[name], "Thanks"):
            memory.update("s", message)
        given = memory.get("s", format=form).to_arguments()
    check_context(form, given)
    messages = given[next(iter(given))]
    assert len(messages) == 3
    assert "It is nine." in str(messages[1])
    if form == "openai.chat":  # the API accepts these fields, and its SDK returns them
        messages[1].pop("annotations", None)
        if messages[1].get("tool_calls", []) is None:
            del messages[1]["tool_calls"]
    TAKES[form](messages)


FORMATS = ("openai.responses", "xai.responses", "anthropic.messages")


@pytest.mark.parametrize("name", FORMATS)
@given(
    messages=histories(),
    max_tokens=st.sampled_from([100, 300, 1_000, 8_000]),
    role=st.sampled_from(["system", "user"]),
    question=st.sampled_from([None, "When does it open?"]),
)
def test_any_conversation_in_a_providers_format(
    name: str, messages: list[Any], max_tokens: int, role: Any, question: str | None
) -> None:
    """Wrong: a context is too large, parts calls and results, or items change or go astray."""
    facts = [StaticMemory(facts=["It opens at nine."])]
    with AgentMemory(
        store="memory://", blocks=facts, max_tokens=max_tokens, memory_role=role
    ) as memory:
        memory.update("s", messages)
        context = memory.get("s", question, format=name)
        assert context.tokens <= max_tokens
        items = context.to_messages()
        assert [entry.message.to_dict() for entry in memory.history("s")] == messages
        assert memory.get("s", question).to_messages() == memory.get("s", question).to_messages()
    form = format_of(name)
    assert unpaired([view for item in items for view in form.to_chat(item)]) == []
    others = {"openai", "xai", "anthropic"} - {name.partition(".")[0]}
    assert not [other for other in others if f"sealed by {other}" in str(items)]
    own = [one["raw"] for one in messages if one.get("format") == name]
    given_ = [item for raw in own for item in form.items(raw)]
    compact = [place for place, item in enumerate(items) if form.compacts(item)]
    for place in compact:
        assert items[place] in given_
    assert len(compact) <= sum(form.compacts(raw) for raw in own)
    for item in items:
        if item.get("type") == "reasoning":
            assert item in own
    if question is not None and question not in str(messages):
        assert question in str(items[-1])
