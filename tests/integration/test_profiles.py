"""A profile that is filled from messages field by field, with its history."""

import json
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from agent_memory import AgentMemoryConfig, ExtractiveMemory
from agent_memory.errors import ConfigError, InvalidSetting, ModelOutputInvalid
from tests.integration.fact_model import Model, absorbed, at, dated, remembering, texts
from tests.kit import invoke


class Diet(Enum):
    VEGAN = "vegan"
    OMNIVORE = "omnivore"


class Address(BaseModel):
    street: str
    zip_code: str = ""


class Profile(BaseModel):
    name: str | None = Field(None, description="the full name")
    age: int | None = Field(None, ge=0, le=130)
    born: date | None = None
    alarm: time | None = None
    appointment: datetime | None = None
    income: Decimal = Decimal(0)
    smoker: bool | None = None
    diet: Diet | None = None
    mood: Literal["good", "bad", "unknown"] = "unknown"
    city: str = "nowhere"
    home: Address | None = None
    hobbies: list[str] = []
    languages: set[str] = set()
    lucky: tuple[int, ...] = ()
    pair: tuple[str, int] | None = None
    pets: list[Address] = Field(default_factory=list)
    colour: str = Field("none", alias="favouriteColour")


class Small(BaseModel):
    city: str | None = None
    hobbies: list[str] = []


def profiled(model: Model, profile: Any = Profile, **fields: Any) -> Any:
    return remembering(model, block=ExtractiveMemory(profile=profile, **fields))


VALUES: list[tuple[str, str, Any, Any]] = [
    ("name", "I am Ada", "Ada", "Ada"),
    ("age", "I am 41", 41, 41),
    ("age", "I turned 42", "42", 42),
    ("born", "on the 17th of May 1983", "1983-05-17", date(1983, 5, 17)),
    ("alarm", "I get up at half past six", "06:30", time(6, 30)),
    ("appointment", "Friday at nine", "2024-01-12T09:00", datetime(2024, 1, 12, 9)),
    ("income", "I earn 1234.50", "1234.50", Decimal("1234.50")),
    ("smoker", "I do not smoke", False, False),
    ("diet", "I am vegan", "vegan", Diet.VEGAN),
    ("mood", "I feel great", "good", "good"),
    ("home", "Elm Street is where I live", {"street": "Elm Street"}, Address(street="Elm Street")),
    ("hobbies", "I play chess", "chess", ["chess"]),
    ("languages", "I speak Welsh", "Welsh", {"Welsh"}),
    ("lucky", "my number is 7", 7, (7,)),
    ("pair", "Bob and 3", ["Bob", 3], ("Bob", 3)),
    ("pets", "the dog sleeps in Elm Street", {"street": "Elm Street"}, [
        Address(street="Elm Street")
    ]),
    ("colour", "I love blue", "blue", "blue"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "quote", "value", "filled"), VALUES)
def test_fields_of_every_type_are_filled(name: str, quote: str, value: Any, filled: Any) -> None:
    """Wrong: a value of this type is refused, stored as text, or lost."""
    model = Model()
    model.fill(quote, name, value)
    with profiled(model) as memory:
        absorbed(memory, "s", dated(quote))
        profile = memory.user("ada").profile()
        assert profile == Profile.model_construct(**{name: filled})
        assert [(one.field, one.quote) for one in memory.user("ada").facts()] == [(name, quote)]


def test_a_profile_without_facts_has_the_defaults() -> None:
    """Wrong: a new user has no profile, or another user's."""
    model = Model()
    model.fill("I am Ada", "name", "Ada")
    with profiled(model) as memory:
        absorbed(memory, "s", dated("I am Ada"))
        assert memory.user("bob").profile() == Profile()
        assert memory.session("new").owner().profile() == Profile()


def test_a_profile_without_a_profile_block_raises_an_error() -> None:
    """Wrong: without a profile block, an empty profile is returned."""
    with remembering(Model()) as memory, pytest.raises(ConfigError, match="profile=Profile"):
        memory.user("ada").profile()


def test_the_prompt_describes_the_profile_fields() -> None:
    """Wrong: the prompt lacks a field's description, or a custom prompt lacks the fields."""
    model = Model()
    with profiled(model, prompt="Mine:\n{fields}") as memory:
        memory.update("s", dated("hello"), user_id="ada")
        memory.flush()
    form = ExtractiveMemory(profile=Profile)._form
    assert "\nname: the full name\n" in form.prompt
    assert "\npets: pets\n" in form.prompt
    own = ExtractiveMemory(profile=Profile, prompt="Mine:\n{fields}")._form
    assert own.prompt.startswith("Mine:\nname: the full name\n")


def moves(model: Model) -> list[tuple[str, dict[str, Any]]]:
    """Three homes. The first one is mentioned last."""
    model.fill("I live in Paris", "city", "Paris", since="2015")
    model.fill("moved to Rome", "city", "Rome", since="2024-03")
    model.fill("grew up in Oslo", "city", "Oslo", since="1990")
    return [
        ("s1", dated("I live in Paris", "2024-01-05")),
        ("s2", dated("I moved to Rome", "2024-03-10")),
        ("s3", dated("I grew up in Oslo", "2024-05-20")),
    ]


