"""Limit the number of a server's connections, and the time to receive a request.

Connecting needs no credential, so both are limited. With too many connections, the server closes
the one it has been waiting for longest. Clients that send their request immediately are always
answered.
"""

from __future__ import annotations

from asyncio import TimerHandle
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent_memory.listening.listener import Told

MOST = 1_000
HEADERS_SECONDS = 10.0
BODY_SECONDS = 30.0


def most_connections() -> int:
    """Return the limit of connections: 1,000, or half of the process's limit of open files."""
    try:
        import resource
    except ImportError:  # on Windows, which counts files and sockets separately
        return MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else max(1, min(MOST, files // 2))


class Waiting:
    """The connections with an incomplete request, longest wait first.

    Args:
        most: The maximum number of connections.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._timers: dict[Connection, TimerHandle] = {}
        self._told = Told()

    def begin(self, connection: Connection, seconds: float) -> None:
        """Wait for a connection's request, or its rest, for a number of seconds."""
        self.end(connection)
        give_up = connection.transport.abort
        self._timers[connection] = connection.loop.call_later(seconds, give_up)

    def end(self, connection: Connection) -> None:
        """Stop waiting for a connection: its request is complete, or it is closed."""
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def make_room(self, there: int) -> None:
        """Close the connection with the longest wait, if there are too many."""
        if there > self._most and self._timers:
            longest = next(iter(self._timers))
            self.end(longest)
            longest.transport.abort()
            self._told.warn(f"More than {self._most} connections: the longest waiting was closed")


class Connection(H11Protocol):
    """A connection with time limits.

    Args:
        waiting: The connections with an incomplete request.
        **given: Arguments of `H11Protocol`.
    """

    def __init__(self, waiting: Waiting, **given: Any) -> None:
        super().__init__(**given)
        self._waiting = waiting
        self._awaited: object = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait for a request, and close another connection if there are too many."""
        super().connection_made(transport)
        self._look()
        self._waiting.make_room(len(self.connections))

    def data_received(self, data: bytes) -> None:
        """Receive data, and update the wait."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._waiting.end(self)
        super().connection_lost(exc)

    def _look(self) -> None:
        """Update the wait when the request's state changes. Partial data does not extend it."""
        state = self.conn.their_state
        if state is self._awaited or self.transport.is_closing():
            return
        self._awaited = state
        if state is h11.IDLE:
            self._waiting.begin(self, HEADERS_SECONDS)
        elif state is h11.SEND_BODY:
            self._waiting.begin(self, BODY_SECONDS)
        else:
            self._waiting.end(self)
