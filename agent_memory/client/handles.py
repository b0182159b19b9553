"""Derives classes from the library's classes, with methods that call a service."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, wraps
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin
from urllib.parse import quote
from uuid import uuid4

from agent_memory.client.calls import MESSAGES, PARAMETER, Call, class_of, of
from agent_memory.client.service import Request, Service, is_missing
from agent_memory.client.values import mistyped, parsed, plain, takes
from agent_memory.core.limits import check_id, text_of
from agent_memory.core.messages import Message
from agent_memory.core.turns import Turn, check_turn, messages_of
from agent_memory.engine.user import span_of
from agent_memory.engine.values.items import Put
from agent_memory.errors import (
    AccessDenied,
    InvalidInput,
    SessionOfAnotherUser,
    UnsupportedOperation,
)
from agent_memory.ltm_blocks.keyed_records import plain_json
from agent_memory.ltm_blocks.working import check_key

C = TypeVar("C", bound=type)

_HEADERS = {"key": ("Idempotency-Key", "{}"), "expected": ("If-Match", '"{}"')}
_OURS = ("self", "user_id", "default")
_EXACT = (Any, dict[str, Any], dict[str, Any] | None)


@dataclass(frozen=True)
class Remote:
    """Calls a service for a local handle. Requests name the handle's user, session or share."""

    service: Service
    user_id: str | None = None
    session_id: str | None = None  # the current session
    share: str | None = None

    def ask(self, call: Call, arguments: Mapping[str, Any]) -> Any:
        """Make a call. For "not found", return what a local memory returns, such as None."""
        kind = call.types.get("return", Any)
        try:
            request = self.request(call, arguments)
            value = self.service.ask(request)
        except _NoSuchId:
            return _nothing(call, kind, arguments)
        except AccessDenied as error:
            if is_missing(error) and call.subject not in ("share", "shared"):
                return _nothing(call, kind, arguments)
            raise
        if call.function_name == "completion":
            return response_of(value)
        result = parsed(kind, value)
        if isinstance(result, Turn) and call.subject == "memory":
            return _named(result, arguments["session_id"], arguments.get("user_id"))
        return result

    def request(self, call: Call, arguments: Mapping[str, Any]) -> Request:
        user_id, turn = arguments.get("user_id"), arguments.get("turn")
        if user_id is None:
            user_id = self.user_id
        else:
            check_id("user_id", user_id)
        if "turn" in call.parameters:
            check_turn(turn)
            user_id = user_id or cast("Turn", turn).user_id
        values: dict[str, Any] = {} if self.share is None else {"share": self.share}
        headers: dict[str, str] = {}
        if self.session_id is not None and call.session_field:
            values[call.session_field] = self.session_id
        for name, value in arguments.items():
            if name in call.fields:
                values[call.fields[name].name] = _wire_value(call, name, value)
            elif name == "turn":
                again = value.regenerates
                values |= {"turn_messages": plain(value.turn_messages), "regenerates": plain(again)}
                if "session_id" not in values:
                    values["session_id"] = value.session_id
            elif name == "source":
                values |= _source(value)
            elif name in _HEADERS and (call.keyed or call.versioned):
                if value is not None:
                    text_of(name, value)
                    headers[_HEADERS[name][0]] = _HEADERS[name][1].format(quote(value, safe=""))
            elif name not in _OURS and value not in (None, {}, call.parameters[name].default):
                raise UnsupportedOperation(
                    f"{call.function_name}() of a memory behind a service takes no {name}: the "
                    "service decides it. Remove the argument, or open the memory in this process."
                )
        if call.keyed:  # with a key, a retried request is stored once
            headers.setdefault(_HEADERS["key"][0], uuid4().hex)
        # these tools store nothing, or once for a key; other tools may do their work twice
        again = call.again or str(arguments.get("name")).startswith("memory_")
        return request_of(call.method, call.path, values, user_id, headers, again)


class _NoSuchId(Exception):
    """Raised for an empty id, which nothing can have."""


def request_of(
    method: str,
    template: str,
    values: Mapping[str, Any],
    user_id: str | None,
    headers: Mapping[str, str] | None = None,
    again: bool = True,
) -> Request:
    """Return a request. Values of `sent` fill the path's fields. Others go to the body or query.

    Raises `_NoSuchId` for an empty value in the path.
    """
    rest, path = dict(values), template
    for name in PARAMETER.findall(template):
        value = rest.pop(name)
        if name in ("session_id", "agent_id"):
            check_id(name, value)
        elif isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        text = text_of(name, value)
        if not text:
            raise _NoSuchId
        try:
            part = quote(text, safe="")
        except UnicodeEncodeError:
            raise InvalidInput(f"The {name} is not valid Unicode. Use other characters.") from None
        path = path.replace(f"{{{name}}}", part if part.strip(".") else part.replace(".", "%2E"))
    query = {} if user_id is None else {"user_id": user_id}
    if method in ("POST", "PUT"):
        return Request(method, path, query, rest, headers or {}, again)
    query |= {name: item for name, item in rest.items() if item is not None}
    return Request(method, path, query, None, headers or {}, again)


