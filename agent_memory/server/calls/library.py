"""The library's own calls, for its client: each as `agent_memory.client.calls` has it.

Other paths are for programs in any language, and their answers are forms of the service. These are
for `AgentMemory("https://...")`: they take and give what the library does, under the same rights,
for the same users. A field that is left out has the library's default.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from inspect import getdoc
from typing import Any, Final, Optional

from pydantic import Field, create_model

from agent_memory.client.calls import AT_HAND, CALLS, MESSAGES, MOST, SHARED, Call, Whose
from agent_memory.client.values import checked, plain
from agent_memory.core.context import MemoryContext
from agent_memory.core.explanation import Explanation
from agent_memory.core.records import Recall
from agent_memory.core.turns import Turn
from agent_memory.engine.surplus import recalls_in
from agent_memory.errors import AccessDenied
from agent_memory.server.operation import At, Form, Operation, SessionId
from agent_memory.server.problems import NOT_FOUND, Refused

LINES: Final = "application/x-ndjson"

_SAID = "Messages, each as {message, created_at}; or a text."


@dataclass(frozen=True, slots=True)
class Value:
    """What a call of the library gives, as JSON."""

    value: Any


def operation_of(call: Call, *, stream: bool = False) -> Operation:
    """The entry of a call.

    Args:
        call: The call.
        stream: Whether what it gives is sent piece by piece, as it comes.
    """

    def run(at: At, asked: Any) -> Any:
        found = made(call, at, asked, stream=stream)
        return pieces(found) if stream else Value(plain(found))

    signature = inspect.signature(call.function)
    summary = (getdoc(call.function) or "").partition("\n\n")[0]
    summary = " ".join(summary.split()).rstrip(".:")
    run.__name__ = f"{call.id}_stream" if stream else call.id
    run.__doc__ = f"{summary}.\n\nThe library's own: gives `{signature.return_annotation}`."
    run.__annotations__ = {"asked": _form(call), "return": Iterator[Any] if stream else Value}
    path = f"{call.path}-stream" if stream else call.path
    anyones = call.needs != "admin" and call.subject != "shared"
    entry = Operation("POST", path, call.needs, run, anyones=anyones)
    return replace(entry, streams=LINES) if stream else entry


def made(call: Call, at: At, asked: Form, *, stream: bool = False) -> Any:
    """Make a call for whoever asks.

    Raises:
        AgentMemoryError: As the library.
    """
    sent = {name: getattr(asked, name) for name in asked.model_fields_set & call.takes.keys()}
    given = {name: checked(call.types.get(name, Any), one, name) for name, one in sent.items()}
    if call.name == "call_tool" or given.get("tools"):
        at.principal.require("delete")  # by a tool a model may delete too
    if isinstance(given.get("turn"), Turn):
        given["turn"] = _own(call, at, given["turn"])
    if call.whose and given.get("session_id") is not None:
        given["session_id"] = session_of(at, given["session_id"], call.whose, call.name == "delete")
    if given.get("source") is not None:
        given["source"] = _source(at, given["source"])
    if call.name == "forget_all":
        given["found"] = _without_others(at, given["found"])
    if call.name == "history":
        given |= _page(given)
    if call.subject == "memory" and call.names_user:
        given["user_id"] = at.user_id or None
    if stream:
        given["stream"] = True
    many = [name for name, one in call.takes.items() if one.kind is one.VAR_POSITIONAL]
    places = [each for name in many for each in given.pop(name, None) or ()]
    with admins_told(at):
        found = getattr(_target(call, at, asked), call.name)(*places, **given)
    if call.subject != "memory":
        return found
    return _without_ids(found if "admin" in at.principal.rights else _without_past(found))


def session_of(at: At, session_id: str, whose: Whose, deleting: bool = False) -> str:
    """The id of a session that a call names, as `Call.whose` says.

    An admin, who may act for everybody, is told by the library itself whose a session is.

    Raises:
        Refused: It is another's, or there is none where one is needed.
    """
    if "admin" in at.principal.rights:
        return session_id
    if whose == "own":
        return at.own(session_id, deleting=deleting)
    return at.to_write(session_id) if whose == "write" else at.to_read(session_id)


@contextmanager
def admins_told(at: At) -> Iterator[None]:
    """Tell an admin, who may act for everybody, that a session is another's: it is no secret."""
    try:
        yield
    except AccessDenied as error:
        if "admin" not in at.principal.rights:
            raise
        told = Refused(NOT_FOUND, str(error))
        told.problem = replace(told.problem, error=type(error))
        raise told from error


