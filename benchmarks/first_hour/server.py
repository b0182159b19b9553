"""An OpenAI-compatible server for all sides: it knows the city only if the request says it."""

import json
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_DIMENSION = 1536
_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
_FACT = {"id": "0", "text": "User moved to Lisbon last week", "event": "ADD"}
_EXTRACTED = json.dumps({"facts": [_FACT["text"]], "memory": [{**_FACT, "attributed_to": "user"}]})


class Handler(BaseHTTPRequestHandler):
    """Answers chat completions, extractions of facts and embeddings."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        """Answer one request."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        embeds = self.path.endswith("embeddings")
        body = json.dumps(_embedded(request) if embeds else _completed(request)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve() -> ThreadingHTTPServer:
    """Return a server on a free port of this machine."""
    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def _completed(request: dict[str, Any]) -> dict[str, Any]:
    text = "You live in Lisbon." if "Lisbon" in str(request["messages"]) else "I do not know."
    if request.get("response_format"):
        text = _EXTRACTED
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": request["model"]}
    return {**answer, "choices": [choice], "usage": _USAGE}


def _embedded(request: dict[str, Any]) -> dict[str, Any]:
    texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
    data = [
        {"object": "embedding", "index": place, "embedding": _vector(text)}
        for place, text in enumerate(texts)
    ]
    return {"object": "list", "model": request["model"], "data": data, "usage": _USAGE}


def _vector(text: str) -> list[float]:
    """Return how often each word occurs, by the words' hashes."""
    vector = [0.0] * _DIMENSION
    for word in text.lower().replace("?", "").replace(".", "").split():
        vector[int(md5(word.encode()).hexdigest(), 16) % _DIMENSION] += 1
    return vector
