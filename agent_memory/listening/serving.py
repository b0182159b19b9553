"""Listening, and serving an ASGI application until a signal ends it."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any, cast

from agent_memory.errors import ConfigError
from agent_memory.listening.asgi import App
from agent_memory.listening.listener import Listener

_GRACE = 10


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections; for port 0 on one that is free.

    Raises:
        ConfigError: There is no such address here, or it is taken.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on port {port} of {host!r}: {error.strerror or error}. Give another "
            "--host or --port."
        ) from None
    # connections have it from here; asyncio sets it only where it made the socket
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Listener.of(listener)


def serve(app: App, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, which then is raised anew; what is under way is finished."""
    import uvicorn

    from agent_memory.listening.connections import Connection, Waiting, most_connections

    most = most_connections()
    config = uvicorn.Config(
        cast("Any", app),
        http=cast("Any", partial(Connection, Waiting(most))),
        backlog=max(1, most // 8),  # so many are taken before one can be closed
        log_config=None,
        log_level="error",  # requests that are none, of which anybody may send many, are no news
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_GRACE,
    )
    uvicorn.Server(config).run(sockets=[listener])