def pieces(found: Any) -> Iterator[dict[str, Any]]:
    """What is given piece by piece, each a line; the last has what it gives at its end."""
    try:
        for one in found:
            yield {"value": plain(one)}
        yield {"end": plain(getattr(found, "response", None))}
    finally:
        found.close()


def _form(call: Call) -> type[Form]:
    fields: dict[str, Any] = {}
    for name, one in call.takes.items():
        described = _SAID if name in MESSAGES else f"As `{one.annotation}`."
        if "timedelta" in str(one.annotation):
            described = "Seconds."
        is_needed = one.default is one.empty and one.kind is not one.VAR_POSITIONAL
        fields[name] = (Any, Field(... if is_needed else None, description=described))
    if call.subject in ("share", "shared"):
        fields[SHARED] = (str, Field(description="The namespace."))
    elif call.subject == "working":
        fields[AT_HAND] = (SessionId, Field(description="The session."))
    elif call.subject != "memory":
        maybe = Optional[SessionId]  # noqa: UP045 - pyright takes no | after Annotated
        fields[AT_HAND] = (maybe, Field(None, description="The session at hand."))
    name = "".join(part.title() for part in call.id.split("_"))
    form: type[Form] = create_model(f"Ask{name}", __base__=Form, **fields)
    return form


def _target(call: Call, at: At, asked: Form) -> Any:
    """The object whose call it is."""
    memory, user_id = at.memory, at.user_id or None
    if call.subject == "memory":
        return memory
    if call.subject in ("share", "shared"):
        share = memory.share(getattr(asked, SHARED))
        return share if call.subject == "share" else share.agent(at.user_id)
    at_hand = getattr(asked, AT_HAND)
    if at_hand is not None:
        whose: Whose = "read" if call.needs == "read" else "write"
        session = memory.session(session_of(at, at_hand, whose), user_id)
        if call.subject == "working":
            return session.working()
        owner = session.owner()
    elif user_id is None and call.subject != "user":
        return memory.values() if call.subject == "values" else memory.open(call.subject)
    else:
        owner = memory.user(at.user_id)
    if call.subject == "user":
        return owner
    return owner.values() if call.subject == "values" else owner.open(call.subject)


def _source(at: At, source: Any) -> Any:
    if isinstance(source, str):
        return session_of(at, source, "read")
    return (session_of(at, source[0], "read"), *source[1:])


def _without_others(at: At, found: Any) -> list[Recall]:
    """What is to be forgotten, without its places in sessions that are another's: they are passed
    over, as those of sessions that there are not."""
    own = cache(lambda session_id: session_of(at, session_id, "read") == session_id)
    return [
        replace(one, sources=tuple(place for place in one.sources if own(place[0])))
        for one in recalls_in(found)
    ]


def _page(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of a log no more than a page: the client asks for one after the other."""
    asked = {name: one for name, one in given.items() if name in ("limit", "last")}
    asked = {name: one for name, one in asked.items() if one is not None} or {"limit": MOST}
    return {name: min(one, MOST) for name, one in asked.items() if type(one) is int}


def _own(call: Call, at: At, turn: Turn) -> Turn:
    """A turn as it is for whoever gives it back: what it says of sessions is not taken on trust."""
    if call.subject == "memory":
        session_of(at, turn.session_id, "write")
    again = turn.regenerates and turn.regenerates._replace(session_id=turn.session_id)
    return replace(turn, user_id=at.user_id or None, regenerates=again)


def _without_past(value: Any) -> Any:
    """A context without what it has of the one before, where there is no such session: of another's
    none is kept, so that would tell them apart."""
    if isinstance(value, MemoryContext) and value.head is None:
        return replace(value, kept_tokens=None)
    if isinstance(value, Turn | Explanation):
        return replace(value, context=_without_past(value.context))
    return value


def _without_ids(value: Any) -> Any:
    """A turn without whose it is, which the client knows: so the answer is the same for a session
    that is another's and for one that there is not."""
    if not isinstance(value, Turn):
        return value
    again = value.regenerates and value.regenerates._replace(session_id="")
    return replace(value, session_id="", user_id=None, regenerates=again)


OPERATIONS: tuple[Operation, ...] = (
    *map(operation_of, CALLS),
    *(operation_of(call, stream=True) for call in CALLS if call.id == "memory_completion"),
)
"""The calls of the library."""
