"""Response bodies of OpenAI's chat and embedding APIs for `FakeLLM`, valid or corrupted."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

Answer = str | dict[str, Any]
"""A text, or the fields of an assistant message, such as `tool_calls`."""

Vectors = Callable[[str], list[float]]


def rubbish(answer: dict[str, Any], way: str) -> dict[str, Any]:
    """Corrupt an answer: empty it, cut it short, or replace its numbers by invalid ones."""
    if way == "empty":
        return {**answer, "choices": [], "data": []}
    for choice in answer.get("choices", ()):
        text = choice["message"].get("content") or ""
        choice["message"]["content"] = text[: len(text) // 2] if way == "cut" else None
        choice["finish_reason"] = "length"
    for row in answer.get("data", ()):
        vector = row["embedding"]
        number = math.nan if way == "nan" else 0.0
        row["embedding"] = vector[: len(vector) // 2] if way == "cut" else [number for _ in vector]
    return answer


def _words(value: Any) -> int:
    """Return the number of words in a text or in a value's JSON. A word counts as one token."""
    return len((value if isinstance(value, str) else json.dumps(value)).split())


def _usage(prompt: Any, answer: str) -> dict[str, int]:
    sent, received = _words(prompt), _words(answer)
    return {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received}


def _message(answer: Answer) -> dict[str, Any]:
    return {"role": "assistant", **({"content": answer} if isinstance(answer, str) else answer)}


def _envelope(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "fake-1", "object": kind, "created": 0, "model": body.get("model", "fake")}


def _reason(message: dict[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def completion(body: dict[str, Any], answer: Answer) -> dict[str, Any]:
    message = _message(answer)
    return {
        **_envelope(body, "chat.completion"),
        "choices": [{"index": 0, "message": message, "finish_reason": _reason(message)}],
        "usage": _usage(body.get("messages"), message.get("content") or ""),
    }


def events(body: dict[str, Any], answer: Answer) -> Iterator[bytes]:
    """Yield the events of a streamed answer: one for each word, three for each tool call."""
    message = _message(answer)
    text = message.pop("content", None) or ""
    calls = message.pop("tool_calls", None) or []
    pieces = [word + " " for word in text.split(" ")]
    pieces[-1] = pieces[-1][:-1]
    deltas: list[tuple[dict[str, Any], str | None]] = [(message, None)]
    deltas += [({"content": piece}, None) for piece in pieces if piece]
    deltas += [(delta, None) for place, call in enumerate(calls) for delta in _call(place, call)]
    deltas.append(({}, "tool_calls" if calls else "stop"))
    for delta, reason in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        yield _event({**_envelope(body, "chat.completion.chunk"), "choices": [choice]})
    if (body.get("stream_options") or {}).get("include_usage"):
        usage = _usage(body.get("messages"), text)
        chunk = {**_envelope(body, "chat.completion.chunk"), "choices": [], "usage": usage}
        yield _event(chunk)
    yield b"data: [DONE]\n\n"


def _call(place: int, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the deltas of one call: its id and name, then its arguments in two halves."""
    function = call["function"]
    arguments = function["arguments"]
    half = len(arguments) // 2
    begun = {**call, "function": {**function, "arguments": ""}}
    rest = ({"function": {"arguments": part}} for part in (arguments[:half], arguments[half:]))
    for piece in (begun, *rest):
        yield {"tool_calls": [{"index": place, **piece}]}


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def embeddings(vector_of: Vectors, body: dict[str, Any]) -> dict[str, Any]:
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    rows = []
    for index, text in enumerate(texts):
        vector: Any = vector_of(text)
        if body.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        rows.append({"object": "embedding", "index": index, "embedding": vector})
    words = sum(_words(text) for text in texts)
    return {
        "object": "list",
        "model": body.get("model", "fake"),
        "data": rows,
        "usage": {"prompt_tokens": words, "total_tokens": words},
    }
