"""Numbers and texts as calls take them, and values as errors repeat them. Pure.

Ids are checked in `core.ids`, moments in `core.moments`, keys and ends of logs in `core.once`.
"""

from __future__ import annotations

from operator import index
from typing import Any

from agent_memory.errors import InvalidInput

MOST = 10**12
"""No log has so many messages, and no store so many sessions. All stores keep such numbers."""

_SHOWN = 100


def quoted(value: object) -> str:
    """A value as an error repeats it: at most some 100 characters of it."""
    short: Any = value[: _SHOWN + 1] if isinstance(value, str | bytes) else value
    try:
        told = repr(short)
    except Exception:  # noqa: BLE001 - it is somebody's own, or a number of too many digits
        told = f"of the type {type(value).__name__}"
    return told if len(told) <= _SHOWN else f"{told[:_SHOWN]}..."


def how_many(name: str, value: object, least: int = 0) -> int:
    """How many of something a call is to give or to take. More than `MOST` are as many.

    Raises:
        InvalidInput: It is no whole number, or below the least.
    """
    number = _whole(value)
    if number is None or number < least:
        raise InvalidInput(
            f"{name} is {quoted(value)}. Say how many: a whole number, {least} or more."
        )
    return min(number, MOST)


def at_most(name: str, value: object) -> int | None:
    """As `how_many`; None for no limit."""
    return None if value is None else how_many(name, value)


def score_of(name: str, value: object) -> float | None:
    """A score, or None for none.

    Raises:
        InvalidInput: It is no number.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST < value < MOST:
        raise InvalidInput(f"{name} is {quoted(value)}. Give a score, such as 0.5, or None.")
    return value


def place_in_log(name: str, value: object) -> int:
    """The number of a message, or 0 for the beginning of the log.

    Raises:
        InvalidInput: It is none.
    """
    number = _whole(value)
    if number is None or not 0 <= number <= MOST:
        raise InvalidInput(
            f"{name} is {quoted(value)}. Give the number of a message, or 0 for the beginning."
        )
    return number


def text_of(name: str, value: object) -> str:
    """A text.

    Raises:
        InvalidInput: It is none.
    """
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is {quoted(value)}. Give a text.")
    return value


def check_callable(name: str, value: object) -> None:
    """A function.

    Raises:
        InvalidInput: It is none.
    """
    if not callable(value):
        raise InvalidInput(f"{name} is {quoted(value)}. Give a function.")


def _whole(value: object) -> int | None:
    """A whole number of any type, such as numpy's; None for what is none."""
    if isinstance(value, bool):
        return None
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
