"""Our counts against litellm's, and its own objects through `Message.of`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from agent_memory.core.messages import Message
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.testing.histories import histories
from tests.kit import at_length

UNKNOWN_TO_LITELLM = ("input_audio", "from_the_future")


@pytest.fixture(scope="module")
def litellm() -> Any:
    """litellm, without a look for newer prices on the network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        import litellm as module
    return module


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4", "claude-sonnet-4-5"])
@settings(max_examples=at_length(60))
@given(messages=histories())
def test_a_context_counts_no_less_than_litellm_says(
    litellm: Any, model: str, messages: list[dict[str, Any]]
) -> None:
    """Wrong: a context within our budget is above what the caller's own litellm allows."""
    chat = [view for m in messages for view in Message.of(m).views()]
    for message in chat:
        if isinstance(message.get("content"), list):
            known = [p for p in message["content"] if p["type"] not in UNKNOWN_TO_LITELLM]
            message["content"] = known
    theirs = litellm.token_counter(
        model=model, messages=_encodable(chat), use_default_image_token_count=True
    )
    assert TokenCounter(model).context(chat) >= theirs


def _encodable(value: Any) -> Any:
    """Without lone surrogates, which litellm's tokenizers refuse."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in value.items()}
    return value


def test_litellms_own_objects_are_taken(litellm: Any) -> None:
    """Wrong: what a completion returned must be taken apart before it can be remembered."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answer = litellm.Message(role="assistant", content=None, tool_calls=[call])
    assert Message.of(answer).to_dict() == answer.model_dump()
    assert Message.of(answer).tool_calls == [call]

    response = litellm.ModelResponse(
        choices=[{"index": 0, "finish_reason": "stop", "message": {"content": "hello"}}]
    )
    taken = Message.of(response)
    assert (taken.role, taken.content) == ("assistant", "hello")
    assert Message.of(response.choices[0].message).content == "hello"


def test_a_dict_may_hold_the_tool_calls_of_an_answer(litellm: Any) -> None:
    """Wrong: the usual way to append an answer's tool calls is refused."""
    function = {"name": "f", "arguments": "{}"}
    answer = litellm.Message(
        role="assistant", tool_calls=[{"id": "c1", "type": "function", "function": function}]
    )
    given = {"role": "assistant", "content": None, "tool_calls": answer.tool_calls}
    message = Message.of(given)
    assert message.tool_calls == [{"id": "c1", "type": "function", "function": function}]
    assert Message.from_json(message.to_json(), message.created_at) == message
