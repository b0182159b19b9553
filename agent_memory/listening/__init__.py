"""The HTTP server of the service and of MCP, and what both read from a request's ASGI scope."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Set
from typing import Any

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_CALLER = "agent_memory.caller"


def marked(scope: Scope, user_id: str, rights: Set[str]) -> Scope:
    """Return the scope with the caller added: a user and rights ("read", "write", "delete")."""
    return {**scope, _CALLER: (user_id, rights)}


def caller_of(scope: Scope) -> tuple[str, Set[str]]:
    caller: tuple[str, Set[str]] = scope[_CALLER]
    return caller


REALM = 'Bearer realm="agent-memory"'
"""The `WWW-Authenticate` header of responses to requests without a valid credential."""

_LONGEST = 8_192


def shown_in(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the credential in `Authorization: Bearer` or `X-API-Key`.

    Return None if there are several or none, or if the credential is empty, too long or not ASCII.
    """
    tokens = []
    for name, value in headers:
        if name == b"authorization":
            kind, _, token = value.partition(b" ")
            tokens.append(token.strip() if kind.lower() == b"bearer" else b"")
        elif name == b"x-api-key":
            tokens.append(value.strip())
    if len(tokens) != 1 or not 0 < len(tokens[0]) <= _LONGEST or not tokens[0].isascii():
        return None
    return tokens[0].decode("ascii")
