"""A pydantic model as the form of what is to be known of a user, filled field by field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, time
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    TypeAdapter,
    ValidationError,
    create_model,
)

from agent_memory.errors import ConfigError
from agent_memory.ltm_blocks.extractive.forms import NONE, WHERE, Dated
from agent_memory.ltm_blocks.extractive.history.candidates import Candidate
from agent_memory.ltm_blocks.extractive.history.fact import Fact

PROMPT = """\
Fill a profile of the user from the numbered messages, field by field. Give a fact for each value
that the user tells, and none that is only likely. A field that is a list takes one item a fact. Set
`corrects` where the user says that what was told before was never so, rather than that it changed;
give `until` where a value has ended. The fields:
{fields}"""

_MANY = (list, set, frozenset)


class _Filled(Dated):
    """What is told of each field's value."""

    corrects: bool = False


class ProfileForm:
    """The fields of a profile.

    Args:
        profile: The model; each field needs a default, for what is not known yet.
        prompt: Instructions of one's own; `{fields}` in them becomes the list of fields.

    Raises:
        ConfigError: A field has no default, or there is none.
    """

    compares = False

    def __init__(self, profile: type[BaseModel], prompt: str | None = None) -> None:
        bare = [name for name, field in profile.model_fields.items() if field.is_required()]
        if bare:
            raise ConfigError(
                f"The field {bare[0]!r} of the profile {profile.__name__} has no default. Give "
                "each field one, such as None: nothing is known of a user at first."
            )
        self.profile = profile
        if not profile.model_fields:
            raise ConfigError(f"The profile {profile.__name__} has no fields. Give it some.")
        self._items = {name: _item(field) for name, field in _fields(profile)}
        told = "\n".join(
            f"{name}: {field.description or field.title or name.replace('_', ' ')}"
            for name, field in _fields(profile)
        )
        self.prompt = f"{(prompt or PROMPT).replace('{fields}', told)}\n\n{WHERE}"
        self.schema = self._schema()

    def found(self, answer: BaseModel, known: Mapping[int, str] = NONE) -> list[Candidate]:
        return [self._found(one) for one in getattr(answer, "facts", ())]

    def filled(self, facts: Sequence[Fact]) -> BaseModel:
        """The profile with the values of the facts that hold; fields of none keep their default."""
        values: dict[str, Any] = {}
        for fact in facts:
            if fact.field not in self._items:  # the profile has changed since
                continue
            if self._items[fact.field][1]:
                values[fact.field] = fact.value
            else:
                held = values.setdefault(fact.field, [])
                held += [fact.value] if fact.value not in held else []
        return self.profile.model_validate(values, by_name=True)

    def _found(self, one: Any) -> Candidate:
        _, alone = self._items[one.field]
        value = TypeAdapter(Any).dump_python(one.value, mode="json")
        return Candidate(
            f"{one.field.replace('_', ' ')}: {_shown(one.value, value)}", "user", one.field,
            one.message, one.quote, one.since, one.until, one.confidence, one.field, value, alone,
            one.corrects, self._fits(one.field, value, alone), when=one.when,
        )  # fmt: skip

    def _fits(self, field: str, value: Any, alone: bool) -> bool:
        """Whether the profile, with what it checks by itself, takes the value."""
        try:
            self.profile.model_validate({field: value if alone else [value]}, by_name=True)
        except ValidationError:
            return False
        return True

    def _schema(self) -> type[BaseModel]:
        kinds = {
            name: create_model(
                f"{name.title().replace('_', '')}Told",
                __base__=_Filled,
                **_answer_fields(name, annotation),
            )
            for name, (annotation, _) in self._items.items()
        }

        def of_field(answer: Any) -> Any:
            """Checked by its own field alone: of a union, what fits none is told of each."""
            kind = kinds.get(str(answer.get("field"))) if isinstance(answer, dict) else None
            return answer if kind is None else kind.model_validate(answer)

        one: Any = Union[tuple(kinds.values())]  # noqa: UP007 - made here
        listed: Any = list[Annotated[one, BeforeValidator(of_field)]]
        return create_model(f"{self.profile.__name__}Told", facts=(listed, ...))


def _fields(profile: type[BaseModel]) -> list[tuple[str, Any]]:
    return list(profile.model_fields.items())


def _answer_fields(name: str, annotation: Any) -> dict[str, Any]:
    return {"field": (Literal[name], ...), "value": (annotation, ...)}


def _item(field: Any) -> tuple[Any, bool]:
    """What one value of a field is, and whether the field holds one at a time."""
    options = [field.annotation]
    if get_origin(field.annotation) in (Union, UnionType):
        options = [one for one in get_args(field.annotation) if one is not type(None)]
    for one in options:
        args = get_args(one)
        if (get_origin(one) or one) in _MANY or (get_origin(one) is tuple and ... in args):
            return (args[0] if args else str), False
    kept: Any = options[0] if len(options) == 1 else Union[tuple(options)]  # noqa: UP007 - made here
    return (Annotated[kept, *field.metadata] if field.metadata else kept), True


def _shown(value: Any, plain: Any) -> str:
    """A value in words; of a time what people say of it, without the seconds."""
    if isinstance(value, datetime):
        return value.isoformat(" ", "minutes")
    if isinstance(value, time):
        return value.isoformat("minutes")
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