def test_a_late_message_about_the_past_keeps_the_current_value() -> None:
    """Wrong: a late message about an earlier time replaces a newer value or the past."""
    model = Model()
    with profiled(model) as memory:
        for session, message in moves(model):
            absorbed(memory, session, message)

        def city(**when: Any) -> str:
            found = memory.user("ada").profile(**when)
            assert isinstance(found, Profile)
            return found.city

        assert city() == "Rome"
        assert city(as_of=at("2024-02-29")) == "Paris"
        assert city(as_of=at("2024-03-01")) == "Rome"
        assert city(as_of=date(2000, 1, 1)) == "Oslo"
        assert city(as_of=date(1980, 1, 1)) == "nowhere"
        assert city(known_at=at("2024-02-01")) == "Paris"
        assert city(as_of=date(2000, 1, 1), known_at=at("2024-04-01")) == "nowhere"
        assert city(known_at=at("2023-01-01")) == "nowhere"
        (now,) = memory.user("ada").facts()
        assert (now.text, now.valid_from) == ("city: Rome", at("2024-03-01"))
        was = {one.text: one for one in memory.user("ada").facts(as_of=at("2020-01-01"))}
        assert was["city: Paris"].superseded_by == now.id
        assert was["city: Paris"].why == "updated"


def test_profile_fields_need_no_second_model_call() -> None:
    """Wrong: fields, which code can link, cost a second call."""
    model = Model()
    with profiled(model) as memory:
        for session, message in moves(model):
            absorbed(memory, session, message)
        assert memory.stats().usage.calls == 3


def test_a_corrected_value_does_not_hold_in_the_past() -> None:
    """Wrong: a corrected value still holds in the past."""
    model = Model()
    model.fill("born in Lyon", "city", "Lyon", since="2020")
    model.fill("not Lyon but Metz", "city", "Metz", since="2020", corrects=True)
    with profiled(model) as memory:
        absorbed(memory, "s1", dated("I was born in Lyon", "2024-01-01"))
        absorbed(memory, "s2", dated("It is not Lyon but Metz", "2024-02-01"))
        assert texts(memory.user("ada").facts(as_of=at("2021-01-01"))) == ["city: Metz"]
        known = at("2024-01-15")
        found = memory.user("ada").facts(as_of=at("2021-01-01"), known_at=known)
        assert texts(found) == ["city: Lyon"]
        changes = [(one.what, one.text) for one in memory.user("ada").audit()]
        assert ("contradicted", "city: Lyon") in changes


@pytest.mark.parametrize("field", ["hobbies", "city"])
def test_a_denied_value_does_not_hold_in_the_past(field: str) -> None:
    """Wrong: "I never played chess" counts as another statement that the user plays chess."""
    model = Model()
    model.fill("That is chess", field, "chess", since="2020")
    model.fill("I never liked sailing", "hobbies", "sailing", denied=True)
    model.fill("never was chess", field, "chess", denied=True)
    model.fill("chess after all", field, "chess")
    with profiled(model, Small) as memory:
        absorbed(memory, "s1", dated("That is chess", "2024-01-05"))
        absorbed(memory, "s2", dated("I never liked sailing", "2024-02-05"))
        assert texts(memory.user("ada").facts()) == [f"{field}: chess"]
        absorbed(memory, "s3", dated("It never was chess", "2024-03-05"))
        assert texts(memory.user("ada").facts()) == []
        assert memory.user("ada").profile() == memory.user("ada").profile(as_of=at("2022-01-01"))
        assert memory.user("ada").profile() == Small()
        changes = [(one.what, one.text) for one in memory.user("ada").audit()]
        assert ("contradicted", f"{field}: chess") in changes
        assert ("said again", f"{field}: chess") not in changes
        absorbed(memory, "s4", dated("It is chess after all", "2024-04-05"))
        assert texts(memory.user("ada").facts()) == [f"{field}: chess"]


def test_list_items_of_a_profile_start_and_end_separately() -> None:
    """Wrong: a list item replaces another, stays after its end, or is stored twice."""
    model = Model()
    model.fill("play chess", "hobbies", "chess", since="2020")
    model.fill("love sailing", "hobbies", "sailing", since="2021")
    model.fill("gave up chess", "hobbies", "chess", until="2024-02")
    model.fill("as a child I sailed", "hobbies", "sailing", since="2000")
    with profiled(model, Small) as memory:

        def hobbies(**when: Any) -> list[str]:
            found = memory.user("ada").profile(**when)
            assert isinstance(found, Small)
            return sorted(found.hobbies)

        absorbed(memory, "s1", dated("I play chess and love sailing", "2024-01-05"))
        assert hobbies() == ["chess", "sailing"]
        absorbed(memory, "s2", dated("I gave up chess last month", "2024-03-05"))
        assert hobbies() == ["sailing"]
        assert hobbies(as_of=date(2024, 2, 29)) == ["chess", "sailing"]
        assert hobbies(as_of=date(2024, 3, 1)) == ["sailing"]
        assert hobbies(known_at=at("2024-02-01")) == ["chess", "sailing"]
        absorbed(memory, "s3", dated("Even as a child I sailed", "2024-04-05"))
        assert hobbies() == ["sailing"]
        assert hobbies(as_of=date(2010, 1, 1)) == ["sailing"]


