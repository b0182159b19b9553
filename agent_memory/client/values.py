"""Converts arguments and results to JSON and back, by the types in the library's signatures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, create_model

from agent_memory.client.calls import hints_of
from agent_memory.core.limits import quoted
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Entry
from agent_memory.engine.edit.plans import entries_and_messages
from agent_memory.errors import AgentMemoryError, InvalidInput, InvalidMessage

_PLAIN = str | int | float | bool | None
_SCALARS: Mapping[Any, Any] = {str: str, int: int, float: int | float, bool: bool}
_TIMED = {"message", "created_at"}
_DAY = 10  # characters of a date without a time


def plain(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        raise InvalidInput(f"{value} cannot be sent to a service. Use a finite number.")
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Message):
        return {"message": value.to_dict(), "created_at": value.created_at.isoformat()}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value) if part.init}
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Path):  # a path has no meaning on another machine
        return None
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return [plain(item) for item in value]
    raise InvalidInput(
        f"{quoted(value)} cannot be sent to a service: {type(value).__name__} is not a JSON type. "
        "Use JSON values, or open the memory in this process."
    )


def checked(kind: Any, value: Any, name: str) -> Any:
    """Convert JSON as `parsed` does.

    If the value does not fit the type, raise `InvalidInput` with the argument's name, `name`.
    """
    try:
        return parsed(kind, value)
    except AgentMemoryError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError):
        raise mistyped(name) from None


def mistyped(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name} does not have the type of the call's signature. The service lists the types at "
        "/v1/openapi.json."
    )


def parsed(kind: Any, value: Any) -> Any:
    """Convert JSON from `plain` back to a type.

    Unknown fields are ignored, and missing fields get their defaults, because the other side may be
    another release.
    """
    origin, args = get_origin(kind), get_args(kind)
    if not takes(kind, value):
        raise TypeError("another type")
    if value is None or kind is Any:
        return value
    if origin in (Union, UnionType):
        return parsed(_of_union(args, value), value)
    if origin is not None and origin is not tuple and issubclass(_class(origin), Mapping):
        key_type, type_ = args
        return {parsed(key_type, name): parsed(type_, item) for name, item in value.items()}
    if origin is tuple and args[-1] is not Ellipsis:
        return tuple(parsed(arg, item) for arg, item in zip(args, value, strict=True))
    if origin is not None and issubclass(_class(origin), Iterable):
        _check_list(value)
        return (tuple if origin is tuple else list)(parsed(args[0], item) for item in value)
    return _parsed(kind, value) if isinstance(kind, type) else value


def message_of(value: Any) -> Any:
    """Return a value of the form `{message, created_at}` as a `Message`, and others unchanged."""
    if isinstance(value, Mapping) and value.keys() == _TIMED:
        return checked(Message, value, "message")
    return value


def _parsed(kind: type, value: Any) -> Any:
    if kind is Message:
        at = _time_of(value["created_at"])
        return Message.from_json(Message.of(value["message"]).to_json(), at)
    if kind in (datetime, date):
        return kind.fromisoformat(value)
    if kind is timedelta:
        return timedelta(seconds=value)
    if _is_named(kind):
        _check_list(value)
        types = hints_of(kind).values()
        return kind(*(parsed(type_, item) for type_, item in zip(types, value, strict=False)))
    if is_dataclass(kind):
        hints = hints_of(kind)
        names = {part.name for part in fields(kind) if part.init} & value.keys()
        return kind(**{name: parsed(hints[name], value[name]) for name in names})
    if kind is BaseModel:  # a class that does not exist in this process
        return create_model("Profile", **dict.fromkeys(value, (Any, ...)))(**value)  # type: ignore[call-overload]
    return value


def _time_of(text: Any) -> datetime:
    with suppress(TypeError, ValueError, OverflowError):
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None and at.astimezone(UTC):
            return at
    raise InvalidMessage(
        "The message's `created_at` is not valid. Send a time with an offset, such as "
        "2026-03-01T09:00:00Z."
    )


def _of_union(args: Sequence[Any], value: Any) -> Any:
    """Return the type in a union that fits a JSON value, or `Any`."""
    if isinstance(value, str) and datetime in args:
        return date if date in args and len(value) == _DAY else datetime
    if isinstance(value, list):
        return next((arg for arg in args if get_origin(arg) is not None or _is_named(arg)), Any)
    if isinstance(value, Mapping):
        classes = [arg for arg in args if isinstance(arg, type) and is_dataclass(arg)]
        return max(classes, key=lambda arg: len(value.keys() & hints_of(arg).keys()), default=Any)
    return timedelta if timedelta in args and not isinstance(value, bool) else Any


def takes(kind: Any, value: Any) -> bool:
    """Return whether a JSON value fits a type. Items of lists and mappings are not checked."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(takes(arg, value) for arg in args)
    if origin is Literal:
        return value in args
    if value is None:  # None is no scalar, message, list or mapping
        return origin is None and kind not in (Message, *_SCALARS)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        if isinstance(value, str):  # a `str` is a `Sequence` of `str`
            return issubclass(str, origin)
        return isinstance(value, Mapping if issubclass(origin, Mapping) else list)
    if kind in _SCALARS:
        return isinstance(value, _SCALARS[kind]) and (kind is bool) == isinstance(value, bool)
    if kind is type(None) or _is_named(kind):
        return kind is not type(None) and isinstance(value, list)
    is_plain = kind in (Any, object, datetime, date, timedelta) or not isinstance(kind, type)
    return is_plain or isinstance(value, Mapping | list)


def _is_named(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _check_list(value: Any) -> None:
    if not isinstance(value, list):
        raise TypeError("no list")


def _class(origin: Any) -> type:
    return origin if isinstance(origin, type) else type(origin)


def digest_of(log: Sequence[Entry]) -> str:
    rows = [[item.seq, item.message.to_dict(), item.message.created_at.isoformat()] for item in log]
    return hashlib.sha256(compact_json(rows).encode("utf-8", "surrogatepass")).hexdigest()


def wire_log(log: Sequence[Entry], wanted: object) -> list[int | Message]:
    """Encode an edited log as seqs of unchanged entries and as new messages."""
    entries = {entry.seq: entry for entry in log}
    encoded: list[int | Message] = []
    for item in entries_and_messages(wanted):
        if isinstance(item, Message):
            encoded.append(item)
        else:
            encoded.append(item.seq if entries.get(item.seq) == item else item.message)
    return encoded


def edited(log: Sequence[Entry], wanted: Sequence[int | Message]) -> list[Entry | Message]:
    """Decode the result of `sent`, for the same log."""
    entries = {entry.seq: entry for entry in log}
    missing = [item for item in wanted if isinstance(item, int) and item not in entries]
    if missing:
        raise InvalidInput(
            f"The log has no message {missing[0]}. Read the log again, and repeat the edit."
        )
    return [entries[item] if isinstance(item, int) else item for item in wanted]
