"""An MCP server over HTTP. Each request needs a credential, which decides the user."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse

from agent_memory.core.tools import EFFECTS
from agent_memory.listening.asgi import (
    REALM,
    App,
    Receive,
    Scope,
    Send,
    caller_of,
    marked,
    shown_in,
)
from agent_memory.mcp.server import Asked, build

if TYPE_CHECKING:
    from collections.abc import Set

    from agent_memory.aio.memory import AsyncAgentMemory
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.mcp.tokens import Tokens

PATH = "/mcp"

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.%]+\]|[^][:@/\s]+)(?::[0-9]{1,5})?")
"""A valid Host header. The SDK does not check the port."""


def asgi(memory: AgentMemory, tokens: Tokens, host: str) -> App:
    """Return the server as an ASGI application that answers at `/mcp`, with token authentication.

    Args:
        memory: The memory. It is not closed.
        tokens: The valid tokens.
        host: The name or address that clients use, besides those of loopback. Requests for other
            hosts are refused, against DNS rebinding.
    """
    names = [*_LOOPBACK, f"[{host}]" if ":" in host else host]
    hosts = [host for name in names for host in (name, f"{name}:*")]
    security = TransportSecuritySettings(
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts],
    )
    return _Door(behind(memory, security), tokens)


def behind(
    memory: AgentMemory | AsyncAgentMemory, security: TransportSecuritySettings | None = None
) -> App:
    """Return the server for requests that were authenticated and `marked` with user and rights.

    The server is stateless, so that no protocol session can pass from one user to another.

    Args:
        memory: The memory. It is not closed.
        security: The allowed hosts; None allows all. DNS rebinding is then harmless, because a web
            page has no credential to send.
    """
    if security is None:
        security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    server = build(memory, lambda asked: _caller(asked)[0], lambda asked: _caller(asked)[1])
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        transport_security=security,
    )
    return cast("App", app)


class _Door:
    """Authenticates requests by token, and marks them with their user."""

    def __init__(self, app: App, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the ASGI lifespan
            await self._app(scope, receive, send)
            return
        token = shown_in(scope["headers"])
        user = None if token is None else self._tokens.user_of(token.encode())
        if user is None:
            headers = {"WWW-Authenticate": REALM}
            refusal = PlainTextResponse("A valid token is needed.\n", 401, headers)
            await refusal(scope, receive, send)
        elif not all(_HOST.fullmatch(value) for name, value in scope["headers"] if name == b"host"):
            await PlainTextResponse("Invalid Host header\n", 421)(scope, receive, send)
        elif scope["method"] != "POST":  # the server is stateless: no streams, no sessions
            refusal = PlainTextResponse("Only POST is served.\n", 405, {"Allow": "POST"})
            await refusal(scope, receive, send)
        else:
            await self._app(marked(scope, user, frozenset(EFFECTS)), receive, send)


def _caller(asked: Asked) -> tuple[str, Set[str]]:
    assert asked.request is not None, "over HTTP there is always a request"
    return caller_of(asked.request.scope)
