"""Serves an ASGI application, with limits of connections and of time against overload."""

from __future__ import annotations

import errno
import logging
import signal
import socket
import time
from asyncio import TimerHandle
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import HANDLED_SIGNALS

from agent_memory.errors import ConfigError
from agent_memory.listening import App

logger = logging.getLogger(__name__)

_WARN_SECONDS = 60.0
_PAUSE_SECONDS = 0.05
_QUEUE = 1024


class WarningLog:
    """Logs a repeated warning at most once a minute, with the number of repetitions."""

    def __init__(self) -> None:
        self._count = 0
        self._next = 0.0

    def warn(self, what: str) -> None:
        """Count a warning. Log it if none was logged in the last minute."""
        self._count += 1
        if time.monotonic() >= self._next:
            with suppress(OSError):  # the log handler may need a file; the next call retries
                logger.warning("%s (count since the last warning: %d)", what, self._count)
                self._count, self._next = 0, time.monotonic() + _WARN_SECONDS


class Listener(socket.socket):
    """A listening socket whose connections wait while the process can open no more files.

    Without this, the event loop would log thousands of tracebacks per second.
    """

    _log = WarningLog()

    def listen(self, backlog: int = 0) -> None:
        """Listen with a queue of at least 1,024 connections.

        The event loop passes a smaller `backlog`: the number of connections that it accepts at a
        time. A longer queue costs nothing. If the queue is full, a client retries after a second.
        """
        super().listen(max(backlog, _QUEUE))

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. If no file can be opened, leave it and raise BlockingIOError."""
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        self._log.warn("No more files can be opened: a connection waits. Raise `ulimit -n`")
        time.sleep(_PAUSE_SECONDS)  # the waiting connection wakes the event loop again and again
        raise BlockingIOError(errno.EAGAIN, "no connection can be accepted")


MOST = 1_000
HEADERS_SECONDS = 10.0
BODY_SECONDS = 30.0


def most_connections() -> int:
    """Return the limit of connections: 1,000, or half of the open-file limit if that is less."""
    try:
        import resource
    except ImportError:  # Windows counts files and sockets separately
        return MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else max(1, min(MOST, files // 2))


class Waiting:
    """The connections whose requests are incomplete, in the order in which their waits began."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._timers: dict[Connection, TimerHandle] = {}
        self._log = WarningLog()

    def begin(self, connection: Connection, seconds: float) -> None:
        """Close a connection after some seconds, unless `end` is called before."""
        self.end(connection)
        give_up = connection.transport.abort
        self._timers[connection] = connection.loop.call_later(seconds, give_up)

    def end(self, connection: Connection) -> None:
        """Stop waiting for a connection, which has a complete request or was closed."""
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def make_room(self, count: int) -> None:
        """Close the connection with the longest wait, if the number `count` is over the limit."""
        if count > self._most and self._timers:
            longest = next(iter(self._timers))
            self.end(longest)
            longest.transport.abort()
            self._log.warn(f"More than {self._most} connections: the longest waiting was closed")


class Connection(H11Protocol):
    """A connection with time limits."""

    def __init__(self, waiting: Waiting, **options: Any) -> None:
        super().__init__(**options)
        self._waiting = waiting
        self._awaited: object = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait for a request, and close another connection if there are too many."""
        super().connection_made(transport)
        self._look()
        self._waiting.make_room(len(self.connections))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.end(self)
        super().connection_lost(exc)

    def _look(self) -> None:
        """Restart or end the wait if the request's state has changed."""
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


_GRACE = 10


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 picks a free port."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on port {port} of {host!r}: {error.strerror or error}. Use another "
            "--host or --port."
        ) from None
    # connections inherit the option; asyncio sets it only on sockets that it created
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Listener(fileno=listener.detach())


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, begun: Callable[[], None]) -> None:
        super().__init__(config)
        self._begun = begun

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._begun()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Finish the requests in progress. A second signal ends the process."""
        for caught in HANDLED_SIGNALS:
            signal.signal(caught, signal.SIG_DFL)
        super().handle_exit(sig, frame)


def serve(app: App, listener: socket.socket, begun: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM, finish requests in progress, and raise the signal again.

    `begun` is called when requests are served and the handlers of both signals are in place.
    """
    most = most_connections()
    config = uvicorn.Config(
        cast("Any", app),
        http=cast("Any", partial(Connection, Waiting(most))),
        backlog=max(1, most // 8),  # connections accepted before `make_room` can close any
        log_config=None,
        log_level="error",  # invalid requests, which anybody can send, are not logged
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_GRACE,
    )
    _Server(config, begun).run(sockets=[listener])
