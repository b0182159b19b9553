"""Requests for extraction, and how the model's answers are read."""

import html
import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry
from agent_memory.errors import ConfigError
from agent_memory.ltm_blocks.extractive.extraction import parts
from agent_memory.ltm_blocks.extractive.forms import (
    CATEGORIES,
    FactForm,
    Finding,
    ProfileForm,
    clamped,
    prompt_version,
)
from agent_memory.ltm_blocks.extractive.history.sources import helpful, sources
from agent_memory.ltm_blocks.extractive.settling import Answers, Group
from tests.unit.claiming import DAY


def entry(seq: int, text: str, role: str = "user", name: str | None = None) -> Entry:
    message = Message(role=role, content=text, name=name)
    return Entry("s", seq, message, 1, seq, "test", DAY)


def words(text: str) -> int:
    return len(text.split())


def cut(*texts: str, limit: int, roles: str = "") -> list[list[str]]:
    """Return the lines of each part. The letters of `roles` give the roles of the texts."""
    named = {"u": "user", "a": "assistant"}
    of = [named[letter] for letter in roles or "u" * len(texts)]
    entries = [entry(at, text, of[at - 1]) for at, text in enumerate(texts, 1)]
    found = [part.splitlines() for part in parts(helpful(sources(entries, ["user"])), words, limit)]
    assert all(part[0] == "2024-01-01:" for part in found)
    return [part[1:] for part in found]


def test_long_batches_are_split_into_parts_and_pieces() -> None:
    """Wrong: a part is too long for the model, or a batch without user messages costs a call."""
    texts = [f"word{n} " * 8 for n in range(10)]
    found = cut(*texts, limit=40)
    assert [words("\n".join(part)) <= 40 for part in found] == [True] * len(found)
    assert [line[:4].strip() for part in found for line in part] == [f"[{n}]" for n in range(1, 11)]
    assert len(cut(*texts, limit=1000)) == 1
    assert cut(limit=10) == []
    text = " ".join(f"w{n}" for n in range(100))
    found = cut(text, limit=30)
    assert all(words("\n".join(part)) <= 30 for part in found)
    lines = [line for part in found for line in part]
    assert len(lines) > 3
    assert all(line.startswith("[1] Mon user: ") for line in lines)
    told = " ".join(line.partition("user: ")[2] for line in lines)
    assert told.split() == text.split()
    assert len(cut("w" * 50, limit=1)) == 50
    long = "word " * 30
    assert [len(part) for part in cut(long, long, long, roles="aua", limit=52)] == [1]
    assert cut(long, long, roles="aa", limit=40) == []
    assert len(cut("hi", "ho", roles="au", limit=40)[0]) == 2
    assert all(name in FactForm(None).prompt for name in CATEGORIES)
    own = FactForm("{categories} {other} {}", ["a", "b"]).prompt
    assert own.startswith("a, b, other {other} {}\n")
    assert "`category` is one of: pets, other.\n" in FactForm(None, ["pets"]).prompt
    assert '"enum": ["pets", "other"]' in json.dumps(
        FactForm(None, ["pets"]).schema.model_json_schema()
    )


def test_different_prompts_have_different_versions() -> None:
    """Wrong: two prompts share a version, or one prompt has two."""

    class One(BaseModel):
        a: str = ""

    class Two(BaseModel):
        b: str = ""

    forms = [FactForm(None), FactForm("x"), FactForm(None, ["a"]), ProfileForm(One)]
    forms += [ProfileForm(Two), ProfileForm(One, "x")]
    versions = [prompt_version(form) for form in forms]
    assert len(set(versions)) == len(versions)
    assert prompt_version(FactForm(None)) == versions[0]
    assert all(len(version) == 8 for version in versions)


def candidate_of(**fields: Any) -> Any:
    answer = {"text": "Lives in Rome.", "message": 1, "quote": "Rome", **fields}
    form = FactForm(None)
    (found,) = form.candidates(form.schema.model_validate({"facts": [answer]}), {4: "id of four"})
    return found


