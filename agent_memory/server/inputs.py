"""Builds the inputs of the library's calls as pydantic models, from the signatures."""

from __future__ import annotations

import types
from collections.abc import Mapping
from datetime import datetime, timedelta
from inspect import Parameter
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    create_model,
)

from agent_memory.client.calls import EXACT, MESSAGES, MOST, Call
from agent_memory.client.calls import Field as CallField
from agent_memory.server.forms import FORMS
from agent_memory.server.operation import Form, SessionId
from agent_memory.server.shapes import schema_of


def _not_empty(value: Any, info: ValidationInfo) -> Any:
    """Refuse an empty value, except from the Python client, which may send what Python accepts."""
    if not value and not (info.context or {}).get(EXACT):
        raise ValueError("it is empty")
    return value


def _number(value: Any) -> Any:
    """Convert a path segment to an int, since strict validation would refuse the text."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 19 else value


_MESSAGE = {"anyOf": [{"type": "string"}, {"type": "object"}]}


def _message_field(description: str) -> Any:
    schema = {"anyOf": [*_MESSAGE["anyOf"], {"type": "array", "items": _MESSAGE}]}
    return Annotated[Any, Field(description=description), WithJsonSchema(schema)]


SHARE = "share"
_FIELDS: Mapping[str, Any] = {
    "session_id": SessionId,
    "in_session": Annotated[SessionId, Field(description="The current session.")],
    "share": Annotated[str, Field(min_length=1, description="The namespace.")],
    "agent_id": Annotated[str, Field(min_length=1, description="The agent.")],
    "note_id": Annotated[str, Field(min_length=1)],
    "path": Annotated[str, Field(min_length=1, description="A path, such as /memories/plan.md.")],
    "messages": Annotated[
        list[Any],
        AfterValidator(_not_empty),
        Field(
            max_length=10_000,
            description="Messages in the format of OpenAI's, Anthropic's, Gemini's or Bedrock's "
            "API. A plain text is a user message. Messages with an `id` are deduplicated. "
            "`{message, created_at}` gives a message its time, which needs a UTC offset.",
        ),
        WithJsonSchema({"type": "array", "items": _MESSAGE, "minItems": 1, "maxItems": 10_000}),
    ],
    "message": _message_field(
        "The question, as a text or as a message of an API. For a turn, it may be a list: the "
        "question, tool calls, and the results of the calls."
    ),
    "turn_messages": Annotated[
        list[Any],
        Field(min_length=1, description="The `turn_messages` that before-turn returned."),
        WithJsonSchema({"type": "array", "items": _MESSAGE, "minItems": 1}),
    ],
    "answer": _message_field(
        "The model's answer, as text or as a message. Or a list, in order: tool calls, the "
        "results of the calls, the answer."
    ),
    "expected_end": Annotated[
        int, Field(ge=0, description="Store only if the log still ends at this seq.")
    ],
    "query": Annotated[str, AfterValidator(_not_empty), Field(description="The query text.")],
    "question": Annotated[str, AfterValidator(_not_empty), Field(description="The query text.")],
    "format": Annotated[str, Field(description="The target API; null for OpenAI's chat.")],
    "max_tokens": Annotated[  # without limits here: the library checks the number
        int, WithJsonSchema({"type": "integer", "minimum": 1, "description": "The token budget."})
    ],
    "metadata": Annotated[dict[str, Any], Field(description="A title, tags, or any JSON.")],
    "prefix": Annotated[str, Field(description="Only ids with this prefix.")],
    "newest": Annotated[bool, Field(description="Order by the newest message, newest first.")],
    "blocks": Annotated[list[str], Field(description="Only from these blocks.")],
    "roles": Annotated[list[str], Field(description="Only from messages of these roles.")],
    "least": Annotated[float, Field(description="The lowest score.")],
    "superseded": Annotated[
        bool, Field(description="Include superseded facts: the whole history.")
    ],
    "why": Annotated[str, Field(max_length=1_000, description="The reason, for the audit.")],
    "first": Annotated[int, Field(ge=1, description="The seq of the first message; null for all.")],
    "last": Annotated[
        int,
        Field(
            ge=1,
            description="The seq of the last message. In a log: the number of newest messages.",
        ),
    ],
    "text": Annotated[str, Field(description="The text.")],
    "confidence": Annotated[float, Field(ge=0, le=1, description="0 to 1.")],
    "limit": Annotated[
        int,
        Field(description="The maximum number of results."),
        WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST}),
    ],
    "after": Annotated[
        str,
        Field(
            max_length=400, description="The `next` of the previous page; omit for the first page."
        ),
    ],
}
"""The types and descriptions of fields that several calls have, by name."""


def input_of(call: Call) -> type[Form]:
    in_path = {part for part in call.path.split("/") if part.startswith("{")}
    fields: dict[str, Any] = {}
    for name, field in call.fields.items():
        fields[field.name] = _pydantic(field, f"{{{field.name}}}" in in_path, name)
    if call.session_field:
        is_needed = f"{{{call.session_field}}}" in in_path
        kind = _FIELDS[call.session_field]
        fields[call.session_field] = (kind, ...) if is_needed else (_or_none(kind), None)
    if call.subject in (SHARE, "shared"):
        fields[SHARE] = (_FIELDS[SHARE], ...)
    if FORMS[call.form].paged:
        fields["limit"] = (_FIELDS["limit"], 100)
        fields["after"] = (_or_none(_FIELDS["after"]), None)
    name = "".join(part.title() for part in call.name.split("_"))
    form: type[Form] = create_model(f"Ask{name}", __base__=Form, **fields)
    return form


def _pydantic(field: CallField, is_in_path: bool, name: str) -> tuple[Any, Any]:
    kind, described = _wire_type(field.type), _FIELDS.get(field.name)
    is_same = described is not None and _base(described) == _base(kind)
    if described is not None and (is_same or name in MESSAGES):
        kind = described
    if is_in_path:
        return Annotated[kind, BeforeValidator(_number)] if kind is int else kind, ...
    if field.default is Parameter.empty:
        return kind, ...
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    return (_or_none(kind) if default is None else kind), default


def _wire_type(kind: Any) -> Any:
    """Return the type that pydantic checks. `checked` later converts values to the real type."""
    args = [arg for arg in get_args(kind) if arg is not type(None)]
    if get_origin(kind) in (Union, types.UnionType):
        if timedelta in args:
            return Annotated[float, Field(description="Seconds.")]
        return _wire_type(args[0]) if len(args) == 1 else _any(kind)
    if kind in (str, int, float, bool) or get_origin(kind) is Literal:
        return kind
    if get_origin(kind) not in (None, tuple) and args and args[0] in (str, int, float):
        if issubclass(get_origin(kind), Mapping):
            return dict[str, Any]
        return list[args[0]]  # type: ignore[valid-type]
    return _any(kind)


def _any(kind: Any) -> Any:
    described = "With a time zone." if kind is datetime or datetime in get_args(kind) else None
    return Annotated[Any, Field(description=described), WithJsonSchema(schema_of(kind, {}))]


def _base(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _or_none(kind: Any) -> Any:
    return Union[kind, None]  # noqa: UP007 - pyright takes no | after Annotated
