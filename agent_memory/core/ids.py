"""Ids: what callers may give, and those of shared namespaces, which only the library makes. Pure.

The sessions of a namespace are sessions like others, in the same store. What tells them apart is a
character that no caller's id may begin with.
"""

from __future__ import annotations

import re
from typing import Literal

from agent_memory.errors import InvalidId

Access = Literal["read", "write"]
"""What an agent may do in a shared namespace; who may write may read too."""

MAX_ID = 255
MAX_SHARE = 64
PAST_SHARED = "\x1f"
"""Comes after every id of a shared session, and before all others that do."""

_MARK = "\x1e"
_SURROGATE = re.compile("[\ud800-\udfff]")


class OwnId(str):
    """An id that the library made. What callers give is plain text, whatever it says."""

    __slots__ = ()


def check_id(name: str, value: object) -> None:
    """Refuse an id that is not 1 to 255 characters that every database can store.

    Raises:
        InvalidId: It is not, or it begins as only those of shared namespaces do.
    """
    if not isinstance(value, str):
        raise InvalidId(f"{name} must be a string, not {type(value).__name__}.")
    if not value.strip():
        raise InvalidId(f"{name} is empty. Give a text that names it, such as a UUID.")
    if len(value) > MAX_ID:
        raise InvalidId(f"{name} has {len(value)} characters; at most {MAX_ID} are kept.")
    if not is_storable(value):
        raise InvalidId(f"{name} holds a NUL or a lone surrogate, which no store can keep.")
    if value.startswith(_MARK) and not isinstance(value, OwnId):
        raise InvalidId(
            f"{name} begins with U+001E, which is kept for shared namespaces. Reach one with "
            "memory.share(name)."
        )


def is_storable(text: str) -> bool:
    """Whether every store can keep a text as a name: without NUL and lone surrogates."""
    return "\x00" not in text and (text.isascii() or not _SURROGATE.search(text))


def marker(value: object) -> str | None:
    """The id of a session after which a page begins; None, or an empty text, for the first page.

    Raises:
        InvalidId: It is no id that a session can have.
    """
    if value is None or value == "":
        return None
    check_id("after", value)
    assert isinstance(value, str)
    return value


def check_share(name: object) -> None:
    """Refuse a name for a shared namespace that is not 1 to 64 such characters, without U+001E.

    Raises:
        InvalidId: It is not.
    """
    check_id("The name of a shared namespace", name)
    assert isinstance(name, str)
    if len(name) > MAX_SHARE:
        raise InvalidId(
            f"The name of a shared namespace has {len(name)} characters; at most {MAX_SHARE} are "
            "kept."
        )
    if _MARK in name:
        raise InvalidId("The name of a shared namespace holds U+001E, which parts ids. Leave it.")


def shared_user(share: str) -> OwnId:
    """The user to whom the sessions of a namespace belong."""
    return OwnId(f"{_MARK}{share}")


def shared_session(share: str, session_id: str) -> OwnId:
    """A session's id in the store.

    Raises:
        InvalidId: It is not usable, or too long together with the namespace's name.
    """
    check_id("session_id", session_id)
    physical = OwnId(f"{_MARK}{share}{_MARK}{session_id}")
    if len(physical) > MAX_ID:
        raise InvalidId(
            f"session_id has {len(session_id)} characters; in the shared namespace {share!r} at "
            f"most {MAX_ID - len(share) - 2} are kept."
        )
    return physical


def share_of(physical: str) -> str | None:
    """The namespace of a session or user in the store; None for a caller's own."""
    return physical[1:].partition(_MARK)[0] if physical.startswith(_MARK) else None


def visible_id(physical: str) -> str:
    """A session's id as it was given."""
    return physical[1:].partition(_MARK)[2] if physical.startswith(_MARK) else physical


def readable(session_id: str) -> str:
    """A session's id for people, which names its namespace where it has one."""
    share = share_of(session_id)
    return session_id if share is None else f"{visible_id(session_id)} of the shared {share}"
