"""ASGI types, and the user and rights that authentication adds to a request's scope."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Set
from typing import Any

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_USER = "agent_memory.user"
_RIGHTS = "agent_memory.rights"


def marked(scope: Scope, user_id: str, rights: Set[str]) -> Scope:
    """Add a user and rights, some of "read", "write" and "delete", to a request's scope."""
    return {**scope, _USER: user_id, _RIGHTS: rights}


def user_of(scope: Scope) -> str:
    """Return the user of a marked request."""
    user_id: str = scope[_USER]
    return user_id


def rights_of(scope: Scope) -> Set[str]:
    """Return the rights of a marked request."""
    rights: Set[str] = scope[_RIGHTS]
    return rights
