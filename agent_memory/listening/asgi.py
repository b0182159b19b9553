"""What ASGI calls its parts; and what a door marks a request with before it passes it on."""

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
    """A request as that of a user, who may do some of "read", "write" and "delete"."""
    return {**scope, _USER: user_id, _RIGHTS: rights}


def user_of(scope: Scope) -> str:
    """For which user a request is, as it was marked."""
    user_id: str = scope[_USER]
    return user_id


def rights_of(scope: Scope) -> Set[str]:
    """What may be done for them."""
    rights: Set[str] = scope[_RIGHTS]
    return rights
