"""A model server for tests: speaks OpenAI's HTTP API on 127.0.0.1, and says what it is told to."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

Answer = str | dict[str, Any]
Default = str | Callable[[dict[str, Any]], Answer]


@dataclass(frozen=True, slots=True)
class _Scripted:
    """What one request is answered with."""

    answer: Answer | None = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    hang: float = 0.0
    malformed: bool = False

    @property
    def chat_only(self) -> bool:
        """Whether it is a text, which no embedding request can be answered with."""
        return self.answer is not None and self.status == 200


class FakeLLM:
    """An OpenAI-compatible server with scripted answers, for tests over real HTTP.

    Scripted answers are used up in the order they were given; after them chat requests get
    `default`. Embedding requests meet scripted failures too, and else get vectors.

        with FakeLLM() as fake:
            fake.fail(429, retry_after=1)
            fake.reply("Hello!")
            memory = AgentMemory(model="openai/any", api_base=fake.api_base)

    Attributes:
        requests: The JSON bodies received so far, each with its `path`.
        default: The answer when nothing is scripted: a text, or a function of the request's body.
        dimension: Length of the embedding vectors.
    """

    def __init__(self, default: Default = "ok", *, dimension: int = 32) -> None:
        self.default = default
        self.dimension = dimension
        self.requests: list[dict[str, Any]] = []
        self._script: deque[_Scripted] = deque()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.02},
            name="fake-llm",
            daemon=True,
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def api_base(self) -> str:
        """The address to give as `api_base`."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def reply(self, text: str) -> None:
        """Answer the next request with this text."""
        self._add(_Scripted(text))

    def reply_json(self, value: Any) -> None:
        """Answer the next request with this value as JSON text."""
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
            times: How many requests fail.
            message: The error's text.
            code: The error's code, such as "context_length_exceeded".
        """
        headers = () if retry_after is None else (("Retry-After", f"{retry_after:g}"),)
        body: Answer = {"error": {"message": message, "type": "scripted", "code": code}}
        for _ in range(times):
            self._add(_Scripted(body, status=status, headers=headers))

    def hang(self, seconds: float) -> None:
        """Let the next request wait this long for its answer; `stop` drops it at once."""
        self._add(_Scripted(hang=seconds))

    def malformed(self) -> None:
        """Answer the next request with a body that is not JSON."""
        self._add(_Scripted(malformed=True))

    def clear(self) -> None:
        """Forget what is scripted; requests get `default` again."""
        with self._lock:
            self._script.clear()

    def stop(self) -> None:
        """Shut the server down; requests that hang are let go at once. Idempotent."""
        self._stopped.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def vector(self, text: str) -> list[float]:
        """The unit vector that stands for a text: the same each time, unlike that of any other."""
        seed = hashlib.shake_256(text.encode()).digest(4 * self.dimension)
        numbers = [(n / 2**31) - 1 for n in struct.unpack(f"<{self.dimension}I", seed)]
        length = math.hypot(*numbers)
        return [number / length for number in numbers]

    def _add(self, scripted: _Scripted) -> None:
        with self._lock:
            self._script.append(scripted)

    def _next(self, request: dict[str, Any], *, chat: bool) -> _Scripted | None:
        """Note a request, and take the next scripted answer if there is one for its kind."""
        with self._lock:
            self.requests.append(request)
            if self._script and (chat or not self._script[0].chat_only):
                return self._script.popleft()
            return None

    def _default_answer(self, body: dict[str, Any]) -> Answer:
        return self.default(body) if callable(self.default) else self.default


class _Server(ThreadingHTTPServer):
    """Listens on a free port of 127.0.0.1."""

    daemon_threads = True

    def __init__(self, fake: FakeLLM) -> None:
        self.fake = fake
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay quiet about clients that gave up on a hanging request; report all else."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers the request of one connection."""

    # With these two an answer leaves as one packet, at once; else each costs 40 ms more.
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing to stderr."""

    def do_POST(self) -> None:
        """Answer a chat or an embedding request."""
        fake = cast("_Server", self.server).fake
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        chat = self.path.endswith("/chat/completions")
        scripted = fake._next({**body, "path": self.path}, chat=chat) or _Scripted()
        if scripted.hang and fake._stopped.wait(scripted.hang):
            return
        if scripted.malformed:
            self._send(200, b"<html>not JSON</html>")
        elif scripted.status != 200:
            self._send_json(scripted.answer, scripted.status, scripted.headers)
        elif chat:
            answer = fake._default_answer(body) if scripted.answer is None else scripted.answer
            if body.get("stream"):
                self._send(200, b"".join(_events(body, answer)), kind="text/event-stream")
            else:
                self._send_json(_completion(body, answer))
        elif self.path.endswith("/embeddings"):
            self._send_json(_embeddings(fake, body))
        else:
            self._send_json({"error": {"message": f"no such path: {self.path}"}}, 404)

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
    ) -> None:
        self.send_response(status)
        for name, value in (
            *headers,
            ("Content-Type", kind),
            ("Content-Length", str(len(data))),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def _words(value: Any) -> int:
    """A stand-in for tokens: the words of a text, or of a value's JSON."""
    return len((value if isinstance(value, str) else json.dumps(value)).split())


def _usage(prompt: Any, answer: str) -> dict[str, int]:
    asked, told = _words(prompt), _words(answer)
    return {"prompt_tokens": asked, "completion_tokens": told, "total_tokens": asked + told}


def _message(answer: Answer) -> dict[str, Any]:
    """The assistant message; a dict answer is its fields, such as `tool_calls`."""
    return {"role": "assistant", **({"content": answer} if isinstance(answer, str) else answer)}


def _envelope(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "fake-1", "object": kind, "created": 0, "model": body.get("model", "fake")}


def _completion(body: dict[str, Any], answer: Answer) -> dict[str, Any]:
    message = _message(answer)
    return {
        **_envelope(body, "chat.completion"),
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": _usage(body.get("messages"), message.get("content") or ""),
    }


def _events(body: dict[str, Any], answer: Answer) -> Iterator[bytes]:
    """The server-sent events of a streamed answer, one word of the text in each."""
    message = _message(answer)
    text = message.pop("content", None) or ""
    pieces = [word + " " for word in text.split(" ")]
    pieces[-1] = pieces[-1][:-1]
    deltas: list[tuple[dict[str, Any], str | None]] = [(message, None)]
    deltas += [({"content": piece}, None) for piece in pieces if piece]
    deltas.append(({}, "stop"))
    for delta, reason in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        yield _event({**_envelope(body, "chat.completion.chunk"), "choices": [choice]})
    if (body.get("stream_options") or {}).get("include_usage"):
        usage = _usage(body.get("messages"), text)
        chunk = {**_envelope(body, "chat.completion.chunk"), "choices": [], "usage": usage}
        yield _event(chunk)
    yield b"data: [DONE]\n\n"


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def _embeddings(fake: FakeLLM, body: dict[str, Any]) -> dict[str, Any]:
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    rows = []
    for index, text in enumerate(texts):
        vector: Any = fake.vector(text)
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
