"""A server on this machine that imitates five providers, and checks requests by their rules.

If a request breaks a rule of the provider, the answer is 400 with this rule. The first answer
calls a tool, and the second answer is text.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agent_memory.errors import InvalidContext
from agent_memory.testing import check_context

Json = dict[str, Any]

TOOL, INPUT, ANSWER = "order_status", {"number": "AX-4471"}, "It arrives on 6 March."


def chat(calls: bool) -> Json:
    """An answer of OpenAI's Chat Completions API."""
    message: Json = {"role": "assistant", "content": ANSWER, "refusal": None}
    if calls:
        function = {"name": TOOL, "arguments": json.dumps(INPUT)}
        call = {"id": "call_1", "type": "function", "function": function}
        message |= {"content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "any",
            "choices": [choice]}  # fmt: skip


def responses(calls: bool) -> Json:
    """An answer of OpenAI's Responses API."""
    text = {"type": "output_text", "text": ANSWER, "annotations": []}
    output: list[Json] = [{"type": "message", "id": "msg_1", "role": "assistant",
                           "status": "completed", "content": [text]}]  # fmt: skip
    if calls:
        output = [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": TOOL,
             "arguments": json.dumps(INPUT), "status": "completed"},
        ]  # fmt: skip
    return {"id": "resp_1", "object": "response", "created_at": 1_700_000_000, "model": "any",
            "output": output, "parallel_tool_calls": True, "tool_choice": "auto",
            "tools": []}  # fmt: skip


def messages(calls: bool) -> Json:
    """An answer of Anthropic's Messages API."""
    content: list[Json] = [{"type": "text", "text": ANSWER}]
    if calls:
        content = [
            {"type": "thinking", "thinking": "Look it up.", "signature": "c2ln"},
            {"type": "tool_use", "id": "toolu_1", "name": TOOL, "input": INPUT},
        ]
    return {"id": f"msg_{calls}", "type": "message", "role": "assistant", "model": "any",
            "content": content, "stop_reason": "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip


def contents(calls: bool) -> Json:
    """An answer of Google's Gemini API."""
    parts: list[Json] = [{"text": ANSWER}]
    if calls:
        call = {"name": TOOL, "args": INPUT}
        parts = [{"functionCall": call, "thoughtSignature": "c2lnbmVk"}]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]}


def converse(calls: bool) -> Json:
    """An answer of Bedrock's Converse API."""
    content: list[Json] = [{"text": ANSWER}]
    if calls:
        content = [{"toolUse": {"toolUseId": "tooluse_1", "name": TOOL, "input": INPUT}}]
    return {"output": {"message": {"role": "assistant", "content": content}},
            "stopReason": "end_turn", "metrics": {"latencyMs": 1},
            "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}}  # fmt: skip


PATHS: dict[str, tuple[str, Callable[[bool], Json]]] = {
    "/chat/completions": ("openai.chat", chat),
    "/responses": ("openai.responses", responses),
    "/messages": ("anthropic.messages", messages),
    ":generateContent": ("google.contents", contents),
    "/converse": ("bedrock.converse", converse),
}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        form, answer = next(found for end, found in PATHS.items() if path.endswith(end))
        system = body.get("systemInstruction")
        if system is not None:  # as the SDK sends it
            body["config"] = {"system_instruction": [dict(part) for part in system["parts"]]}
        try:
            check_context(form, body)
        except InvalidContext as error:
            self._send(400, {"error": {"message": str(error), "type": "invalid_request_error"}})
            return
        said = json.dumps(body)
        self._send(200, answer("AX-4471: shipped" not in said))

    def _send(self, status: int, body: Json) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def provider() -> Iterator[str]:
    """Run the server, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
