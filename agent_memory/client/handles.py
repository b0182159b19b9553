"""Classes whose methods ask a service, made of those that do it themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from typing import Any, TypeVar, cast
from uuid import uuid4

from agent_memory.client.calls import AT_HAND, MESSAGES, Call, class_of, of
from agent_memory.client.service import Service, status_of
from agent_memory.client.values import made, plain
from agent_memory.core.messages import Message
from agent_memory.core.turns import Turn, check_turn, messages_of
from agent_memory.engine.values.items import Put
from agent_memory.errors import AccessDenied, SessionOfAnotherUser, UnsupportedOperation
from agent_memory.ltm_blocks.keyed_records import require_plain

C = TypeVar("C", bound=type)
Lines = Generator[Any, None, Any]

_NOT_FOUND = 404
_OURS = ("self", "user_id")
_EXACT = (Any, dict[str, Any], dict[str, Any] | None)


@dataclass(frozen=True)
class Remote:
    """Asks a service, for an object of this process.

    Attributes:
        service: The service.
        user_id: For whom, where a call names nobody.
        fields: What else every request of the object says.
    """

    service: Service
    user_id: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def of(self, user_id: str | None, **fields: Any) -> Remote:
        """The same, for a user or with more to say."""
        return replace(self, user_id=user_id, fields={**self.fields, **fields})

    def ask(self, call: Call, given: Mapping[str, Any]) -> Any:
        """Make a call.

        Args:
            call: The call.
            given: Its arguments, by the names of its parameters.

        Raises:
            AgentMemoryError: As the library.
        """
        body, user_id = self.body(call, given)
        with of_another(body):
            value = self.service.ask(call.path, body, user_id, again=call.again)
        if call.name == "completion":
            return response_of(value)
        found = made(call.types.get("return", Any), value)
        if isinstance(found, Turn) and call.subject == "memory":
            return _named(found, given["session_id"], given.get("user_id"))
        return found

    def lines(self, path: str, body: Mapping[str, Any], user_id: str | None) -> Lines:
        """As `ask`, of an answer that comes piece by piece; plain."""
        with of_another(body):
            return (yield from self.service.lines(path, body, user_id))

    def body(self, call: Call, given: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
        """What a request for a call says, and for whom it is.

        Raises:
            UnsupportedOperation: An argument is one that no wire carries.
            InvalidInput: An argument is no JSON; or see `Message.of`.
        """
        body = dict(self.fields)
        user_id, turn = given.get("user_id") or self.user_id, given.get("turn")
        if "turn" in call.takes:
            check_turn(turn)
            user_id = user_id or cast("Turn", turn).user_id
        defaults = inspect.signature(call.function).parameters
        for name, value in given.items():
            if name in call.takes:
                if call.types.get(name) in _EXACT:
                    require_plain(value, f"The {name}")
                elif name == "puts":
                    value = [Put(*one) for one in value]
                    for one in value:
                        require_plain(one.value, "The value")
                body[name] = plain(_said(call, name, value))
            elif name not in _OURS and value not in (None, {}, defaults[name].default):
                raise UnsupportedOperation(
                    f"{call.name}() of a memory behind a service takes no {name}: it stays with "
                    "the service. Leave it out, or open the memory in this process."
                )
        key = call.takes.get("key")
        if key is not None and key.default is None and body.get("key") is None:
            body["key"] = uuid4().hex  # so that a request that is made again is done once
        return body, user_id


class NotTheirs(SessionOfAnotherUser):
    """The session is another's, or there is none: a key that is no admin's is not told which."""


_ANOTHERS = (
    "There is no such session for this user: it is another's, or is not there. Look at the ids; a "
    "session belongs to the first user named for it."
)


def remotely(subject: str, keeps: Collection[str] = ()) -> Callable[[C], C]:
    """Have the public methods of a class ask a service: those of the table. Others are refused, but
    for what the class defines itself.

    Args:
        subject: Whose calls they are. Objects of the class have a `_remote`.
        keeps: Methods that it inherits, and that do right by calling others.
    """
    calls = {one.name: one for one in of(subject)}

    def change(kind: C) -> C:
        own = class_of(subject)
        for name in dir(own):
            if name.startswith("_") or name in vars(kind) or name in keeps:
                continue
            found = inspect.getattr_static(own, name)
            if name in calls:
                setattr(kind, name, asking(calls[name]))
            elif isinstance(found, property):
                setattr(kind, name, property(_refusing(own, name)))
            elif callable(found):
                setattr(kind, name, _refusing(own, name))
        return kind

    return change


def asking(call: Call) -> Callable[..., Any]:
    """The method that asks a service in the place of the one that does it."""
    signature = inspect.signature(call.function)

    @wraps(call.function)
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._remote.ask(call, signature.bind(self, *args, **kwargs).arguments)

    return method


@cache
def handle_class(subject: str) -> type:
    """The class of a handle that asks a service."""
    kind = class_of(subject)

    def begin(self: Any, remote: Remote) -> None:
        self._remote = remote

    def told(self: Any) -> str:
        return f"{type(self).__name__}({self._remote.service.url!r})"

    made_class = type(f"Remote{kind.__name__}", (kind,), {"__init__": begin, "__repr__": told})
    return remotely(subject)(made_class)


def response_of(given: Mapping[str, Any]) -> Any:
    """A response of litellm's, as the service was given it."""
    from agent_memory.models.loading import load_litellm

    return load_litellm().ModelResponse(**given)


def _named(turn: Turn, session_id: str, user_id: str | None) -> Turn:
    """A turn with whose it is, which the service leaves out."""
    again = turn.regenerates and turn.regenerates._replace(session_id=session_id)
    return replace(turn, session_id=session_id, user_id=user_id, regenerates=again)


def _refusing(kind: type, name: str) -> Callable[..., Any]:
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperation(
            f"{kind.__name__}.{name} is not there for a memory behind a service. Open the memory "
            "in this process for that."
        )

    method.__name__ = name
    return method


def _said(call: Call, name: str, value: Any) -> Any:
    """An argument; what is said, as messages; a turn without what was shown for it."""
    if isinstance(value, Turn):
        return replace(value, context=cast("Any", None), messages=[])
    if name not in MESSAGES or value is None:
        return value
    if call.name == "update" or name == "window":
        given = value if isinstance(value, list | tuple) else [value]
        return [one for each in given for one in Message.all_of(each)]
    if isinstance(value, str):
        return value
    if call.name == "get":
        return Message.of(value)
    return messages_of(value, "assistant" if name == "answer" else "user")


@contextmanager
def of_another(body: Mapping[str, Any]) -> Iterator[None]:
    """Raise what the library does where a session is not there for whoever asks."""
    try:
        yield
    except AccessDenied as error:
        names_session = not {"session_id", "turn", AT_HAND}.isdisjoint(body)
        if type(error) is AccessDenied and status_of(error) == _NOT_FOUND and names_session:
            raise NotTheirs(_ANOTHERS) from None
        raise
