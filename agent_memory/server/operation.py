"""`Operation`, a call of the service, its OpenAPI document, and `At`, the context of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, getdoc, signature
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, create_model

from agent_memory.client.calls import EXACT, PARAMETER, Method, Right, SessionAccess
from agent_memory.core.limits import MAX_ID
from agent_memory.core.tools import untitled
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.user import User
from agent_memory.server.credentials import Principal
from agent_memory.server.problems import MEDIA_TYPE, Kind, Refused, not_found
from agent_memory.server.shapes import REFERENCE, Shape, parts_of

Streamed = Literal["", "application/x-ndjson", "text/event-stream"]
PREFIX = "/v1"
SessionId = Annotated[str, Field(min_length=1, max_length=MAX_ID, description="The conversation.")]


class Form(BaseModel):
    """The input of a call.

    The path of a request contains some fields. The other fields are in the query of GET and DELETE,
    and in the JSON body of POST and PUT.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class At:
    memory: AgentMemory
    # The user of the request, which the credential decides. It is empty for calls about the whole
    # service. It is also empty if an admin names no user. The admin then has access to the
    # sessions of all users, as in the library.
    user_id: str
    principal: Principal
    key: str | None = None  # the request's Idempotency-Key, or None
    version: str | None = None  # the version in If-Match, or None
    # whether the client accepts `EXACT`, a format with all fields of the library's values
    exact: bool = False

    @property
    def user(self) -> User:
        return self.memory.user(self.user_id)

    def session(self, session_id: str, access: SessionAccess, *, deleting: bool = False) -> str:
        """Check access to a session as `whose` requires. Return the id to pass to the library.

        With "read", the result for another user's session is an id that does not exist. The library
        checks an admin's access. `deleting` accepts a session whose deletion has begun.
        """
        if "admin" in self.principal.rights:
            return session_id
        ownership = self.memory.components.guard.ownership(session_id, self.user_id)
        if access == "own" and ownership != "own" and not (deleting and ownership == "deleting"):
            raise not_found()
        if access == "write" and ownership == "another's":
            raise not_found()
        return f"none-{uuid4()}" if ownership == "another's" else session_id

    def length(self, session_id: str) -> tuple[int, int]:
        """Return `expired` and `end` of a session's log.

        Both are 0 if the session was deleted meanwhile or does not belong to `user_id`.
        """
        head = self.memory.components.store.head(session_id)
        if head is None or self.user_id not in ("", head.user_id):
            return 0, 0
        return head.expired, head.end


Run = Callable[[At, Any], Any]
RunAll = Callable[[Sequence[tuple[At, Any]]], Sequence[Any]]


@dataclass(frozen=True)
class Operation:
    name: str
    method: Method
    path: str
    # The right that the call requires; None if any valid credential may make the call. Calls that
    # need "admin" or None act for no user.
    needs: Right | None
    run: Run
    form: type[Form]
    answer: Shape | None  # the form of the response; None for a stream
    about: tuple[str, str]  # the summary and the rest of the description
    keyed: bool = False  # whether the call takes an Idempotency-Key
    again: bool = True  # whether a repeated call has no further effect; see `Call.again`
    versioned: bool = False  # whether the call takes If-Match
    streams: Streamed = ""  # the media type of a streamed response; empty for one JSON response
    # Runs a batch of calls, and returns a response or an error for each call. Set for calls that
    # take less time than starting a thread for each of them.
    run_all: RunAll | None = None
    anyones: bool = False  # whether an admin may make the call without a user; see `At.user_id`
    asks_model: bool = False  # whether the call waits for a model's answer
    exact: bool = False  # whether the call can also respond in the format `EXACT`
    more_rights: str = ""  # text after `needs` in the OpenAPI document, about further rights

    @property
    def of_user(self) -> bool:
        return self.needs not in (None, "admin")

    @property
    def has_body(self) -> bool:
        return self.method in ("POST", "PUT")

    @cached_property
    def in_path(self) -> tuple[str, ...]:
        return tuple(PARAMETER.findall(self.path))

    @cached_property
    def lists(self) -> frozenset[str]:
        """The names of the fields that are lists, which a query may repeat."""
        fields = self.form.model_fields.items()
        return frozenset(name for name, field in fields if _is_list(field.annotation))


def operation(
    method: Method,
    path: str,
    needs: Right | None,
    answer: Shape | None = None,
    *,
    streams: Streamed = "",
    anyones: bool = False,
    exact: bool = False,
) -> Callable[[Callable[..., Any]], Operation]:
    """Return a decorator that turns a function into an `Operation`.

    The function takes `At`, then the fields of the call's input.
    """

    def entry(function: Callable[..., Any]) -> Operation:
        _, *parameters = signature(function, eval_str=True).parameters.values()
        fields: dict[str, Any] = {
            arg.name: (arg.annotation, ... if arg.default is Parameter.empty else arg.default)
            for arg in parameters
        }
        form = create_model(function.__name__, __base__=Form, **fields)

        def run(at: At, request: Form) -> Any:
            return function(at, **{name: getattr(request, name) for name in fields})

        arguments = (function.__name__, method, path, needs, run, form, answer, about(function))
        flags: Any = {"streams": streams, "anyones": anyones, "exact": exact}
        return Operation(*arguments, **flags)

    return entry


