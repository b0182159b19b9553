"""Rules for the ids of sessions and users, and ids of shared namespaces. Pure.

Sessions of a shared namespace are stored like other sessions, but their ids begin with U+001E.
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from agent_memory.core.limits import MOST, is_whole
from agent_memory.errors import InvalidId

Access = Literal["read", "write"]
"""The access of an agent to a shared namespace. "write" includes "read"."""

MAX_ID = 255
MAX_SHARE = 64
PAST_SHARED = "\x1f"
"""A text that sorts directly after all ids of shared sessions."""

_MARK = "\x1e"


class OwnId(str):
    """The id of a session or user of a shared namespace. `check_id` lets it begin with U+001E."""

    __slots__ = ()


def check_id(name: str, value: object) -> str:
    """Return an id. Refuse it unless it has 1 to 255 characters that every database can store."""
    if not isinstance(value, str):
        raise InvalidId(f"{name} must be text, not {type(value).__name__}. {_converted(value)}")
    if not value.strip():
        raise InvalidId(f"{name} is empty. Give a text such as a UUID.")
    if len(value) > MAX_ID:
        raise InvalidId(f"{name} has {len(value)} characters. The limit is {MAX_ID}.")
    if not is_storable(value):
        raise InvalidId(f"{name} holds a NUL or a lone surrogate, which no store accepts.")
    if value.startswith(_MARK) and not isinstance(value, OwnId):
        raise InvalidId(
            f"{name} begins with U+001E, which is reserved for shared namespaces. Use "
            "memory.share(name) to access one."
        )
    return value


def _converted(value: object) -> str:
    if isinstance(value, UUID) or (isinstance(value, int) and abs(value) <= MOST):
        return f"Pass {str(value)!r}."
    return "Pass an id, such as 'monday' or str(uuid4())."


def is_storable(text: str) -> bool:
    """Return whether every store accepts a text as a name: it has no NUL and no lone surrogate."""
    return "\x00" not in text and is_whole(text)


def marker(value: object) -> str | None:
    """Validate the argument `after` of a list of sessions. None or "" is the first page."""
    return None if value is None or value == "" else check_id("after", value)


def check_share(name: object) -> None:
    """Refuse a name of a shared namespace unless it is an id of 1 to 64 characters."""
    name = check_id("The name of a shared namespace", name)
    if len(name) > MAX_SHARE:
        raise InvalidId(
            f"The name of a shared namespace has {len(name)} characters. The limit is {MAX_SHARE}."
        )
    if _MARK in name:
        raise InvalidId(
            "The name of a shared namespace holds U+001E, which separates ids. Remove it."
        )


def shared_user(share: str) -> OwnId:
    """Return the user id that owns the sessions of a namespace."""
    return OwnId(f"{_MARK}{share}")


def shared_session(share: str, session_id: str) -> OwnId:
    """Return the id under which a session of a namespace is stored."""
    check_id("session_id", session_id)
    physical = OwnId(f"{_MARK}{share}{_MARK}{session_id}")
    if len(physical) > MAX_ID:
        raise InvalidId(
            f"session_id has {len(session_id)} characters. In the shared namespace {share!r} "
            f"the limit is {MAX_ID - len(share) - 2}."
        )
    return physical


def share_of(physical: str) -> str | None:
    """Return the namespace of a stored session id or user id. None if it has no namespace."""
    return physical[1:].partition(_MARK)[0] if physical.startswith(_MARK) else None


def visible_id(physical: str) -> str:
    """Return a stored session id without its namespace."""
    return physical[1:].partition(_MARK)[2] if physical.startswith(_MARK) else physical


def readable(session_id: str) -> str:
    """Return a session id for people, with its namespace if it has one."""
    share = share_of(session_id)
    return session_id if share is None else f"{visible_id(session_id)} of the shared {share}"