def _wire_value(call: Call, name: str, value: Any) -> Any:
    kind = call.fields[name].type
    if call.types.get(name) in _EXACT:
        plain_json(value, f"The {name}")
    elif name == "puts":
        value = [Put(*put) for put in value]
        for put in value:
            plain_json(put.value, "The value")
    elif name in ("blocks", "roles") and isinstance(value, str):
        value = [value]
    elif call.name == "set_working" and name == "key":
        check_key(value)
    value = plain(_messages(call, name, value))
    if name not in MESSAGES and not takes(kind, value):
        raise mistyped(name)
    return value


def _source(value: Any) -> dict[str, Any]:
    if value is None or isinstance(value, str):
        return {"session_id": value}
    session_id, first, last = span_of(value)
    return {"session_id": session_id, "first": first, "last": last}


def _nothing(call: Call, kind: Any, arguments: Mapping[str, Any]) -> Any:
    """Return what the library returns for a call about something that does not exist."""
    origin = get_origin(kind)
    if origin in (list, dict):
        return origin()
    if kind is bool:
        return False
    if origin in (Union, UnionType) and type(None) in get_args(kind):
        return None
    if call.function_name == "get" and "default" in call.parameters:
        return arguments.get("default")
    raise NotTheirs


class NotTheirs(SessionOfAnotherUser):
    """The session belongs to another user, or does not exist. Only an admin learns which."""

    def __init__(self) -> None:
        super().__init__(
            "The session does not exist or belongs to another user. Check the ids. A session "
            "belongs to the first user named for it."
        )


def remotely(subject: str, keeps: Collection[str] = ()) -> Callable[[C], C]:
    """Return a decorator for a class whose objects have an attribute `_remote`.

    An inherited method calls the service if the table of calls lists it. Other inherited public
    methods raise `UnsupportedOperation`, except the methods in `keeps`, which only call other
    methods. Methods that the class itself defines do not change.
    """
    calls = of(subject)

    def change(kind: C) -> C:
        own = class_of(subject)
        for name in dir(own):
            if name.startswith("_") or name in vars(kind) or name in keeps:
                continue
            member = inspect.getattr_static(own, name)
            if name in calls:
                setattr(kind, name, remote_method(calls[name]))
            elif isinstance(member, property):
                setattr(kind, name, property(_refusing(own, name)))
            elif callable(member):
                setattr(kind, name, _refusing(own, name))
        return kind

    return change


def remote_method(call: Call) -> Callable[..., Any]:
    signature = inspect.signature(call.function)

    @wraps(call.function)
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._remote.ask(call, signature.bind(self, *args, **kwargs).arguments)

    return method


@cache
def handle_class(subject: str) -> type:
    kind = class_of(subject)

    def begin(self: Any, remote: Remote) -> None:
        self._remote = remote

    def described(self: Any) -> str:
        return f"{type(self).__name__}({self._remote.service.url!r})"

    derived = type(f"Remote{kind.__name__}", (kind,), {"__init__": begin, "__repr__": described})
    return remotely(subject)(derived)


def response_of(value: Mapping[str, Any]) -> Any:
    from agent_memory.models.loading import load_litellm

    return load_litellm().ModelResponse(**value)


def _named(turn: Turn, session_id: str, user_id: str | None) -> Turn:
    """Return a turn with its session and user, which the service omits."""
    again = turn.regenerates and turn.regenerates._replace(session_id=session_id)
    return replace(turn, session_id=session_id, user_id=user_id, regenerates=again)


def _refusing(kind: type, name: str) -> Callable[..., Any]:
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperation(
            f"{kind.__name__}.{name} is not available behind a service. Open the memory in this "
            "process to use it."
        )

    method.__name__ = name
    return method


def _messages(call: Call, name: str, value: Any) -> Any:
    if name not in MESSAGES or value is None:
        return value
    if call.function_name == "update" or name == "window":
        items = value if isinstance(value, list | tuple) else [value]
        return [message for item in items for message in Message.all_of(item)]
    if isinstance(value, str):
        return value
    if call.function_name == "get":
        return Message.of(value)
    return messages_of(value, "assistant" if name == "answer" else "user")
