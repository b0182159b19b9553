"""An MCP server over HTTP. Each request needs a credential, which decides the user."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import tomllib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import cast

from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse

from agent_memory.aio import AsyncAgentMemory
from agent_memory.config.sources import read_text
from agent_memory.core.limits import check_id
from agent_memory.core.tools import EFFECTS
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import ConfigError
from agent_memory.listening import REALM, App, Receive, Scope, Send, caller_of, marked, shown_in
from agent_memory.mcp.server import RequestContext, build

PATH = "/mcp"

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")
_HASHED = "sha256:"
_HASH = re.compile(r"[0-9a-f]{64}")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.%]+\]|[^][:@/\s]+)(?::[0-9]{1,5})?")
"""A valid Host header. The SDK does not check the port."""


def asgi(memory: AgentMemory, tokens: Tokens, host: str) -> App:
    """Return the server as an ASGI application that answers at `/mcp`, with token authentication.

    Args:
        memory: The memory. It is not closed.
        host: The name or address that clients use. Requests for other hosts, except loopback, are
            refused as a protection against DNS rebinding.
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
    """Return the server as an ASGI application, for use behind authentication.

    Each request must be `marked` with its user and rights. The server is stateless, so that no
    protocol session can pass from one user to another.

    Args:
        memory: The memory. It is not closed.
        security: The allowed hosts. None allows all hosts: behind authentication, DNS rebinding is
            harmless, because a web page has no credential to send.
    """
    if security is None:
        security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    server = build(memory, lambda context: _caller(context)[0], lambda context: _caller(context)[1])
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
        if scope["type"] != "http":  # a lifespan event of ASGI
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
        elif scope["method"] != "POST":  # the server is stateless, and has no streams or sessions
            refusal = PlainTextResponse("Only POST is served.\n", 405, {"Allow": "POST"})
            await refusal(scope, receive, send)
        else:
            await self._app(marked(scope, user, frozenset(EFFECTS)), receive, send)


def _caller(context: RequestContext) -> tuple[str, Set[str]]:
    assert context.request is not None, "over HTTP there is always a request"
    return caller_of(context.request.scope)


class Tokens:
    """The users' tokens, stored as SHA-256.

    Args:
        users: For each user, a token or a list of tokens. A token has at least 16 letters, digits
            and -._~+/, such as the result of `secrets.token_urlsafe(32)`. Instead of a token, its
            SHA-256 hash can be given, as "sha256:" and hexadecimal digits.

    Raises:
        ConfigError: A token is invalid, two users have the same token, or there are no tokens.
        InvalidId: A user's id is invalid.
    """

    def __init__(self, users: Mapping[str, object]) -> None:
        self._users: dict[bytes, str] = {}
        for place, (user, tokens) in enumerate(users.items(), 1):
            check_id("The user's id", user)
            for token in tokens if isinstance(tokens, list) else [tokens]:
                if self._users.setdefault(_digest(place, token), user) != user:
                    raise ConfigError(f"{user!r} has the token of another user. Use another token.")
        if not self._users:
            raise ConfigError("There are no tokens. Add one for at least one user.")

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read a TOML or JSON file of tokens: each key is a user, each value a token or a list.

        Raises:
            ConfigError: The file cannot be read, or its content is invalid.
            InvalidId: A user's id is invalid.
        """
        parse = {".toml": tomllib.loads, ".json": json.loads}.get(path.suffix.lower())
        if parse is None:
            raise ConfigError(f"{path} is not a .toml or .json file.")
        try:
            users = parse(read_text(path, "the tokens in"))
        except ValueError:  # the error's message may have a token
            raise ConfigError(f"{path} is not valid {path.suffix[1:].upper()}.") from None
        if not isinstance(users, dict):
            raise ConfigError(f"{path} must hold a table of users and their tokens.")
        return cls(users)

    def __repr__(self) -> str:
        return f"Tokens(of {len(set(self._users.values()))} users)"

    def user_of(self, token: bytes) -> str | None:
        """Return the user of a token, or None. The running time does not depend on the token."""
        digest, owner = hashlib.sha256(token).digest(), None
        for stored, user in self._users.items():
            if hmac.compare_digest(stored, digest):
                owner = user
        return owner


def _digest(place: int, token: object) -> bytes:
    if isinstance(token, str) and token.startswith(_HASHED):
        if _HASH.fullmatch(token.removeprefix(_HASHED)):
            return bytes.fromhex(token.removeprefix(_HASHED))
    elif isinstance(token, str) and _TOKEN.fullmatch(token):
        return hashlib.sha256(token.encode()).digest()
    raise ConfigError(
        f"The token of user {place} in the table is invalid. Use at least 16 letters, digits "
        f'and -._~+/, or "{_HASHED}" and 64 hexadecimal digits. To create one: '
        'python -c "import secrets; print(secrets.token_urlsafe(32))"'
    )