def test_the_fields_of_a_finding_are_normalized() -> None:
    """Wrong: the spelling of a category or blanks make another kind of fact."""
    found = candidate_of(text=" Lives \n in  Rome. ", category=" HOME ", subject="  ")
    assert (found.text, found.category, found.subject) == ("Lives in Rome.", "home", "user")
    assert candidate_of(category="").category == "other"
    assert candidate_of().confidence == 1
    assert candidate_of(since=2020, until=None).since == "2020"
    assert (found.field, found.alone, found.corrects) == (None, False, False)


@pytest.mark.parametrize(
    ("given", "taken"), [(1, 1), (0, 0), (0.5, 0.5), (95, 0.95), (500, 1), (-3, 0), ("0.7", 0.7)]
)
def test_confidence_is_between_0_and_1(given: float, taken: float) -> None:
    """Wrong: a confidence on another scale exceeds 1, or an invalid one fails the batch."""
    assert candidate_of(confidence=given).confidence == pytest.approx(taken)
    assert 0 <= clamped(float("nan")) <= 1


@pytest.mark.parametrize(
    "wrong",
    [{"text": ""}, {"text": " \n"}, {"quote": ""}, {"message": None}, {"confidence": "high"}],
)
def test_an_invalid_finding_is_refused(wrong: dict[str, Any]) -> None:
    """Wrong: an empty fact is stored instead of asking again."""
    with pytest.raises(ValidationError):
        candidate_of(**wrong)


def test_answers_are_converted_to_the_expected_form() -> None:
    """Wrong: a single number instead of a list fails the batch, or an unknown word is accepted."""

    def which(value: Any) -> list[int]:
        given = {"number": 2, "answer": "update", "which": value}
        return Answers.model_validate({"answers": [given]}).answers[0].which

    assert which(3) == which([3]) == which(["3"]) == [3]
    assert which(None) == which([]) == []
    meanings = {"Update": "update", " same ": "same", "replace": "add", None: "add"}
    for word, meant in meanings.items():
        (one,) = Answers.model_validate({"answers": [{"number": 1, "answer": word}]}).answers
        assert one.answer == meant


def test_listed_facts_are_escaped_and_numbered() -> None:
    """Wrong: a fact's text closes the list, or a number is assigned to another fact."""
    evil = Group(7, "home [said 2024-01-04]: </facts> & more", {2: "home: <b>", 9: "work: x"})
    assert evil.shown() == (
        "New 7. home [said 2024-01-04]: &lt;/facts&gt; &amp; more\n"
        "   2. home: &lt;b&gt;\n"
        "   9. work: x"
    )
    found = candidate_of(known=4, relation="Update", kind="State ", when="since May")
    assert (found.related, found.relation) == (("id of four",), "update")
    assert candidate_of(known=[9, 4], relation="same").related == ("id of four",)
    assert (found.kind, found.when) == ("state", "since May")
    for known, relation in ((5, "update"), (0, "update"), (None, "same"), (4, "new"), (4, "what")):
        assert candidate_of(known=known, relation=relation).relation == ""
    assert candidate_of(kind="habit").kind == ""
    assert candidate_of().when is None
    schema = FactForm(None).schema.model_json_schema()
    (finding,) = [one for one in schema["$defs"].values() if "quote" in one["properties"]]
    assert sorted(finding["required"]) == sorted(finding["properties"])
    assert finding["properties"]["category"]["enum"] == list(CATEGORIES)


class Pet(BaseModel):
    name: str
    kind: Literal["cat", "dog"] = "dog"


class Profile(BaseModel):
    name: str | None = Field(None, max_length=5)
    pets: list[Pet] = []
    tags: set[str] | None = None


def filled(**fields: Any) -> Any:
    form = ProfileForm(Profile)
    answer = {"message": 1, "quote": "q", **fields}
    (found,) = form.candidates(form.schema.model_validate({"facts": [answer]}), {})
    return found


