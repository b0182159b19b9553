"""A way to a server on which connections break at random: a request is lost, or its answer."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from random import Random
from urllib.parse import urlsplit, urlunsplit


class CutLine:
    """Passes bytes between clients and a server, most of the time.

    Args:
        url: The server's.
        odds: How likely it is, of whatever comes from either side, that it is not passed on and its
            connection is cut.
        seed: Decides which.

    Attributes:
        url: The URL by which the server is reached on this line.
        cuts: How many connections were cut.
    """

    def __init__(self, url: str, odds: float, seed: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 0)
        self._odds = odds
        self._random = Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        place = f"127.0.0.1:{self._listener.getsockname()[1]}"
        user, at, _ = parts.netloc.rpartition("@")
        self.url = urlunsplit(parts._replace(netloc=f"{user}{at}{place}"))
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            with suppress(OSError):
                server = socket.create_connection(self._server)
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                if self._random.random() < self._odds:
                    self.cuts += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
