"""A scripted model server for tests. It speaks OpenAI's HTTP API on 127.0.0.1."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self, cast

Answer = str | dict[str, Any]
"""A text, or the fields of an assistant message, such as `tool_calls`."""

Default = str | Callable[[dict[str, Any]], Answer]

Kind = Literal["chat", "embeddings"]
Outage = Literal[
    "refuse", "error", "limit", "hang", "slow", "html", "half", "empty", "cut", "nan", "zero"
]
"""Kinds of outages; see `FakeLLM.outage`."""

End = Literal["cut", "end", "hold"]
"""Ways in which a stream can stop early; see `FakeLLM.reply`."""

SLOW_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class _Scripted:
    answer: Answer | None = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    hang: float = 0.0
    malformed: bool = False
    events: int | None = None
    then: End = "cut"

    @property
    def chat_only(self) -> bool:
        """Whether the answer is for chat requests only, not for embedding requests."""
        return self.answer is not None and self.status == 200


class FakeLLM:
    """An OpenAI-compatible server with scripted answers, for tests over real HTTP.

    Chat requests get the scripted answers in order, and `default` after the last. Embedding
    requests get vectors. A scripted failure or delay is for the next request of either kind.

        with FakeLLM() as fake:
            fake.fail(429, retry_after=1)
            fake.reply("Hello!")
            memory = AgentMemory(model="openai/any", api_base=fake.api_base)

    Attributes:
        requests: The JSON bodies of the requests so far, each with its `path`.
        headers: The headers of the requests so far, with names in lower case.
        default: The answer if nothing is scripted: a text, or a function that gets the request's
            body and returns the answer.
        dimension: Length of the embedding vectors.
    """

    def __init__(self, default: Default = "ok", *, dimension: int = 32) -> None:
        self.default = default
        self.dimension = dimension
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._script: deque[_Scripted] = deque()
        self._outages: dict[Kind, Outage] = {}
        self._called = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._over = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.005},
            name="fake-llm",
            daemon=True,
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def api_base(self) -> str:
        """The server's address, for the setting `api_base`."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def reply(self, answer: Answer, *, events: int | None = None, then: End = "cut") -> None:
        """Answer the next chat request.

        Args:
            answer: A text, or the fields of an assistant's message, such as `tool_calls`.
            events: If the answer is streamed, the number of events to send; None sends all.
            then: The behaviour after these events. "cut" closes the connection before the body is
                complete. "end" ends the response as if it were complete. "hold" waits for `clear`,
                and then sends the remaining events.
        """
        if then == "hold":
            self._over.clear()
        self._add(_Scripted(answer, events=events, then=then))

    def call(self, *calls: tuple[str, Mapping[str, Any] | str], content: str | None = None) -> None:
        """Answer the next chat request with tool calls.

        Args:
            *calls: For each call, the tool's name and its arguments. The arguments are a mapping,
                or the JSON text that a model would send.
            content: The text of the message with the calls.
        """
        self.reply({"content": content, "tool_calls": [self._call(*call) for call in calls]})

    def reply_json(self, value: Any) -> None:
        """Answer the next chat request with this value as JSON text."""
        self._add(_Scripted(json.dumps(value)))

    def fail(
        self,
        status: int,
        *,
        retry_after: float | None = None,
        times: int = 1,
        message: str = "scripted failure",
        code: str | None = None,
    ) -> None:
        """Answer the next requests with an HTTP error.

        Args:
            status: The HTTP status, such as 429.
            retry_after: Seconds for a Retry-After header.
            times: Number of requests that fail.
            message: The error's text.
            code: The error's code, such as "context_length_exceeded".
        """
        headers = () if retry_after is None else (("Retry-After", f"{retry_after:g}"),)
        body: Answer = {"error": {"message": message, "type": "scripted", "code": code}}
        for _ in range(times):
            self._add(_Scripted(body, status=status, headers=headers))

    def hang(self, seconds: float) -> None:
        """Delay the answer to the next request. `stop` ends the delay without an answer."""
        self._add(_Scripted(hang=seconds))

    def malformed(self) -> None:
        """Answer the next request with a body that is not JSON."""
        self._add(_Scripted(malformed=True))

    def outage(self, way: Outage, *, only: Kind | None = None) -> None:
        """Let requests fail in the same way until `clear`.

        Args:
            way: "refuse" closes the connection without an answer. "error" answers with status 503,
                "limit" with 429 and a Retry-After of 1 s. "hang" sends no answer. "slow" sends the
                right answer after 0.2 s. All other ways send an invalid answer with status 200.
                "html" is not JSON. "half" breaks off within the body. "empty" has no choices and no
                vectors. "cut" has half of the text, or vectors of half the length. "nan" and "zero"
                have vectors of NaN or of 0, and no text.
            only: The kind of requests that fail; None for all.
        """
        with self._lock:
            self._over.clear()
            self._outages |= dict.fromkeys((only,) if only else ("chat", "embeddings"), way)

    def clear(self) -> None:
        """End outages and drop scripted answers. Chat requests get `default` again."""
        with self._lock:
            self._script.clear()
            self._outages.clear()
            self._over.set()

    def stop(self) -> None:
        """Shut the server down and drop hanging requests. Idempotent."""
        self._stopped.set()
        self._over.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def vector(self, text: str) -> list[float]:
        """Return the unit vector of a text. Only equal texts have equal vectors."""
        seed = hashlib.shake_256(text.encode()).digest(4 * self.dimension)
        numbers = [(n / 2**31) - 1 for n in struct.unpack(f"<{self.dimension}I", seed)]
        length = math.hypot(*numbers)
        return [number / length for number in numbers]

    def _call(self, name: str, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        self._called += 1
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        function = {"name": name, "arguments": text}
        return {"id": f"call_{self._called}", "type": "function", "function": function}

    def _add(self, scripted: _Scripted) -> None:
        with self._lock:
            self._script.append(scripted)

    def _next(
        self, request: dict[str, Any], headers: dict[str, str], *, chat: bool
    ) -> _Scripted | Outage | None:
        """Record a request. Return the outage or scripted answer for it; None for the default."""
        with self._lock:
            self.requests.append(request)
            self.headers.append(headers)
            outage = self._outages.get("chat" if chat else "embeddings")
            if outage is not None:
                return outage
            if self._script and (chat or not self._script[0].chat_only):
                return self._script.popleft()
            return None

    def _default_answer(self, body: dict[str, Any]) -> Answer:
        return self.default(body) if callable(self.default) else self.default


_HTML = b"<html>not JSON</html>"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, fake: FakeLLM) -> None:
        self.fake = fake
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore that a client closed the connection. Report all other errors."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    # without these two settings, each answer takes 40 ms longer
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing to stderr."""

    def do_POST(self) -> None:
        fake = cast("_Server", self.server).fake
        length = int(self.headers.get("Content-Length", 0))
        data = self.rfile.read(length)
        if len(data) < length:  # the client is gone
            return
        body = json.loads(data)
        chat = self.path.endswith("/chat/completions")
        headers = {name.lower(): value for name, value in self.headers.items()}
        scripted = fake._next({**body, "path": self.path}, headers, chat=chat) or _Scripted()
        if isinstance(scripted, str):
            self._break(scripted, fake, body, chat=chat)
            return
        if scripted.hang and fake._stopped.wait(scripted.hang):
            return
        if scripted.malformed:
            self._send(200, _HTML)
        elif scripted.status != 200:
            self._send_json(scripted.answer, scripted.status, scripted.headers)
        elif chat:
            answer = fake._default_answer(body) if scripted.answer is None else scripted.answer
            if body.get("stream"):
                self._stream(fake, scripted, list(events(body, answer)))
            else:
                self._send_json(completion(body, answer))
        elif self.path.endswith("/embeddings"):
            self._send_json(embeddings(fake.vector, body))
        else:
            self._send_json({"error": {"message": f"no such path: {self.path}"}}, 404)

    def _stream(self, fake: FakeLLM, scripted: _Scripted, events: list[bytes]) -> None:
        data = b"".join(events[: scripted.events])
        length = len(data) if scripted.then == "end" else sum(map(len, events))
        self._send(200, data, kind="text/event-stream", length=length)
        if scripted.events is not None and scripted.then == "hold":
            self.wfile.flush()
            fake._over.wait()
            self.wfile.write(b"".join(events[scripted.events :]))

    def _break(self, way: Outage, fake: FakeLLM, body: dict[str, Any], *, chat: bool) -> None:
        answer = (
            completion(body, fake._default_answer(body)) if chat else embeddings(fake.vector, body)
        )
        match way:
            case "refuse":
                return
            case "hang":
                fake._over.wait()
            case "error":
                self._send_json({"error": {"message": "outage"}}, 503)
            case "limit":
                self._send_json({"error": {"message": "outage"}}, 429, (("Retry-After", "1"),))
            case "html":
                self._send(200, _HTML)
            case "half":
                data = json.dumps(answer).encode()
                self._send(200, data[: len(data) // 2], length=len(data))
            case "slow":
                if not fake._stopped.wait(SLOW_SECONDS):
                    self._send_json(answer)
            case _:
                self._send_json(rubbish(answer, way))

    def _send_json(
        self, value: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._send(status, json.dumps(value).encode(), headers)

    def _send(
        self,
        status: int,
        data: bytes,
        headers: tuple[tuple[str, str], ...] = (),
        *,
        kind: str = "application/json",
        length: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Type", kind)):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)


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
    before, after = _words(prompt), _words(answer)
    return {"prompt_tokens": before, "completion_tokens": after, "total_tokens": before + after}


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