def operations_of(module: object) -> Iterator[Operation]:
    return (value for value in vars(module).values() if isinstance(value, Operation))


def about(function: Callable[..., Any]) -> tuple[str, str]:
    """Return the summary and the rest of a docstring."""
    first, _, rest = (getdoc(function) or "").partition("\n\n")
    return " ".join(first.split()), rest.strip()


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(map(_is_list, get_args(annotation)))


T = TypeVar("T")


def cut(items: Sequence[T], limit: int, name: Callable[[T], str]) -> tuple[list[T], str | None]:
    """Return a page, and the name of its last item if more items follow, else None."""
    page = list(items[:limit])
    return page, name(page[-1]) if len(items) > limit else None


def page_of(
    items: Sequence[T], limit: int, after: str | None, name: Callable[[T], str]
) -> tuple[list[T], str | None]:
    """Return the page of a complete list after the item named `after`. See `cut`."""
    begin = 0
    if after is not None:
        places = (place for place, item in enumerate(items, 1) if name(item) == after)
        begin = next(places, 0)
        if not begin:
            raise Refused(
                Kind.INVALID, "`after` names an item that is gone. Start at the first page."
            )
    return cut(items[begin : begin + limit + 1], limit, name)


def place_of(after: str) -> int:
    if not (after.isascii() and after.isdigit() and len(after) <= 18):
        raise Refused(Kind.INVALID, "`after` is not the `next` of a page. Start at the first page.")
    return int(after)


_ID = {"type": "string", "minLength": 1, "maxLength": 255}
_Extra = tuple[str, str, str, dict[str, Any]]

_USER: _Extra = (
    "query",
    "user_id",
    "The user. Required if the credential is for several users.",
    _ID,
)
_KEY: _Extra = (
    "header",
    "Idempotency-Key",
    "A name for this write, such as a UUID, percent-encoded. A repeated write with the same key is "
    "stored once, even after a restart. The same key with other content is refused (409).",
    _ID,
)
_VERSION: _Extra = (
    "header",
    "If-Match",
    "The ETag that was read. If the item has changed since, the call is refused (412).",
    {"type": "string"},
)


def document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    table = list(operations)
    schemas: dict[str, Any] = {"Problem": _problem()}
    paths: dict[str, Any] = {}
    for call in table:
        paths.setdefault(f"{PREFIX}{call.path}", {})[call.method.lower()] = _call(call)
        if call.answer is not None:
            schemas |= {name: shape.schema() for name, shape in parts_of(call.answer).items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "agent-memory",
            "version": version,
            "description": "Memory for LLM agents, over HTTP. The credential decides for which "
            f"user a call acts. With `Accept: {EXACT}` an answer has `value`: the result of "
            "the Python call, with all its fields.",
        },
        "security": [{"bearer": []}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": {"Problem": _answered("Problem", MEDIA_TYPE, "What went wrong.")},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _call(call: Operation) -> dict[str, Any]:
    form = untitled(call.form.model_json_schema())
    fields, needed = form.get("properties", {}), set(form.get("required", ()))
    parameters = [_parameter("path", name, fields.pop(name), True) for name in call.in_path]
    if not call.has_body:
        parameters += [_parameter("query", name, fields[name], name in needed) for name in fields]
    extras = [_USER] * call.of_user + [_KEY] * call.keyed + [_VERSION] * call.versioned
    for where, name, description, plain in extras:
        parameters.append(_parameter(where, name, {**plain, "description": description}, False))
    summary, more = call.about
    rights = f"{call.needs or 'any'}{call.more_rights}"
    text = f"{more}\n\nNeeds the right: {rights}.".strip()
    entry: dict[str, Any] = {"operationId": call.name, "summary": summary, "description": text}
    if parameters:
        entry |= {"parameters": parameters}
    if call.has_body and fields:
        schema: dict[str, Any] = {"type": "object", "properties": fields}
        schema["additionalProperties"] = False
        required = sorted(needed - set(call.in_path))
        if required:
            schema |= {"required": required}
        body = {"application/json": {"schema": schema}}
        entry |= {"requestBody": {"required": bool(required), "content": body}}
    failed = {"$ref": "#/components/responses/Problem"}
    return entry | {"responses": {"200": _answer(call), "default": failed}}


def _answer(call: Operation) -> dict[str, Any]:
    if call.answer is None:
        content = {call.streams: {"schema": {"type": "string"}}}
        return {"description": "A stream.", "content": content}
    return _answered(call.answer.name, "application/json", call.answer.description)


def _answered(name: str, media_type: str, description: str) -> dict[str, Any]:
    reference = {"$ref": REFERENCE.format(name)}
    return {"description": description, "content": {media_type: {"schema": reference}}}


def _parameter(where: str, name: str, schema: dict[str, Any], needed: bool) -> dict[str, Any]:
    plain = {key: value for key, value in schema.items() if key != "description"}
    described = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": where, "required": needed, **described, "schema": plain}


def _problem() -> dict[str, Any]:
    text = {"type": "string"}
    mistake = {"type": "object", "properties": {"field": text, "problem": text}}
    return {
        "type": "object",
        "description": "Problem details (RFC 9457). Programs should test `type`.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string", "enum": sorted(kind.type for kind in Kind)},
            "title": text,
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "What to do."},
            "error": {"type": "string", "description": "The error that the client raises."},
            "errors": {"type": "array", "items": mistake},
        },
    }
