"""Answers as bytes. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from agent_memory.server.operation import Streamed
from agent_memory.server.problems import MEDIA_TYPE, Problem

Headers = list[tuple[bytes, bytes]]

JSON = "application/json"

ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""Headers that each answer has."""


def encoded(value: object) -> bytes:
    """A value as JSON; what UTF-8 cannot say is escaped."""
    if is_dataclass(value):
        value = _plain(value)
    try:
        return _AS_IT_IS.encode(value).encode()
    except UnicodeEncodeError:  # lone surrogates, which a log keeps as they were said
        return _ESCAPED.encode(value).encode()


def line_of(value: Mapping[str, Any], streams: Streamed) -> bytes:
    """A piece of what is sent piece by piece."""
    if streams == "text/event-stream":
        event = value["event"]
        rest = {name: one for name, one in value.items() if name != "event"}
        return b"event: %s\ndata: %s\n\n" % (str(event).encode(), encoded(rest))
    return encoded(value) + b"\n"


def headers_of(media_type: str, size: int | None = None, **more: str) -> Headers:
    """The headers of an answer."""
    found = [(b"content-type", media_type.encode()), *ALWAYS]
    if size is not None:
        found.append((b"content-length", str(size).encode()))
    named = {name.replace("_", "-").lower(): value for name, value in more.items()}
    return found + [(name.encode(), value.encode("latin-1")) for name, value in named.items()]


def answer_of(value: object) -> tuple[bytes, Headers]:
    """The body and the headers of an answer; with its ETag where it has a version."""
    body, version = encoded(value), getattr(value, "version", None)
    tag = {} if version is None else {"etag": f'"{version}"'}
    return body, headers_of(JSON, len(body), **tag)


def told(problem: Problem) -> tuple[bytes, Headers]:
    """The body and the headers of a problem."""
    body = encoded(problem.body())
    return body, headers_of(MEDIA_TYPE, len(body), **problem.headers)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is no JSON")


_AS_IT_IS = json.JSONEncoder(default=_plain, ensure_ascii=False, separators=(",", ":"))
_ESCAPED = json.JSONEncoder(default=_plain, separators=(",", ":"))
