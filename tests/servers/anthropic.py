"""A stand-in for Anthropic's Messages API on 127.0.0.1 with scripted answers."""

import json
from collections import deque
from typing import Any, Self

from tests.servers.http import Handler, HTTPServer


class FakeClaude:
    """Answer each request with the next of its scripted turns, at `url`."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self._turns: deque[list[dict[str, Any]]] = deque()
        self._asked = 0
        self._server = HTTPServer(_Messages, self)
        self.url = self._server.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.stop()

    def say(self, text: str) -> None:
        self._turns.append([{"type": "text", "text": text}])

    def ask(self, *inputs: Any) -> None:
        """Answer the next request with calls of the memory tool."""
        calls = enumerate(inputs, self._asked)
        self._asked += len(inputs)
        self._turns.append(
            [
                {"type": "tool_use", "id": f"toolu_{number}", "name": "memory", "input": given}
                for number, given in calls
            ]
        )

    def results(self) -> list[tuple[bool, Any]]:
        """Return the result of each call: whether it was an error, and its text."""
        told = {
            block["tool_use_id"]: (bool(block.get("is_error")), block["content"])
            for request in self.requests
            for message in request["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        }
        return list(told.values())

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        content = self._turns.popleft()
        asks = content[0]["type"] == "tool_use"
        return {
            "id": f"msg_{len(self.requests)}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": content,
            "stop_reason": "tool_use" if asks else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }


class _Messages(Handler):
    def respond(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = {**json.loads(self.body()), "path": self.path, "headers": headers}
        self.send(200, self.server.owner._answer(request))
