"""Tools for models: their schemas, and validation of arguments."""

import asyncio
import json
import traceback
from contextlib import suppress
from enum import Enum
from typing import Annotated, Any

import pytest
from anthropic.types import ToolParam
from google.genai.types import FunctionDeclaration
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.utils.function_calling import convert_to_openai_tool
from mcp.types import Tool as McpTool
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam as ResponsesTool
from pydantic import BaseModel, Field, JsonValue, TypeAdapter, create_model

from agent_memory.core.records import Scope
from agent_memory.core.tools import Arguments, Tool, tools_of
from agent_memory.core.tools import tool as model_tool
from agent_memory.errors import InvalidInput, ToolRefused

SCOPE = Scope("ada", "s")


class Shade(Enum):
    LIGHT = "light"
    DARK = "dark"


class Part(BaseModel):
    """A part, for people."""

    title: str
    size: int = Field(default=1, ge=1)


class Book(Arguments):
    """A book, for people."""

    title: str = Field(min_length=1, description="What it is called.")
    parts: list[Part] = Field(default=[Part(title="all")], examples=[[{"title": "one"}]])
    shade: Shade = Shade.LIGHT
    more: dict[str, JsonValue] = Field(default_factory=dict)


class Nothing(Arguments):
    """Takes nothing."""


def tool(arguments: type[Arguments] = Book) -> Tool:
    return Tool("book_add", "Adds a book.", arguments, lambda scope, asked: f"{scope} {asked!r}")


def titles(schema: Any, of_names: bool = False) -> list[Any]:
    """Return all "title" entries of a schema, except properties of that name."""
    if isinstance(schema, list):
        return [one for part in schema for one in titles(part)]
    if not isinstance(schema, dict):
        return []
    found = [schema["title"]] if "title" in schema and not of_names else []
    for key, value in schema.items():
        if key not in ("default", "examples"):
            found += titles(value, key in ("properties", "$defs") and not of_names)
    return found


def test_a_tool_has_a_schema_in_the_format_of_openai() -> None:
    """Wrong: a tool's schema is invalid for a provider, or lacks its description."""
    told = tool().schema()
    assert told["type"] == "function"
    function, parameters = told["function"], told["function"]["parameters"]
    assert (function["name"], function["description"]) == ("book_add", "Adds a book.")
    assert (parameters["type"], parameters["required"]) == ("object", ["title"])
    assert parameters["additionalProperties"] is False
    assert "description" not in parameters
    assert json.loads(json.dumps(told)) == told


def test_a_schema_contains_no_generated_titles() -> None:
    """Wrong: pydantic's titles cost tokens in every request."""
    parameters = tool().parameters()
    assert titles(parameters) == []
    properties = parameters["properties"]
    called = {"description": "What it is called.", "minLength": 1, "type": "string"}
    assert properties["title"] == called
    assert set(parameters["$defs"]["Part"]["properties"]) == {"title", "size"}
    title = create_model("title", text=(str, "none"))
    held = tool(create_model("Holder", __base__=Arguments, held=(title, ...))).parameters()
    assert set(held["$defs"]["title"]["properties"]) == {"text"}
    assert properties["parts"]["default"] == [{"title": "all", "size": 1}]
    assert properties["parts"]["examples"] == [[{"title": "one"}]]


def test_arguments_are_a_mapping_or_json() -> None:
    """Wrong: arguments as JSON text are refused, or a schema without arguments is invalid."""
    parameters = tool(Nothing).parameters()
    assert (parameters["type"], parameters["properties"]) == ("object", {})
    nothings: list[Any] = [None, "", "  ", "null", "{}", {}]
    for none in nothings:
        assert tool(Nothing).call(SCOPE, none) == f"{SCOPE} Nothing()"
    wanted = tool().call(SCOPE, {"title": "Ulysses", "shade": "dark"})
    assert "title='Ulysses'" in wanted
    assert tool().call(SCOPE, '{"title": "Ulysses", "shade": "dark"}') == wanted
    assert "'a': [None, 1]" in tool().call(SCOPE, '{"title": "x", "more": {"a": [null, 1]}}')
    assert "🎈" in tool().call(SCOPE, '{"title": "\\ud83c\\udf88"}')


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"title": NaN}', "not JSON"),
        ('{"title": "\\ud800"}', "not JSON"),
        ("\ud800", "not JSON"),
        ('{"more": ' + "9" * 10_000 + "}", "not JSON"),
        ("[]", "not a JSON object"),
        ('"title"', "not a JSON object"),
        ([], "not a JSON object"),
        (0, "not a JSON object"),
        ({}, "title: Field required"),
        ({"title": ""}, "title: String should have at least 1 character"),
        ({"title": 5}, "title: Input should be a valid string"),
        ({"title": "x", "user_id": "ben"}, "user_id: Extra inputs are not permitted"),
        ({"title": "x", 1: 2}, "1: Keys should be strings"),
        ({"title": "x", "parts": [{"size": 0}]}, "parts.0.title: Field required; parts.0.size"),
        ({"title": "x", "shade": "grey"}, "shade: Input should be 'light' or 'dark'"),
    ],
)
def test_bad_arguments_are_refused(given: Any, wanted: str) -> None:
    """Wrong: invalid arguments reach the tool, raise a foreign error, or get no remedy."""
    with pytest.raises(ToolRefused) as refused:
        tool().call(SCOPE, given)
    assert str(refused.value).startswith(("The arguments of book_add", "book_add was called"))
    assert wanted in str(refused.value)
    assert str(refused.value).endswith(".")


