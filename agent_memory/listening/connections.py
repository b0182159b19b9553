"""Connections of a server: how many there may be, and how long one may keep us waiting.

Nobody needs a credential to connect. So what a peer can hold is bounded: the time until its request
is there, and the number of connections. Where there are too many, the one goes that is waited for
longest: a client that sends its request at once is answered, whatever others do.
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
    """How many there may be: 1,000, or half as many as the process may have files open."""
    try:
        import resource
    except ImportError:  # on Windows, where files and sockets are counted apart
        return MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else max(1, min(MOST, files // 2))


class Waiting:
    """The connections whose requests are waited for, in the order in which that began.

    Args:
        most: How many connections there may be.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._timers: dict[Connection, TimerHandle] = {}
        self._told = Told()

    def begin(self, connection: Connection, seconds: float) -> None:
        """Wait for a connection's request, or for the rest of it, so long."""
        self.end(connection)
        give_up = connection.transport.abort
        self._timers[connection] = connection.loop.call_later(seconds, give_up)

    def end(self, connection: Connection) -> None:
        """Wait for it no longer: it is there, or the connection is gone."""
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def make_room(self, there: int) -> None:
        """Give up the connection that is waited for longest, if too many are there."""
        if there > self._most and self._timers:
            longest = next(iter(self._timers))
            self.end(longest)
            longest.transport.abort()
            self._told.warn(f"More than {self._most} connections: one was closed, unasked")


class Connection(H11Protocol):
    """One connection.

    Args:
        waiting: The connections whose requests are waited for.
        **given: See `H11Protocol`.
    """

    def __init__(self, waiting: Waiting, **given: Any) -> None:
        super().__init__(**given)
        self._waiting = waiting
        self._awaited: object = None

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._look()
        self._waiting.make_room(len(self.connections))

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """See `H11Protocol`."""
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._waiting.end(self)
        super().connection_lost(exc)

    def _look(self) -> None:
        """Tell what is waited for. What comes bit by bit is given no more time for that."""
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
