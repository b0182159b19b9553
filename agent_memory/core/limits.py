"""Validates numbers and texts, and formats values for error messages. Pure."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from agent_memory.errors import InvalidInput

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


def is_whole(text: str) -> bool:
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
