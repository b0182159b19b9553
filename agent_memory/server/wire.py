"""Parses and validates requests, and encodes responses. Pure, except for reading a body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, unquote_to_bytes

from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from agent_memory.client.calls import EXACT
from agent_memory.server.library import Value
from agent_memory.server.operation import Form, Operation, Streamed
from agent_memory.server.problems import MEDIA_TYPE, Kind, Refused, invalid
from agent_memory.server.shapes import plain

USER = "user_id"

_MOST_FIELDS = 100
_LONGEST_KEY = 255


async def body_of(request: Request, most: int) -> bytes:
    """Read a request's body. Refuse more than `most` bytes."""
    size = request.headers.get("content-length", "")
    if size.isdigit() and int(size[:20]) > most:
        raise _too_large(most)
    parts, received = [], 0
    async for part in request.stream():
        received += len(part)
        if received > most:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


def query_of(raw: bytes) -> tuple[str | None, dict[str, list[str]]]:
    """Return the user that a query names, and the other fields of the query."""
    try:
        text, most = raw.decode("ascii"), _MOST_FIELDS
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=most)
    except ValueError:
        raise Refused(Kind.INVALID, "The query is not valid. Send it percent-encoded.") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    users = fields.pop(USER, [])
    if len(users) > 1:
        raise Refused(Kind.INVALID, "The query has more than one user_id. Send one.")
    return (users[0] if users else None), fields


def form_of(
    operation: Operation,
    path: Mapping[str, str],
    query: Mapping[str, list[str]],
    body: bytes,
    exact: bool = False,
) -> Form:
    """Return the validated input of a call. `exact` says whether the client accepts `EXACT`."""
    if operation.has_body:
        fields = _object(body)
        if query:
            raise Refused(Kind.INVALID, "The query has fields. Send them in the body.")
    else:
        fields = {}
        for name, values in query.items():
            if name not in operation.lists and len(values) > 1:
                raise Refused(Kind.INVALID, "The query repeats a field. Send each field once.")
            fields[name] = values if name in operation.lists else values[0]
        for name in operation.lists:  # a query cannot express an empty list
            if operation.form.model_fields[name].is_required():
                fields.setdefault(name, [])
    if path.keys() & fields.keys():
        raise Refused(Kind.INVALID, "A field of the path is sent twice. Send it in the path only.")
    try:
        return operation.form.model_validate(
            {**fields, **path}, strict=operation.has_body, context={EXACT: exact}
        )
    except ValidationError as error:
        raise invalid(error) from None


def key_of(headers: Headers, operation: Operation) -> str | None:
    """Return the Idempotency-Key of a request, or None."""
    key = _header(headers, "idempotency-key")
    if key is None:
        return None
    if not (operation.keyed or operation.again):
        raise Refused(
            Kind.INVALID,
            "This call takes no Idempotency-Key: a repeated call takes effect twice. Leave the key "
            "out. If no answer arrives, read the data before you repeat the call.",
        )
    text = unquote_to_bytes(key).decode("utf-8", "replace")
    if not (key.strip() and len(text) <= _LONGEST_KEY and key.isascii()):
        raise Refused(
            Kind.INVALID,
            f"The Idempotency-Key is not valid. Send 1 to {_LONGEST_KEY} characters, "
            "percent-encoded.",
        )
    return text


def version_of(headers: Headers) -> str | None:
    """Return the version in If-Match, or None."""
    header = _header(headers, "if-match")
    if header is None:
        return None
    tag = header.strip()
    if len(tag) < 3 or not (tag[0] == tag[-1] == '"') or '"' in tag[1:-1]:
        raise Refused(Kind.INVALID, "If-Match is not valid. Send one ETag, unchanged.")
    return unquote(tag[1:-1])


def _object(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        value = json.loads(body.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):  # the error's message may repeat the body
        raise Refused(Kind.UNREADABLE, "The body is not JSON in UTF-8. Send one object.") from None
    if not isinstance(value, dict):
        raise Refused(Kind.UNREADABLE, "The body is JSON, but not an object. Send one object.")
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _header(headers: Headers, name: str) -> str | None:
    values = headers.getlist(name)
    if len(values) > 1:
        raise Refused(Kind.INVALID, f"{name} is sent more than once. Send it once.")
    return values[0] if values else None


def _too_large(most: int) -> Refused:
    return Refused(Kind.TOO_LARGE, f"The body has more than {most:,} bytes. Split the request.")


ALWAYS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""Headers of every response."""


def encoded(value: object) -> bytes:
    """Encode a value as JSON. Characters that UTF-8 cannot encode are escaped."""
    try:
        return _AS_IT_IS.encode(value).encode()
    except UnicodeEncodeError:  # lone surrogates, which a log stores unchanged
        return _ESCAPED.encode(value).encode()


def line_of(value: Mapping[str, Any], streams: Streamed) -> bytes:
    if streams == "text/event-stream":
        event = value["event"]
        rest = {name: item for name, item in value.items() if name != "event"}
        return b"event: %s\ndata: %s\n\n" % (str(event).encode(), encoded(rest))
    return encoded(value) + b"\n"


def answer_of(value: Any, status: int = 200) -> Response:
    """Return a response. A note or a file gets its version as ETag."""
    if isinstance(value, Value):
        return Response(encoded({"value": value.value}), status, ALWAYS, EXACT)
    if is_dataclass(value):
        value = plain(value)
    tagged = isinstance(value, dict) and value.keys() >= {"text", "version"}
    headers = {**ALWAYS, "etag": f'"{value["version"]}"'} if tagged else ALWAYS
    return Response(encoded(value), status, headers, "application/json")


def problem_response(problem: Refused) -> Response:
    headers = {**ALWAYS, **problem.headers}
    return Response(encoded(problem.body()), problem.kind.status, headers, MEDIA_TYPE)


_AS_IT_IS = json.JSONEncoder(default=plain, ensure_ascii=False, separators=(",", ":"))
_ESCAPED = json.JSONEncoder(default=plain, separators=(",", ":"))
