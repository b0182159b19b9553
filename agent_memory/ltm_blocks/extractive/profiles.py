"""Profiles: pydantic models whose fields are filled from a user's messages."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError, create_model

from agent_memory.core.timestamps import BEGINNING
from agent_memory.errors import ConfigError
from agent_memory.ltm_blocks.extractive.forms import WHERE, Dated, FactForm
from agent_memory.ltm_blocks.extractive.history.claims import Claim, Link
from agent_memory.ltm_blocks.extractive.history.fact import Fact
from agent_memory.ltm_blocks.extractive.history.findings import Candidate, Draft
from agent_memory.ltm_blocks.extractive.history.likeness import key_of
from agent_memory.ltm_blocks.extractive.history.periods import day_of

PROMPT = """\
Fill a profile of the user from the numbered messages, field by field. Give a fact for each value
that the user tells, and none that is only likely. A field that is a list takes one item a fact. Set
`corrects` where the user says that what was told before was never so, rather than that it changed,
and `denied` where the user says that the value itself was never so. Give `until` only where a value
has ended. The fields:
{fields}"""

_MANY = (list, set, frozenset)


class _Filled(Dated):
    """The common fields of all findings for a profile."""

    corrects: bool = False
    denied: bool = False


class ProfileForm:
    compares = False

    def __init__(self, profile: type[BaseModel], prompt: str | None = None) -> None:
        bare = [name for name, field in profile.model_fields.items() if field.is_required()]
        if bare:
            raise ConfigError(
                f"The field {bare[0]!r} of the profile {profile.__name__} has no default. Give "
                "each field a default, such as None, for unknown values."
            )
        self.profile = profile
        if not profile.model_fields:
            raise ConfigError(f"The profile {profile.__name__} has no fields. Add some.")
        self._items = {name: _item(field) for name, field in profile.model_fields.items()}
        lines = "\n".join(
            f"{name}: {field.description or field.title or name.replace('_', ' ')}"
            for name, field in profile.model_fields.items()
        )
        self.prompt = f"{(prompt or PROMPT).replace('{fields}', lines)}\n\n{WHERE}"
        self.schema = self._schema()

    def candidates(self, answer: BaseModel, ids: Mapping[int, str]) -> list[Candidate]:
        return [self._candidate(fact) for fact in getattr(answer, "facts", ())]

    def filled(self, facts: Sequence[Fact]) -> BaseModel:
        """Return a profile with the values of facts. Fields without a fact keep their default."""
        values: dict[str, Any] = {}
        for fact in facts:
            if fact.field not in self._items:  # the profile has changed and lacks the field
                continue
            if self._items[fact.field][1]:
                values[fact.field] = fact.value
            else:
                held = values.setdefault(fact.field, [])
                held += [fact.value] if fact.value not in held else []
        return self.profile.model_validate(values, by_name=True)

    def _candidate(self, fact: Any) -> Candidate:
        _, alone = self._items[fact.field]
        value = TypeAdapter(Any).dump_python(fact.value, mode="json")
        return Candidate(
            f"{fact.field.replace('_', ' ')}: {_shown(fact.value, value)}", "user", fact.field,
            fact.message, fact.quote, fact.since, fact.until, fact.confidence, fact.field, value,
            alone, fact.corrects, self._fits(fact.field, value, alone), when=fact.when,
            relation="deny" if fact.denied else "",
        )  # fmt: skip

    def _fits(self, field: str, value: Any, alone: bool) -> bool:
        """Return whether the profile's own validation accepts the value."""
        try:
            self.profile.model_validate({field: value if alone else [value]}, by_name=True)
        except ValidationError:
            return False
        return True

    def _schema(self) -> type[BaseModel]:
        kinds: dict[str, Any] = {
            name: create_model(
                f"{name.title().replace('_', '')}Told",
                __base__=_Filled,
                field=(Literal[name], ...),  # type: ignore[arg-type]
                value=(annotation, ...),
            )
            for name, (annotation, _) in self._items.items()
        }

        def of_field(answer: Any) -> Any:
            """Validate by the field's own type. A union would report the errors of every member."""
            kind = kinds.get(str(answer.get("field"))) if isinstance(answer, dict) else None
            return answer if kind is None else kind.model_validate(answer)

        union: Any = Union[tuple(kinds.values())]  # noqa: UP007 - made here
        listed: Any = list[Annotated[union, BeforeValidator(of_field)]]
        return create_model(f"{self.profile.__name__}Told", facts=(listed, ...))


