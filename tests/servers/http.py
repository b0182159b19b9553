"""HTTP servers on 127.0.0.1 that tests script."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class HTTPServer(ThreadingHTTPServer):
    """A server that listens at once, and serves what its `owner` answers."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: type[BaseHTTPRequestHandler], owner: Any, port: int = 0) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", port), handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        serve = {"target": self.serve_forever, "kwargs": {"poll_interval": 0.005}}
        self._thread = threading.Thread(**serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening. Idempotent."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """Has `respond` answer each request, and writes nothing to stderr."""

    wbufsize = -1  # an answer is sent immediately, as one packet
    disable_nagle_algorithm = True
    server: HTTPServer

    def log_message(self, *given: Any) -> None: ...

    def respond(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.respond()

    def do_PUT(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def do_DELETE(self) -> None:
        self.respond()

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def send(self, status: int, body: Any, kind: str = "application/json", **headers: str) -> None:
        """Answer with text, or with anything else as JSON."""
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
