"""Encode responses as bytes and headers. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from starlette.responses import Response

from agent_memory.client.calls import EXACT
from agent_memory.server.library import Value
from agent_memory.server.operation import Streamed
from agent_memory.server.problems import MEDIA_TYPE, Problem
from agent_memory.server.shapes import plain

ALWAYS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""Headers of every response."""

_VERSIONED = ("text", "version")


def encoded(value: object) -> bytes:
    """Encode a value as JSON. Characters that UTF-8 cannot encode are escaped."""
    try:
        return _AS_IT_IS.encode(value).encode()
    except UnicodeEncodeError:  # lone surrogates, which a log stores unchanged
        return _ESCAPED.encode(value).encode()


def line_of(value: Mapping[str, Any], streams: Streamed) -> bytes:
    """Encode one item of a stream."""
    if streams == "text/event-stream":
        event = value["event"]
        rest = {name: one for name, one in value.items() if name != "event"}
        return b"event: %s\ndata: %s\n\n" % (str(event).encode(), encoded(rest))
    return encoded(value) + b"\n"


def answer_of(value: Any, status: int = 200) -> Response:
    """Return a response. A note or a file gets its version as ETag."""
    if isinstance(value, Value):
        return Response(encoded({"value": value.value}), status, ALWAYS, EXACT)
    if is_dataclass(value):
        value = plain(value)
    tagged = isinstance(value, dict) and value.keys() >= {*_VERSIONED}
    headers = {**ALWAYS, "etag": f'"{value["version"]}"'} if tagged else ALWAYS
    return Response(encoded(value), status, headers, "application/json")


def problem_response(problem: Problem) -> Response:
    """Return the response of a problem."""
    headers = {**ALWAYS, **problem.headers}
    return Response(encoded(problem.body()), problem.kind.status, headers, MEDIA_TYPE)


_AS_IT_IS = json.JSONEncoder(default=plain, ensure_ascii=False, separators=(",", ":"))
_ESCAPED = json.JSONEncoder(default=plain, separators=(",", ":"))
