"""What calls take and give, as JSON and back, by the types that the library's methods name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from functools import cache
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

from pydantic import BaseModel, create_model

from agent_memory.client.calls import hints_of
from agent_memory.core.limits import quoted
from agent_memory.core.messages import Message
from agent_memory.errors import AgentMemoryError, InvalidInput

_PLAIN = str | int | float | bool | None
_DAY = 10  # characters of a date without a time


def plain(value: Any) -> Any:
    """A value as JSON has it.

    Raises:
        InvalidInput: JSON has no such thing, as for a function.
    """
    if isinstance(value, float) and not isfinite(value):
        raise InvalidInput(f"{value} cannot be sent to a service: JSON has no such number.")
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Message):
        return {"message": value.to_dict(), "created_at": value.created_at.isoformat()}
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value) if one.init}
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Path):  # of one machine, and of no use on another
        return None
    if isinstance(value, list | tuple | set | frozenset) or _is_lazy(value):
        return [plain(one) for one in cast("Iterable[Any]", value)]
    raise InvalidInput(
        f"{quoted(value)} cannot be sent to a service: it is a {type(value).__name__}, and JSON "
        "has none. Give plain values; or open the memory in this process."
    )


def checked(kind: Any, value: Any, name: str) -> Any:
    """As `made`, of what somebody else sent.

    Raises:
        InvalidInput: It is nothing of that type.
    """
    try:
        return made(kind, value)
    except AgentMemoryError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError):
        raise InvalidInput(f"{name} is not what the call takes: see its type.") from None


def made(kind: Any, value: Any) -> Any:
    """The value of a type that `plain` made JSON of.

    What a type does not have is passed over, and what is missing has its default: the other side
    may be of another release.
    """
    if value is None or kind is Any:
        return value
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return made(_of_union(args, value), value)
    if origin is not None and origin is not tuple and issubclass(_class(origin), Mapping):
        key, one = args
        return {made(key, name): made(one, each) for name, each in value.items()}
    if origin is tuple and args[-1] is not Ellipsis:
        return tuple(made(one, each) for one, each in zip(args, value, strict=True))
    if origin is not None and issubclass(_class(origin), Iterable):
        _check_list(value)
        return (tuple if origin is tuple else list)(made(args[0], one) for one in value)
    return _made(kind, value) if isinstance(kind, type) else value


def _made(kind: type, value: Any) -> Any:
    if kind is Message:
        at = datetime.fromisoformat(value["created_at"])
        return Message.from_json(Message.of(value["message"]).to_json(), at)
    if kind in (datetime, date):
        return kind.fromisoformat(value)
    if kind is timedelta:
        return timedelta(seconds=value)
    if _is_named(kind):
        _check_list(value)
        types = _hints(kind).values()
        return kind(*(made(one, each) for one, each in zip(types, value, strict=False)))
    if is_dataclass(kind):
        hints = _hints(kind)
        given = {one.name for one in fields(kind) if one.init} & value.keys()
        return kind(**{name: made(hints[name], value[name]) for name in given})
    if kind is BaseModel:  # of a class that only the other side has
        return create_model("Profile", **dict.fromkeys(value, (Any, ...)))(**value)  # type: ignore[call-overload]
    return value


def _of_union(args: Sequence[Any], value: Any) -> Any:
    """Which of several types a value has in JSON."""
    if isinstance(value, str) and datetime in args:
        return date if date in args and len(value) == _DAY else datetime
    if isinstance(value, list):
        return next((one for one in args if get_origin(one) is not None or _is_named(one)), Any)
    if isinstance(value, Mapping):
        found = [one for one in args if isinstance(one, type) and is_dataclass(one)]
        return max(found, key=lambda one: len(value.keys() & _hints(one).keys()), default=Any)
    return timedelta if timedelta in args and not isinstance(value, bool) else Any


def _is_named(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _check_list(value: Any) -> None:
    if not isinstance(value, list):
        raise TypeError("no list")


def _class(origin: Any) -> type:
    return origin if isinstance(origin, type) else type(origin)


def _is_lazy(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, bytes | bytearray)


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return hints_of(kind)
