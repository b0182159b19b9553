"""A request's headers, query and body as what a call takes. Pure, but for reading the body."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin
from urllib.parse import parse_qsl

from pydantic import ValidationError
from pydantic_core import from_json

from agent_memory.listening.asgi import Receive
from agent_memory.server.operation import Form, Operation
from agent_memory.server.problems import (
    INVALID,
    TOO_LARGE,
    UNREADABLE,
    Problem,
    Refused,
    mistakes_in,
)

USER = "user_id"

_MOST_FIELDS = 100
_LONGEST_KEY = 255

Headers = Iterable[tuple[bytes, bytes]]


class Disconnected(Exception):
    """Whoever asked has gone away before the request was whole."""


async def body_of(headers: Headers, receive: Receive, most: int) -> bytes:
    """A request's body.

    Raises:
        Refused: It has more than so many bytes.
        Disconnected: It did not come to its end.
    """
    said = _header(headers, b"content-length")
    if said is not None and said.isdigit() and int(said[:20]) > most:
        raise _too_large(most)
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Disconnected
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def query_of(raw: bytes) -> tuple[str | None, dict[str, list[str]]]:
    """The user whom a query names, and its other fields.

    Raises:
        Refused: It is no query, or names two users.
    """
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError:
        raise Refused(INVALID, "The query cannot be read. Send it percent-encoded.") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    users = fields.pop(USER, [])
    if len(users) > 1:
        raise Refused(INVALID, "The query names more than one user. Name one.")
    return (users[0] if users else None), fields


def form_of(
    operation: Operation,
    path: Mapping[str, str],
    query: Mapping[str, list[str]],
    body: bytes,
) -> Form:
    """What a call takes, checked.

    Raises:
        Refused: The request is not what the call takes.
    """
    if operation.has_body:
        given = _object(body)
        if query:
            raise Refused(INVALID, "The query has fields. This call takes them in its body.")
    else:
        lists = {
            name for name, one in operation.form.model_fields.items() if _is_list(one.annotation)
        }
        given = {}
        for name, values in query.items():
            if name not in lists and len(values) > 1:
                raise Refused(INVALID, "The query has a field more than once. Send each once.")
            given[name] = values if name in lists else values[0]
    if path.keys() & given.keys():
        raise Refused(INVALID, "What stands in the path stands elsewhere too. Leave it there.")
    try:
        return operation.form.model_validate({**given, **path})
    except ValidationError as error:
        raise Mistaken(mistakes_in(error)) from None


class Mistaken(Refused):
    """A form that is not what the call takes.

    Args:
        problem: Where it is wrong.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.kind, problem.detail)
        self.problem = problem


def key_of(headers: Headers) -> str | None:
    """The Idempotency-Key of a request.

    Raises:
        Refused: It is not usable.
    """
    key = _header(headers, b"idempotency-key")
    if key is not None and not (key.strip() and len(key) <= _LONGEST_KEY and key.isascii()):
        raise Refused(
            INVALID, f"The Idempotency-Key is not usable. Send 1 to {_LONGEST_KEY} characters."
        )
    return None if key is None else key.decode("ascii")


def version_of(headers: Headers) -> str | None:
    """The version that If-Match names.

    Raises:
        Refused: It is no single strong ETag.
    """
    given = _header(headers, b"if-match")
    if given is None:
        return None
    tag = given.strip().decode("latin-1")
    if len(tag) < 3 or not (tag[0] == tag[-1] == '"') or '"' in tag[1:-1]:
        raise Refused(INVALID, "If-Match is not usable. Send one ETag, as it was given.")
    return tag[1:-1]


def _object(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        given = _json(body)
    except (ValueError, RecursionError):  # its sentence may repeat what was sent
        raise Refused(UNREADABLE, "The body is not JSON in UTF-8. Send one object.") from None
    if not isinstance(given, dict):
        raise Refused(UNREADABLE, "The body is JSON, but no object. Send one object.")
    return given


def _json(body: bytes) -> Any:
    """JSON that UTF-8 can say; and what it cannot, half a surrogate pair, where it is escaped.

    Raises:
        ValueError: It is none.
    """
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError:
        if b"\\u" not in body:
            raise
        return json.loads(body.decode(), parse_constant=_refuse)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _header(headers: Headers, wanted: bytes) -> bytes | None:
    found = [value for name, value in headers if name == wanted]
    if len(found) > 1:
        raise Refused(INVALID, f"{wanted.decode()} is sent more than once. Send it once.")
    return found[0] if found else None


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(map(_is_list, get_args(annotation)))


def _too_large(most: int) -> Refused:
    return Refused(TOO_LARGE, f"The body has more than {most:,} bytes. Send less at once.")