def test_a_refusal_contains_no_argument_value() -> None:
    """Wrong: a refusal, which may be logged, contains an argument's value."""
    secret = "4417-1234-5678-9113"
    sent: dict[str, Any] = {"title": [secret], "parts": secret, "shade": secret}
    with pytest.raises(ToolRefused) as refused:
        tool().call(SCOPE, sent)
    assert secret not in "".join(traceback.format_exception(refused.value))
    deep: Any = {}
    for _ in range(150):
        deep = {"k" * 100: deep, "set": {1}}
    many = {f"key {n}": n for n in range(1_000)}
    for sent in ({"title": "x", "more": {"a": deep}}, {"title": "x", **many}, {"y" * 10_000: 1}):
        with pytest.raises(ToolRefused) as refused:
            tool().call(SCOPE, sent)
        assert len(str(refused.value)) < 1_500

    def refuse(scope: Scope, asked: Any) -> str:
        raise InvalidInput("There is no room.")

    with pytest.raises(InvalidInput, match=r"^There is no room\.$"):
        Tool("t", "Refuses.", Nothing, refuse).call(SCOPE, None)


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_nothing_that_a_model_sends_is_another_error(given: Any) -> None:
    """Wrong: some arguments raise an unexpected error."""
    for arguments in (given, json.dumps(given), {"title": given}, {"title": "x", "more": given}):
        with suppress(ToolRefused):
            assert tool().call(SCOPE, arguments).startswith("Scope(")


class Shop:
    name = "shop"

    @model_tool("{name}_add", "Adds a book to the {what}.", ("write",))
    def add(
        self,
        scope: Scope,
        title: Annotated[str, Field(min_length=1, description="What it is called.")],
        size: int | None = Field(default=None, ge=1, description="Its pages."),
    ) -> str:
        return f"{scope.user_id}: {title!r} {size!r}" if size else {"title": title}  # type: ignore[return-value]

    @model_tool("{name}_list", "Lists the {what}.", ("read",))
    def list(self, scope: Scope) -> str:
        return "none"

    @model_tool("{name}_swap", "Swaps books.")
    def swap(self, scope: Scope, asked: Book) -> str:
        return asked.title

    def other(self, scope: Scope, title: str) -> str:
        return title


class Kiosk(Shop):
    name = "kiosk"


def test_marked_methods_become_tools() -> None:
    """Wrong: a method is no tool, has other arguments, shows its scope, or is not inherited."""
    add, listing, swap = tools_of(Shop(), what="shelf")
    assert [one.name for one in (add, listing, swap)] == ["shop_add", "shop_list", "shop_swap"]
    assert (add.description, add.effects) == ("Adds a book to the shelf.", ("write",))
    assert add.parameters() == {
        "additionalProperties": False,
        "properties": {
            "title": {"description": "What it is called.", "minLength": 1, "type": "string"},
            "size": {"description": "Its pages.", "minimum": 1, "type": "integer"},
        },
        "required": ["title"],
        "type": "object",
    }
    assert listing.parameters()["properties"] == {}
    assert swap.parameters() == tool().parameters()
    assert add.call(SCOPE, '{"title": "Emma"}') == '{"title":"Emma"}'
    assert add.call(SCOPE, {"title": "Emma", "size": 9}) == "ada: 'Emma' 9"
    assert (listing.call(SCOPE, ""), swap.call(SCOPE, {"title": "x"})) == ("none", "x")
    for bad in ({}, {"title": ""}, {"title": "x", "scope": {}}, {"title": "x", "size": 0}):
        with pytest.raises(ToolRefused, match="shop_add was called with bad arguments"):
            add.call(SCOPE, bad)
    with pytest.raises(InvalidInput, match="'nap' is an async function"):
        model_tool("nap", "Sleeps.")(asyncio.sleep)  # type: ignore[type-var]
    with pytest.raises(ToolRefused, match="shop_list"):
        listing.call(SCOPE, {"any": 1})
    _, listing, _ = tools_of(Kiosk(), what="rack")
    assert (listing.name, listing.description) == ("kiosk_list", "Lists the rack.")
    assert listing.call(SCOPE, None) == "none"


def test_each_provider_sdk_accepts_its_tool_format() -> None:
    """Wrong: a provider's SDK refuses the tool, or gets another name, description or argument."""
    one = tools_of(Shop(), what="shelf")[0]
    wanted = [one.name, one.description, one.parameters()]
    chat = TypeAdapter(ChatCompletionFunctionToolParam).validate_python(one.schema())["function"]
    assert [chat["name"], chat["description"], chat["parameters"]] == wanted
    for form, kind, place in (
        ("openai.responses", ResponsesTool, "parameters"),
        ("anthropic.messages", ToolParam, "input_schema"),
    ):
        found = TypeAdapter(kind).validate_python(one.schema(form))
        assert [found["name"], found["description"], found[place]] == wanted
    google = FunctionDeclaration.model_validate(one.schema("google.contents"))
    assert [google.name, google.description, google.parameters_json_schema] == wanted
    mcp = McpTool.model_validate(one.schema("mcp"))
    assert [mcp.name, mcp.description, mcp.input_schema] == wanted
    lang = convert_to_openai_tool(one.schema("langchain"))
    assert lang == one.schema("openai.chat") == one.schema()
    for unknown in ("yaml", "", None, []):
        with pytest.raises(InvalidInput, match="has no tools"):
            one.schema(unknown)
