"""Collects notices for callers, formats errors as text, and explains wrong arguments."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from pathlib import PurePath
from types import FunctionType
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

_collector: ContextVar[list[str] | None] = ContextVar("agent_memory_notices", default=None)


def notice(text: str) -> None:
    """Add a notice to those that `noticed` collects. Outside of `noticed`, log it."""
    notices = _collector.get()
    if notices is None:
        logger.warning("%s", text)
    elif text not in notices:
        notices.append(text)


def noticed(call: Callable[[], T]) -> tuple[T, list[str]]:
    """Make a call. Return its result and the notices of the call."""
    notices: list[str] = []
    before = _collector.set(notices)
    try:
        return call(), notices
    finally:
        _collector.reset(before)


def error_text(error: Exception) -> str:
    """Return an error as text. An `OSError` shows a file without its folders."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{type(error).__name__}: {error.strerror}: {PurePath(str(error.filename)).name!r}"
    return f"{type(error).__name__}: {error}"


_MISSING = "missing a required"

Class = TypeVar("Class", bound=type)


def with_call_errors(cls: Class) -> Class:
    """Decorate a class so that a `TypeError` for wrong arguments says what to pass."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(cls, name, _explained(method))
        elif name == "__new__" and isinstance(method, staticmethod):
            setattr(cls, name, staticmethod(_explained(method.__func__)))
    return cls


def _explained(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except TypeError:
            sentence = _sentence(method, args, named)
            if sentence is None:  # usually, the error was raised within the method
                raise
        raise TypeError(sentence)

    return call


def _sentence(
    method: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
) -> str | None:
    """Describe wrong arguments and what to pass. None if they can be bound."""
    signature = inspect.signature(method)
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        reason = str(error)  # "missing a required argument: 'message'"
    else:
        return None
    call = f"{args[0].__name__ if method.__name__ == '__new__' else method.__name__}()"
    parameters = list(signature.parameters.values())[1:]
    by_name = [param.name for param in parameters if param.kind is param.KEYWORD_ONLY]
    by_position = [param.name for param in parameters if param.kind is param.POSITIONAL_OR_KEYWORD]
    takes_any = any(param.kind is param.VAR_KEYWORD for param in parameters)
    unknown = [] if takes_any else [name for name in named if name not in signature.parameters]
    if unknown:
        from difflib import get_close_matches

        near = get_close_matches(unknown[0], [*by_position, *by_name], n=1)
        hint = f"Did you mean `{near[0]}`?" if near else "Remove it."
        return f"{call} has no argument `{unknown[0]}`. {hint}"
    if len(args) - 1 > len(by_position):
        taken = " and ".join(f"`{name}`" for name in by_position) or "nothing"
        example = f", such as {by_name[0]}=..." if by_name else "."
        hint = f" Pass other arguments by name{example}" if by_name or takes_any else ""
        return f"{call} takes {taken} by position.{hint}"
    return f"{call} needs `{reason.split(chr(39))[1]}`." if reason.startswith(_MISSING) else None
