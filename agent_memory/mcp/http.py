"""An MCP server over HTTP: nothing is answered without a token, and the token says whose memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse

from agent_memory.mcp.server import Asked, build

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from agent_memory.engine.memory import AgentMemory
    from agent_memory.mcp.tokens import Tokens

PATH = "/mcp"

_USER = "agent_memory.user"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.%]+\]|[^][:@/\s]+)(?::[0-9]{1,5})?")
"""A name and a port: of what comes behind a colon the SDK looks at nothing."""


def asgi(memory: AgentMemory, tokens: Tokens, host: str) -> ASGIApp:
    """The server as an ASGI application, which answers at `/mcp`. It keeps nothing from request to
    request, so that no session of the protocol can pass from one user to another.

    Args:
        memory: The memory; it stays open.
        tokens: Who may come in.
        host: Under which name or address clients call it, beside those of this machine for itself.
            Requests for other hosts are refused: a web page could have had its name lead here.
    """
    names = [*_LOOPBACK, f"[{host}]" if ":" in host else host]
    hosts = [host for name in names for host in (name, f"{name}:*")]
    security = TransportSecuritySettings(
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts],
    )
    app = build(memory, _user_of).streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        transport_security=security,
    )
    return _Door(app, tokens)


class _Door:
    """Lets in who has a token, and marks the request as theirs."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the application's beginning and end
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        kind, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        user = self._tokens.user_of(token.strip()) if kind.lower() == b"bearer" else None
        if user is None:
            headers = {"WWW-Authenticate": 'Bearer realm="agent-memory"'}
            refusal = PlainTextResponse("A valid token is needed.\n", 401, headers)
            await refusal(scope, receive, send)
        elif not all(_HOST.fullmatch(value) for name, value in scope["headers"] if name == b"host"):
            await PlainTextResponse("Invalid Host header\n", 421)(scope, receive, send)
        elif scope["method"] != "POST":  # there are no streams to open and no sessions to end
            refusal = PlainTextResponse("Only POST is served.\n", 405, {"Allow": "POST"})
            await refusal(scope, receive, send)
        else:
            await self._app({**scope, _USER: user}, receive, send)


def _user_of(asked: Asked) -> str:
    assert asked.request is not None, "what comes over HTTP is a request"
    user: str = asked.request.scope[_USER]
    return user
