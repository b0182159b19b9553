"""A proxy to a server that can cut its connections, or stop forwarding, on request."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from random import Random


class Line:
    """Forward bytes between clients and a server on 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self.target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = [self._listener]
        self.port: int = self._listener.getsockname()[1]
        self.url = ""
        self.requests = 0
        self.dead = False
        self.lose_answer = False
        self.answers_left: int | None = None
        self.odds = 0.0
        self.rewrite: Callable[[bytes], bytes] = bytes  # changes the answers
        self._random = Random(port)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                self._ends += [client, server]
                for pair in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                self.requests += not answers
                if answers and self.answers_left is not None:
                    self.lose_answer = self.answers_left == 0
                    self.answers_left = None if self.lose_answer else self.answers_left - 1
                if answers and self.lose_answer:
                    self.lose_answer = False
                    break
                if self._random.random() < self.odds:
                    break
                if not self.dead:
                    target.sendall(self.rewrite(data) if answers else data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