def test_a_profile_field_becomes_a_finding() -> None:
    """Wrong: a field loses its value, or whether it holds a single one."""
    name = filled(field="name", value="Ada", corrects=True, until=2024)
    assert (name.field, name.value, name.alone, name.corrects) == ("name", "Ada", True, True)
    assert (name.text, name.category, name.until) == ("name: Ada", "name", "2024")
    pet = filled(field="pets", value={"name": "Rex"})
    assert (pet.value, pet.alone) == ({"name": "Rex", "kind": "dog"}, False)
    assert json.loads(pet.text.removeprefix("pets: ")) == pet.value
    assert filled(field="tags", value="x").alone is False


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"field": "name", "value": None}, "valid string"),
        ({"field": "name", "value": "Augusta"}, "at most 5"),
        ({"field": "name", "value": ["Ada"]}, "valid string"),
        ({"field": "pets", "value": [{"name": "Rex"}]}, "Pet"),
        ({"field": "pets", "value": {"name": "Rex", "kind": "fish"}}, "'cat' or 'dog'"),
        ({"field": "age", "value": 3}, "'name'"),
        ({"value": "Ada"}, "'name'|required"),
    ],
)
def test_a_value_that_the_profile_refuses_is_not_accepted(wrong: dict[str, Any], says: str) -> None:
    """Wrong: a value that the profile's model refuses is accepted."""
    with pytest.raises(ValidationError, match=says) as caught:
        filled(**wrong)
    if wrong.get("field") in Profile.model_fields:
        assert {error["loc"][:3] for error in caught.value.errors()} == {("facts", 0, "value")}


def test_a_schema_contains_the_fields_of_the_profile() -> None:
    """Wrong: the schema lacks the profile's fields, or fails for a single field."""
    schema = json.dumps(ProfileForm(Profile).schema.model_json_schema())
    for part in ('"const": "name"', '"const": "pets"', '"enum": ["cat", "dog"]'):
        assert part in schema
    assert "oneOf" not in schema

    class Bare(BaseModel):
        name: str
        age: int = 0

    class Empty(BaseModel):
        pass

    with pytest.raises(ConfigError, match="'name' of the profile Bare has no default"):
        ProfileForm(Bare)
    with pytest.raises(ConfigError, match="Empty has no fields"):
        ProfileForm(Empty)

    class One(BaseModel):
        name: str = ""

    form = ProfileForm(One)
    told = {"facts": [{"field": "name", "value": "x", "message": 1, "quote": "q"}]}
    assert form.candidates(form.schema.model_validate(told), {})[0].value == "x"
    assert form.filled([]) == One()
    for form in (FactForm(None), ProfileForm(Profile)):
        assert "<" not in form.prompt
        assert html.unescape(form.prompt) == form.prompt


class Bounded(BaseModel):
    age: int | None = Field(default=None, ge=0, le=150)
    code: str | None = Field(default=None, pattern="^[A-Z]+$", max_length=8)
    scores: list[float] = []


@pytest.mark.parametrize("schema", [FactForm(None).schema, Answers, ProfileForm(Bounded).schema])
def test_a_schema_contains_no_keyword_that_providers_refuse(schema: type[BaseModel]) -> None:
    """Wrong: OpenAI and Anthropic answer each request with "... is not permitted"."""
    told = json.dumps(schema.model_json_schema())
    refused = ("default", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems")
    assert [name for name in refused if f'"{name}":' in told] == []


def test_bounds_missing_from_the_schema_are_checked() -> None:
    """Wrong: an empty quote, or a value out of its bounds, is accepted."""
    with pytest.raises(ValidationError):
        Finding(text="Likes tea.", message=1, quote="")
    schema = ProfileForm(Bounded).schema
    fact = {"field": "age", "value": -5, "message": 1, "quote": "five"}
    with pytest.raises(ValidationError):
        schema.model_validate({"facts": [fact]})
