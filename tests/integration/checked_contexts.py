"""Store random logs, and check their contexts by the providers' rules."""

from collections import Counter
from random import Random
from typing import Any

from agent_memory import AgentMemory
from agent_memory.errors import AgentMemoryError, InvalidContext
from agent_memory.testing import check_context
from tests.provider_logs import SHAPES, Logs, as_text


def checked(seed: int, memory: AgentMemory, logs: Logs, failures: Counter[str]) -> int:
    """Store a log, check its contexts, and return how many were checked."""
    random, session, count = Random(seed), f"s-{seed}", 0
    given = logs.log()
    said: list[Any] = []
    for at, message in enumerate(given):
        said.append(message)
        try:
            memory.update(session, message)
        except AgentMemoryError as error:
            _failed(failures, "update", str(error), seed, [message])
            continue
        last = at == len(given) - 1
        for form in SHAPES if last else random.sample(SHAPES, 1):
            budget = random.choice((None, None, 200, 400))
            question = random.choice((None, None, "And now?"))
            context = memory.get(session, question, format=form, max_tokens=budget)
            count += 1
            try:
                check_context(form, context.to_arguments())
                assert context.tokens <= context.max_tokens
            except (InvalidContext, AssertionError) as error:
                _failed(failures, form, str(error), seed, said)
    memory.delete(session)
    return count


def _failed(failures: Counter[str], form: str, why: str, seed: int, said: list[Any]) -> None:
    kind = f"{form}: {why}"[:110]
    failures[kind] += 1
    if failures[kind] == 1 and len(failures) < 30:
        print(f"seed {seed}: {kind}\n  " + "\n  ".join(as_text(one) for one in said[-8:]))


def sdk_object(shape: str, message: dict[str, Any]) -> Any:
    """Return the message as an object of its SDK, or None if the SDK does not accept it."""
    from anthropic.types import Message as ClaudeMessage
    from google.genai.types import Content
    from langchain_core.messages import convert_to_messages
    from openai.types.chat import ChatCompletionMessage
    from openai.types.responses import ResponseFunctionToolCall, ResponseReasoningItem

    role, kind, content = message.get("role"), message.get("type"), message.get("content")
    if "x_unknown" in str(message):
        return None
    if shape == "openai.chat" and role == "assistant" and isinstance(content, str | None):
        return ChatCompletionMessage.model_validate(message)
    if shape == "openai.responses" and kind == "function_call":
        return ResponseFunctionToolCall.model_validate(message)
    if shape == "openai.responses" and kind == "reasoning":
        return ResponseReasoningItem.model_validate(message)
    if shape == "anthropic.messages" and role == "assistant" and isinstance(content, list):
        usage = {"input_tokens": 1, "output_tokens": 1}
        whole = {**message, "id": "msg_1", "type": "message", "model": "any"}
        ends = {"stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
        return ClaudeMessage.model_validate({**whole, **ends})
    if shape == "google.contents":
        return Content.model_validate(message)
    return convert_to_messages([message])[0] if shape == "langchain" else None
