"""A provider on 127.0.0.1 that holds a scripted conversation and refuses invalid requests.

It speaks OpenAI's Chat Completions and Responses APIs, Anthropic's Messages API and Google's Gemini
API. Like a model with a small context window, it refuses a request that is too long.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self
from uuid import uuid4

from agent_memory.errors import InvalidContext
from agent_memory.testing import check_context
from tests.frameworks.conversation import Turn
from tests.servers.http import Handler, HTTPServer

Json = dict[str, Any]
Call = tuple[str, str, Json]
"""A call: its id, the tool and the arguments."""

WINDOW = 3_000
"""The context window in tokens, of four characters each."""


@dataclass
class Request:
    """A request of the conversation, and the turn that it belongs to; None for any other."""

    turn: int | None
    body: Json


class Provider:
    """Answer the requests of a conversation, turn by turn, at a `url` without a version."""

    def __init__(self, turns: Sequence[Turn], window: int = WINDOW) -> None:
        self.turns = turns
        self.window = window
        self.turn = 0
        self.requests: list[Request] = []
        self.refused: list[str] = []
        self._lock = threading.Lock()
        self._server = HTTPServer(_APIs, self)
        self.url = self._server.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.stop()

    def answer(self, api: _Api, body: Json) -> tuple[str, list[Call]]:
        """Return the text or the calls for a request. Raise `InvalidContext` for a bad one."""
        with self._lock:
            try:
                check_context(api.format, body)
                if (tokens := len(json.dumps(body[api.field])) // 4) > self.window:
                    raise InvalidContext(f"{tokens} tokens exceed the window of {self.window}.")
            except InvalidContext as error:
                self.refused.append(f"turn {self.turn}: {error}")
                raise
            return self._scripted(body[api.field], body)

    def _scripted(self, messages: Any, body: Json) -> tuple[str, list[Call]]:
        turn = self.turns[self.turn] if self.turn < len(self.turns) else None
        asked = [
            at
            for at, message in enumerate(messages)
            if turn and body.get("tools") and turn.question in json.dumps(message)
        ]
        self.requests.append(Request(self.turn if asked else None, body))
        if not (turn and asked):  # such as a framework's own extraction of facts
            return "Done.", []
        results = sum(_results(one) for one in messages[asked[-1] :])
        done = 0
        for number, calls in enumerate(turn.rounds):
            if done >= results:
                name = f"{self.turn}_{number}"
                return "", [(f"call_{name}_{at}", *call) for at, call in enumerate(calls)]
            done += len(calls)
        self.turn += 1
        if _gives_final_answer(body):
            return "", [(f"call_{self.turn}", "final_answer", {"answer": turn.answer})]
        return turn.answer, []


def _gives_final_answer(body: Json) -> bool:
    """Return whether an agent answers with a tool, as smolagents' agents do."""
    tools = [one.get("function") or {} for one in body["tools"] if isinstance(one, dict)]
    return any(one.get("name") == "final_answer" for one in tools)


def _results(message: Any) -> int:
    """Return how many results of tools a message has, in any of the formats."""
    if message.get("role") == "tool" or message.get("type") == "function_call_output":
        return 1
    if message.get("role") == "assistant" and "Calling tools:" in str(message.get("content")):
        return str(message["content"]).count("'type': 'function'")  # smolagents' calls are text
    parts = message.get("parts") or message.get("content")
    found = [one for one in parts if isinstance(one, dict)] if isinstance(parts, list) else []
    return sum("functionResponse" in one or one.get("type") == "tool_result" for one in found)


def _id(kind: str) -> str:
    return f"{kind}_{uuid4().hex}"


def _chat(text: str, calls: list[Call]) -> Json:
    made = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for id, name, given in calls
    ]
    message: Json = {"role": "assistant", "content": text or None}
    if made:
        message["tool_calls"] = made
    reason = "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {"id": _id("chatcmpl"), "object": "chat.completion", "created": 1, "model": "scripted",
            "choices": [choice], "usage": usage}  # fmt: skip


def _chat_chunks(text: str, calls: list[Call]) -> list[Json]:
    whole = _chat(text, calls)
    (choice,) = whole["choices"]
    delta = choice["message"]
    if calls:
        delta["tool_calls"] = [{"index": at, **one} for at, one in enumerate(delta["tool_calls"])]
    shared = {**whole, "object": "chat.completion.chunk", "usage": None}
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    return [
        {**shared, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**shared, "choices": [end]},
        {**shared, "choices": [], "usage": whole["usage"]},
    ]


def _responses(text: str, calls: list[Call]) -> Json:
    output: list[Json] = [
        {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name,
         "arguments": json.dumps(given), "status": "completed"}
        for id, name, given in calls
    ]  # fmt: skip
    if text:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        output = [{"type": "message", "id": _id("msg"), "role": "assistant",
                   "status": "completed", "content": [part]}]  # fmt: skip
    usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}  # fmt: skip
    return {"id": _id("resp"), "object": "response", "created_at": 1, "status": "completed",
            "model": "scripted", "output": output, "parallel_tool_calls": True, "error": None,
            "tool_choice": "auto", "tools": [], "usage": usage}  # fmt: skip


def _messages(text: str, calls: list[Call]) -> Json:
    content: list[Json] = [
        {"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given in calls
    ]
    reason = "tool_use" if calls else "end_turn"
    return {"id": _id("msg"), "type": "message", "role": "assistant", "model": "scripted",
            "content": content or [{"type": "text", "text": text}], "stop_reason": reason,
            "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip


def _contents(text: str, calls: list[Call]) -> Json:
    asked = [{"name": name, "args": given} for _, name, given in calls]
    parts: list[Json] = [{"functionCall": one} for one in asked]
    content = {"role": "model", "parts": parts or [{"text": text}]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [{"content": content, "index": 0, "finishReason": "STOP"}],
            "usageMetadata": usage, "modelVersion": "scripted"}  # fmt: skip


@dataclass(frozen=True)
class _Api:
    path: str
    format: str
    field: str
    whole: Callable[[str, list[Call]], Json]


_APIS = (
    _Api("/chat/completions", "openai.chat", "messages", _chat),
    _Api("/responses", "openai.responses", "input", _responses),
    _Api("/messages", "anthropic.messages", "messages", _messages),
    _Api(":generateContent", "google.contents", "contents", _contents),
)


class _APIs(Handler):
    def respond(self) -> None:
        body = json.loads(self.body())
        path = self.path.partition("?")[0]
        api = next((one for one in _APIS if path.endswith(one.path)), None)
        if api is None:
            self.send(404, {"error": {"message": f"{path} is not served", "type": "not_found"}})
            return
        if isinstance(body.get(api.field), str):
            body[api.field] = [{"role": "user", "content": body[api.field]}]
        if (system := body.get("systemInstruction")) is not None:  # as the SDK sends it
            body["config"] = {"system_instruction": [dict(part) for part in system["parts"]]}
        try:
            said = self.server.owner.answer(api, body)
        except InvalidContext as error:
            self.send(400, {"error": {"message": str(error), "type": "invalid_request_error"}})
            return
        if body.get("stream") and api.whole is _chat:
            events = [*map(json.dumps, _chat_chunks(*said)), "[DONE]"]
            text = "".join(f"data: {one}\n\n" for one in events)
            self.send(200, text, "text/event-stream")
        else:
            self.send(200, api.whole(*said))