Form = FactForm | ProfileForm


def _item(field: Any) -> tuple[Any, bool]:
    """Return the type of one value of a field, and whether the field has one value at a time."""
    options = [field.annotation]
    if get_origin(field.annotation) in (Union, UnionType):
        options = [option for option in get_args(field.annotation) if option is not type(None)]
    for option in options:
        args = get_args(option)
        if (get_origin(option) or option) in _MANY or (get_origin(option) is tuple and ... in args):
            return (args[0] if args else str), False
    kind: Any = options[0] if len(options) == 1 else Union[tuple(options)]  # noqa: UP007 - made here
    return (Annotated[kind, *field.metadata] if field.metadata else kind), True


def _shown(value: Any, plain: Any) -> str:
    """Return a value in words. Times have no seconds."""
    if isinstance(value, datetime):
        return value.isoformat(" ", "minutes")
    if isinstance(value, time):
        return value.isoformat("minutes")
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def settle_fields(
    drafts: Sequence[Draft],
    facts: Sequence[Fact],
    current: Collection[str],
    weights: Mapping[str, int],
) -> tuple[list[Claim], int]:
    """Return the claims of drafts for fields, related to known facts, and the number of echoes.

    An echo repeats a fact, but comes from a role of less weight. No model is needed: a field with
    one value at a time holds the value that began last.
    """
    holders = [
        _Holder(fact.id, fact.field, fact.value, weights.get(fact.role, 0), fact.periods[0][0])
        for fact in facts
        if fact.id in current
    ]
    settled: list[Claim] = []
    echoes = 0
    for draft in drafts:
        claim = draft.claim
        own = _Holder(claim.id, claim.field, claim.value, weights.get(claim.role, 0), claim.begins)
        of_field = sorted(
            (item for item in holders if item.field == own.field),
            key=lambda item: (item.weight, item.begin or BEGINNING),
        )
        if draft.relation == "deny":
            false = [item.fact for item in of_field if item.value == own.value]
            settled += [_denial(claim, false)] if false else []
            continue
        # a field with one value at a time can only repeat its last value
        near = [item for item in (of_field[-1:] if claim.alone else of_field) if item.says(own)]
        if near and claim.begins is None:  # only the end is known
            claim = replace(claim, links=(Link("end", near[-1].fact),))
        elif near:
            if own.weight < near[-1].weight:
                echoes += 1
                continue
            claim = replace(claim, fact=near[-1].fact)
        elif draft.corrects:
            wrong = of_field if claim.alone else _denied(claim, of_field)
            claim = replace(claim, links=tuple(Link("contradict", item.fact) for item in wrong))
        if claim.fact == claim.id:
            holders.append(own)
        settled.append(claim)
    return settled, echoes


def _denial(claim: Claim, facts: Sequence[str]) -> Claim:
    """Return a claim that contradicts facts, and that is itself never true."""
    links = tuple(Link("contradict", fact) for fact in facts)
    at = day_of(claim.recorded_at)
    return replace(claim, text=f"not {claim.text}", links=links, valid_from=at, valid_to=at)


@dataclass(frozen=True, slots=True)
class _Holder:
    fact: str
    field: str | None
    value: Any
    weight: int
    begin: datetime | None

    def says(self, other: _Holder) -> bool:
        """Return whether this item has the value of `other`, and begins no later."""
        return self.value == other.value and (
            other.begin is None or (self.begin or BEGINNING) <= other.begin
        )


def _denied(claim: Claim, items: Sequence[_Holder]) -> Sequence[_Holder]:
    """Return the item of a list that a correction denies, or no item if the correction is unclear.

    A correction is clear if the list has one item, or if the quote names exactly one item.
    """
    if len(items) == 1:
        return items
    quote = f" {key_of(claim.quote)} "
    named = [item for item in items if f" {key_of(str(item.value))} " in quote]
    return named if len(named) == 1 else []
