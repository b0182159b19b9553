"""Listen on a port, and serve an ASGI application until a signal."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any, cast

from agent_memory.errors import ConfigError
from agent_memory.listening.asgi import App
from agent_memory.listening.listener import Listener

_GRACE = 10


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 picks a free port.

    Raises:
        ConfigError: The address does not exist on this machine, or is in use.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on port {port} of {host!r}: {error.strerror or error}. Use another "
            "--host or --port."
        ) from None
    # connections inherit it; asyncio sets it only on sockets that it created
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Listener.of(listener)


def serve(app: App, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, finish requests in progress, and raise the signal again."""
    import uvicorn

    from agent_memory.listening.connections import Connection, Waiting, most_connections

    most = most_connections()
    config = uvicorn.Config(
        cast("Any", app),
        http=cast("Any", partial(Connection, Waiting(most))),
        backlog=max(1, most // 8),  # so many are accepted before one can be closed
        log_config=None,
        log_level="error",  # invalid requests, which anybody can send, are not logged
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_GRACE,
    )
    uvicorn.Server(config).run(sockets=[listener])
