"""The OpenAPI document, made of the table. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from agent_memory.core.tools import untitled
from agent_memory.server.operation import Operation
from agent_memory.server.problems import KINDS, MEDIA_TYPE, Kind
from agent_memory.server.routing import PREFIX

_REFERENCE = "#/components/schemas/{model}"
_USER: dict[str, Any] = {
    "name": "user_id",
    "in": "query",
    "required": False,
    "description": "For which user, where the credential is for several.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Names this write, such as a UUID: sent again with the same key it is done "
    "once, across restarts. With other content it is refused (409).",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
_VERSION: dict[str, Any] = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The ETag as it was read: done only if it is that yet (412).",
    "schema": {"type": "string"},
}


def document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """The document.

    Args:
        operations: The table.
        version: Of the package.
    """
    table = list(operations)
    schemas: dict[str, Any] = {"Problem": _problem()}
    paths: dict[str, Any] = {}
    for one in table:
        paths.setdefault(f"{PREFIX}{one.path}", {})[one.method.lower()] = _call(one, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "agent-memory",
            "version": version,
            "description": "Memory for LLM agents, over HTTP. Which user a call is for comes from "
            "the credential.",
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


def _call(one: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    summary, more = one.about
    _, found = models_json_schema([(one.form, "validation")], ref_template=_REFERENCE)
    defs = dict(found.get("$defs", {}))
    form = defs.pop(one.form.__name__)
    schemas.update({name: untitled(schema) for name, schema in defs.items()})
    fields = untitled(form).get("properties", {})
    needed = set(form.get("required", ()))
    parameters = [_parameter("path", name, fields.pop(name), True) for name in one.in_path]
    if not one.has_body:
        parameters += [
            _parameter("query", name, each, name in needed) for name, each in fields.items()
        ]
    parameters += [_USER] * one.of_user + [_KEY] * one.once + [_VERSION] * one.versioned
    told: dict[str, Any] = {"operationId": one.name, "summary": summary}
    if more:
        told["description"] = more
    told["description"] = f"{more}\n\nNeeds the right: {one.needs or 'any'}.".strip()
    if parameters:
        told["parameters"] = parameters
    if one.has_body and fields:
        schema = {"type": "object", "properties": fields, "additionalProperties": False}
        required = sorted(needed - set(one.in_path))
        if required:
            schema["required"] = required
        body = {"application/json": {"schema": schema}}
        told["requestBody"] = {"required": bool(required), "content": body}
    told["responses"] = {
        "200": _answer(one, schemas),
        "default": {"$ref": "#/components/responses/Problem"},
    }
    return told


def _answer(one: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    if one.streams:
        return {
            "description": "Piece by piece.",
            "content": {one.streams: {"schema": {"type": "string"}}},
        }
    schema = TypeAdapter(one.answer).json_schema(mode="serialization", ref_template=_REFERENCE)
    schemas.update({name: untitled(each) for name, each in schema.pop("$defs", {}).items()})
    name = one.answer.__name__
    schemas[name] = untitled(schema)
    return _answered(name, "application/json", str(schema.get("description", "The answer.")))


def _answered(name: str, media_type: str, description: str) -> dict[str, Any]:
    reference = {"$ref": _REFERENCE.format(model=name)}
    return {"description": description, "content": {media_type: {"schema": reference}}}


def _parameter(where: str, name: str, schema: dict[str, Any], needed: bool) -> dict[str, Any]:
    plain = {key: value for key, value in schema.items() if key != "description"}
    told = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": where, "required": needed, **told, "schema": plain}


def _problem() -> dict[str, Any]:
    text = {"type": "string"}
    mistake = {"type": "object", "properties": {"field": text, "problem": text}}
    return {
        "type": "object",
        "description": "Problem details, as RFC 9457 has them. Programs go by `type`.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string", "enum": sorted(map(_type, KINDS))},
            "title": text,
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "What to do."},
            "error": {"type": "string", "description": "What the library's own client raises."},
            "errors": {"type": "array", "items": mistake},
        },
    }


def _type(kind: Kind) -> str:
    return kind.type
