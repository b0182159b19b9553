"""What all forms of a model's answer begin with."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

_UNKNOWN = {
    "default", "pattern", "minLength", "maxLength", "minItems", "maxItems", "multipleOf",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
}  # fmt: skip
"""What providers refuse in a schema that they enforce. It is checked when the answer is here."""


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _plain(part) for name, part in schema.items() if name not in _UNKNOWN}


def _plain_properties(schema: dict[str, Any]) -> None:
    told = schema.get("properties", {})
    told.update({name: _plain(part) for name, part in told.items()})


class Told(BaseModel):
    """A part of an answer, whose schema says nothing that a provider would refuse."""

    model_config = ConfigDict(json_schema_extra=_plain_properties)
