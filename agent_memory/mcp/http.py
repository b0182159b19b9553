"""An MCP server over HTTP: nothing is answered without a credential, which says whose memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse

from agent_memory.core.tools import EFFECTS
from agent_memory.listening.asgi import App, Receive, Scope, Send, marked, rights_of, user_of
from agent_memory.listening.bearer import REALM, shown_in
from agent_memory.mcp.server import Asked, build

if TYPE_CHECKING:
    from collections.abc import Set

    from agent_memory.aio.memory import AsyncAgentMemory
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.mcp.tokens import Tokens

PATH = "/mcp"

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.%]+\]|[^][:@/\s]+)(?::[0-9]{1,5})?")
"""A name and a port: of what comes behind a colon the SDK looks at nothing."""


def asgi(memory: AgentMemory, tokens: Tokens, host: str) -> App:
    """The server as an ASGI application, which answers at `/mcp` whoever has a token.

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
    return _Door(behind(memory, security), tokens)


def behind(
    memory: AgentMemory | AsyncAgentMemory, security: TransportSecuritySettings | None = None
) -> App:
    """The server behind a door that has seen a credential, and has `marked` the request with whose
    it is and what they may do. It keeps nothing from request to request, so that no session of the
    protocol can pass from one user to another.

    Args:
        memory: The memory; it stays open.
        security: For which hosts requests may be; None for all. A page whose name was led here
            has no credential to send.
    """
    if security is None:
        security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = build(memory, _user_of, _may).streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        transport_security=security,
    )
    return cast("App", app)


class _Door:
    """Lets in who has a token, and marks the request as theirs."""

    def __init__(self, app: App, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the application's beginning and end
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
        elif scope["method"] != "POST":  # there are no streams to open and no sessions to end
            refusal = PlainTextResponse("Only POST is served.\n", 405, {"Allow": "POST"})
            await refusal(scope, receive, send)
        else:
            await self._app(marked(scope, user, frozenset(EFFECTS)), receive, send)


def _user_of(asked: Asked) -> str:
    return user_of(_scope(asked))


def _may(asked: Asked) -> Set[str]:
    return rights_of(_scope(asked))


def _scope(asked: Asked) -> Scope:
    assert asked.request is not None, "what comes over HTTP is a request"
    scope: Scope = asked.request.scope
    return scope