@pytest.mark.parametrize(
    ("before", "quote", "after"),
    [
        (["Tom", "Ann"], "not Ann but Anna", ["Anna", "Tom"]),
        (["Ann", "Tom"], "not Ann but Anna", ["Anna", "Tom"]),
        (["Ann"], "it is Anna", ["Anna"]),
        (["Tom", "Ann"], "it is Anna", ["Ann", "Anna", "Tom"]),
        (["Tom", "Ann"], "like Tom, not Ann but Anna", ["Ann", "Anna", "Tom"]),
    ],
)
def test_an_item_is_corrected(before: list[str], quote: str, after: list[str]) -> None:
    """Wrong: a correction removes another item, or any of several that match."""
    model = Model()
    for name in before:
        model.fill("my children", "hobbies", name)
    model.fill(quote, "hobbies", "Anna", corrects=True)
    with profiled(model, Small) as memory:
        absorbed(memory, "s1", dated("Here are my children", "2024-01-05"))
        absorbed(memory, "s2", dated(quote, "2024-01-06"))
        assert sorted(memory.user("ada").profile().hobbies) == after


def test_an_invalid_profile_value_causes_a_second_model_call() -> None:
    """Wrong: a profile stores a value that its model refuses, and cannot be read any more."""
    model = Model()
    model.fill("I am old", "age", 900)
    with profiled(model) as memory:
        memory.update("s", dated("I am old"), user_id="ada")
        (failed,) = memory.flush()
        assert failed.error is not None
        assert ModelOutputInvalid.__name__ in failed.error
        assert memory.user("ada").facts() == []
        assert len(model.asked) == 2
        assert "less than or equal to 130" in model.asked[1]
        assert len(model.asked[1]) < 600
        model.finds = {}
        model.fill("I am old", "age", 90)
        (done,) = memory.flush()
        assert done.error is None
        assert memory.user("ada").profile().age == 90


def test_an_unknown_profile_field_causes_a_second_model_call() -> None:
    """Wrong: a field that the profile does not have is stored."""
    model = Model()
    model.fill("I am tall", "height", 190)
    with profiled(model, Small) as memory:
        memory.update("s", dated("I am tall"), user_id="ada")
        (failed,) = memory.flush()
        assert failed.error
        assert "height" in model.asked[1]


def test_a_profile_field_without_a_default_is_rejected() -> None:
    """Wrong: a profile field without a default is accepted, and fails when it is first read."""

    class Bare(BaseModel):
        fine: str = ""
        missing: int

    class Empty(BaseModel):
        pass

    with pytest.raises(ConfigError, match="'missing' of the profile Bare has no default"):
        ExtractiveMemory(profile=Bare)
    with pytest.raises(ConfigError, match="Empty has no fields"):
        ExtractiveMemory(profile=Empty)


def test_a_changed_profile_model_reads_older_values(tmp_path: Path) -> None:
    """Wrong: values stored under an older profile model make the newer one fail."""

    class Older(BaseModel):
        town: str = ""
        city: str = ""
        hobbies: str = ""

    model = Model()
    model.fill("I am from Ulm", "town", "Ulm")
    model.fill("I live in Rome", "city", "Rome")
    model.fill("I play chess", "hobbies", "chess")
    store = f"sqlite:///{tmp_path}/m.db"
    with remembering(model, store, ExtractiveMemory(profile=Older)) as memory:
        absorbed(memory, "s", dated("I am from Ulm, I live in Rome, I play chess"))
        assert memory.user("ada").profile() == Older(town="Ulm", city="Rome", hobbies="chess")
    with remembering(model, store, ExtractiveMemory(profile=Small)) as memory:
        assert memory.user("ada").profile() == Small(city="Rome", hobbies=["chess"])
        assert "town: Ulm" in texts(memory.user("ada").facts())


def test_a_settings_file_can_name_the_profile(tmp_path: Path) -> None:
    """Wrong: a settings file cannot name a profile, or `config show` fails with one."""
    file = tmp_path / "memory.toml"
    name = f"{__name__}.Small"
    file.write_text(
        'store = "memory://"\n[[blocks]]\nkind = "extractive"\n'
        f'profile = "{name}"\nredact = "html.escape"\nttl = {{ event = "P30D" }}\n'
    )
    settings = AgentMemoryConfig.from_file(file)
    (block,) = settings.blocks
    assert block.profile is Small
    shown = invoke(["config", "show", "--config", str(file)])
    assert shown.exit_code == 0, shown.output
    (told,) = json.loads(shown.stdout)["blocks"]
    assert told["profile"] == name
    assert told["redact"] == "html.escape"
    (again,) = AgentMemoryConfig(**{**json.loads(shown.stdout), "api_key": None}).blocks
    assert again.model_dump() == block.model_dump()
    with pytest.raises(InvalidSetting, match="Nobody"):
        ExtractiveMemory(profile=f"{__name__}.Nobody")
