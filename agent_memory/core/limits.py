"""Validates numbers, texts and ids, and formats values for error messages. Pure.

Sessions of a shared namespace are stored like other sessions, but their ids begin with U+001E.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, Literal
from uuid import UUID

from agent_memory.errors import InvalidId, InvalidInput

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""The errors that code raises when it decodes invalid data."""

MOST = 10**12
"""The greatest count or seq. Every store can hold it."""

MAX_DEPTH = 100
"""The deepest nesting of a message. It is below the limits of pydantic and `json`."""

_SHOWN = 100


def quoted(value: object) -> str:
    """Return the `repr` of a value for an error message, cut after about 100 characters."""
    short: Any = value[: _SHOWN + 1] if isinstance(value, str | bytes) else value
    try:
        text = repr(short)
    except Exception:  # noqa: BLE001 - a foreign __repr__, or a number of too many digits
        text = f"of the type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def how_many(name: str, value: object, least: int = 0) -> int:
    """Validate a count. Return the count, or `MOST` if the count is greater."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"{name} is {quoted(value)}. Give a whole number of at least {least}.")
    return min(int(value), MOST)


def at_most(name: str, value: object) -> int | None:
    """Validate a limit as `how_many` does. None means unlimited."""
    return None if value is None else how_many(name, value)


def score_of(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST < value < MOST:
        raise InvalidInput(f"{name} is {quoted(value)}. Give a score, such as 0.5, or None.")
    return value


def place_in_log(name: str, value: object) -> int:
    """Validate the seq of a message, or 0 for the beginning of the log."""
    number = how_many(name, value)
    if number != value:
        raise InvalidInput(f"{name} is {quoted(value)}. Give a number of at most {MOST}.")
    return number


def text_of(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is {quoted(value)}. Give a text.")
    return value


def is_encodable(text: str) -> bool:
    """Return whether a text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_callable(name: str, value: object) -> None:
    if not callable(value):
        raise InvalidInput(f"{name} is {quoted(value)}. Give a function.")


def without_password(url: str) -> str:
    """Return a URL without its password, and without its options, which may hold a password too."""
    scheme, mark, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    # with HTTP, the text in the user's place may be a token
    alone = "***" if at and scheme in ("http", "https") else name
    hidden = f"{name}:***" if colon else alone
    return f"{scheme}{mark}{hidden}{at}{place.partition('?')[0]}"


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
    return "\x00" not in text and is_encodable(text)


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
