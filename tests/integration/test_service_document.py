"""The service's OpenAPI document: valid, whole, and frozen in a file."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import openapi_spec_validator

import agent_memory
from agent_memory.server.application import OPENAPI
from agent_memory.server.calls import OPERATIONS
from agent_memory.server.openapi import document
from tests.integration.serving import serving

FROZEN = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"


def test_the_document_is_frozen(tmp_path: Path) -> None:
    """Wrong: a call, a field or an answer changed, and clients that were made from the document are
    not told. `make reference` freezes it anew, once that is what is wanted."""
    made = json.loads(json.dumps(document(OPERATIONS, agent_memory.__version__)))
    openapi_spec_validator.validate(made)
    assert made == json.loads(FROZEN.read_text(encoding="utf-8")), "run: make reference"
    with serving(tmp_path) as service:
        assert service.ask("GET", OPENAPI, None).json == made


def test_every_call_is_told_whole() -> None:
    """Wrong: a call is missing, has no words, or refers to a form that is not there."""
    made = document(OPERATIONS, "0")
    assert made["openapi"] == "3.1.0"
    told = [call for path in made["paths"].values() for call in path.values()]
    assert sorted(one["operationId"] for one in told) == sorted(one.name for one in OPERATIONS)
    schemas = made["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    text = json.dumps(made)
    for name in text.split("#/components/schemas/")[1:]:
        assert name.partition('"')[0] in schemas
    for one in told:
        assert one["summary"].endswith(".")
        assert "Needs the right: " in one["description"]
        placed = [each["name"] for each in one.get("parameters", ()) if each["in"] == "path"]
        path = next(path for path, calls in made["paths"].items() if one in calls.values())
        assert placed == [part.split("}")[0] for part in path.split("{")[1:]]


def test_each_entry_stands_alone() -> None:
    """Wrong: an entry needs something else to be told of it, so that one is forgotten."""
    names = [one.name for one in OPERATIONS]
    assert len(names) == len(set(names))
    for one in OPERATIONS:
        assert set(one.in_path) <= set(one.form.model_fields)
        assert "user_id" not in one.form.model_fields
        for name, field in one.form.model_fields.items():
            assert name in one.in_path or one.has_body or field.annotation is not dict
