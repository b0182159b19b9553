"""Builds the OpenAPI document from the operations. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent_memory.client.calls import EXACT
from agent_memory.core.tools import untitled
from agent_memory.server.operation import PREFIX, Operation
from agent_memory.server.problems import KINDS, MEDIA_TYPE
from agent_memory.server.shapes import REFERENCE, parts_of

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
    extras = [_USER] * call.of_user + [_KEY] * call.once + [_VERSION] * call.versioned
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
            "type": {"type": "string", "enum": sorted(kind.type for kind in KINDS)},
            "title": text,
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "What to do."},
            "error": {"type": "string", "description": "The error that the client raises."},
            "errors": {"type": "array", "items": mistake},
        },
    }
