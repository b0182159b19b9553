"""The JSON forms of the library's types: the fields of a value that a response shows.

The forms are part of the OpenAPI document. The names in forms stay the same if names in the library
change. A nested value is shown in the form of its own type.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from agent_memory.client.calls import hints_of
from agent_memory.core.messages import Message

REFERENCE = "#/components/schemas/{}"

Schema = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """The form of a response, or of a part of a response."""

    name: str
    description: str
    types: Mapping[str, Any]  # the type of each field
    # The source of each field: the path of an attribute, or a function of the value. Empty for a
    # response that is built as a dict.
    of: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _getters(self) -> tuple[tuple[str, Any], ...]:
        return tuple(
            (name, attrgetter(get) if isinstance(get, str) else get)
            for name, get in self.of.items()
            if get is not None
        )

    def shown(self, value: object) -> dict[str, Any]:
        return {name: get(value) for name, get in self._getters}

    def schema(self) -> Schema:
        return {
            "type": "object",
            "description": self.description,
            "properties": {name: schema_of(kind) for name, kind in self.types.items()},
            "required": list(self.types),
        }


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a message."""

    session_id: str
    seq: int


def shape_of(kind: Any, name: str, description: str, fields: str, **rest: tuple[Any, Any]) -> Shape:
    """Return a form of a type.

    `fields` lists fields, separated by spaces: the name of an attribute, or `name=path.to.it`.
    `rest` has further fields, each with its type and a function of the value. The function is None
    if the operation adds the field.
    """
    of: dict[str, Any] = {}
    for part in fields.split():
        field_name, _, path = part.partition("=")
        of[field_name] = path or field_name
    types_of = {field_name: _type_at(kind, path) for field_name, path in of.items()}
    types_of |= {field_name: field_type for field_name, (field_type, _) in rest.items()}
    of |= {field_name: get for field_name, (_, get) in rest.items()}
    return Shape(name, description, types_of, of)


def _type_at(kind: Any, path: str) -> Any:
    for name in path.split("."):
        member = getattr(kind, name, None)
        if isinstance(member, property):
            kind = hints_of(member.fget)["return"]
        else:
            kind = hints_of(kind)[name]
    return kind


# Rows: module and class, name and fields of the form (see `shape_of`), "|" and its description.
_TABLE = """
core.records:Head Session
    id=session_id messages=end tokens=total created_at updated_at metadata
    | A session. `messages` is the seq of its newest message.
core.records:Entry Logged seq message tokens created_at
    | A message of the log, unchanged.
core.records:Recall Recalled block id text score created_at tokens signals=views time=display_time
    | A recalled record. `signals` are its ranking signals, if its block reports them. `sources` are
    the places of its messages.
core.records:LeftOut LeftOut recall why
    | A record that was considered and not recalled.
core.records:Surplus Surplus recall why of
    | A record proposed for deletion, and why.
core.prompt_log:LoggedPrompt LoggedPrompt
    turn question at left_out window shortened cost exact missing messages recalls=context.recalls
    tokens=context.tokens max_tokens=context.max_tokens cacheable_tokens=context.cacheable_tokens
    warnings=context.warnings
    | The prompt that was sent to a model for the turn that begins with message `turn`. `window` has
    the seqs of its messages, `shortened` the seqs of shortened messages. The first
    `cacheable_tokens` are the same as in the previous prompt. If `exact` is true, `messages` is the
    prompt byte for byte. If not, parts were changed or deleted afterwards, and `missing` is the
    number of deleted parts.
core.records:Summary SummaryText text tokens upto by
    | The summary of the messages up to `upto` that left the window, written by `by`.
core.receipts:Part ReceiptPart place state why
    | The outcome for one place.
core.receipts:Receipt Receipt kind id namespace at parts end digest signature
    | A receipt of a deletion or of a durable log. Store it whole to verify it later.
core.records:Absorbed Work session_id block first last error
    | The messages of one session that one block absorbed.
core.records:DeadLetter DeadLetter block session_id first last attempts error since
    | Messages that a block gave up absorbing.
core.usage:Usage Spent
    calls failures prompt_tokens completion_tokens cost embedding_calls embedding_tokens
    | Model calls, their tokens, and their cost in US dollars; null if a price is unknown.
engine.spending:Today Today day reached calls=spent.calls tokens=spent.tokens cost=spent.cost
    | The memory's own spending on a day (UTC), if it is limited. `reached` names the limit that
    allows no further call.
engine.stats:BlockStats BlockState lag dead_letters
    | The state of a block.
engine.listing:UserSize UserSize id=user_id sessions messages
    | A user, with the number of sessions and messages.
ltm_blocks.extractive.history.fact:Evidence Evidence session_id seq quote role recorded_at
    | The evidence of a fact, quoted verbatim.
ltm_blocks.extractive.history.fact:Fact Fact
    id block text subject category confidence role kind valid_from valid_to recorded_at
    superseded_at superseded_by why field value evidence time
    | A fact, with the time for which it holds.
ltm_blocks.extractive.history.fact:Stale StaleFact fact why of
    | A fact proposed for forgetting, and why.
ltm_blocks.extractive.history.history:Change Change
    at what why block fact text evidence session_id first last
    | A change to a user's facts.
ltm_blocks.notes:Note Note id text created_at session_id metadata version
    | A note. Pass its `version` in If-Match.
ltm_blocks.skills.files:Skill Skill name description steps tags body shared
    | A skill. All users can use a `shared` skill.
ltm_blocks.spatial.handle:Observation Observation
    id text position at confidence session_id metadata
    | An observation at a place.
ltm_blocks.spatial.handle:SpatialMatch Near observation distance confidence relevance score
    | An observation that was found, with its score.
server.shapes:Place Place session_id seq
    | The position of a message.
engine.values.items:KeyValue Item namespace key value created_at updated_at expires_at score
    | A value below a namespace and a key.
"""

_COMPUTED: Mapping[str, dict[str, tuple[Any, Any]]] = {
    "Recalled": {"sources": (list[Place], lambda recall: [Place(*at) for at in recall.sources])},
    "BlockState": {"failing": (bool, lambda stats: stats.error is not None)},
}
"""Fields that are no attributes, by the name of the form; see `rest` of `shape_of`."""


def _shapes() -> Iterator[tuple[type, Shape]]:
    for row in re.split(r"\n(?=\S)", _TABLE.strip()):
        columns, _, description = " ".join(row.split()).partition(" | ")
        source, name, fields = columns.split(maxsplit=2)
        module, _, which = source.partition(":")
        kind: type = getattr(import_module(f"agent_memory.{module}"), which)
        yield kind, shape_of(kind, name, description, fields, **_COMPUTED.get(name, {}))


SHAPES: Mapping[type, Shape] = dict(_shapes())


def plain(value: Any) -> Any:
    """Convert a value that is not JSON, as the `default` of an encoder."""
    shape = SHAPES.get(type(value))
    if shape is not None:
        return shape.shown(value)
    if isinstance(value, Message):
        return value.to_dict()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded as JSON")


def parts_of(shape: Shape) -> dict[str, Shape]:
    """Return a form and the forms nested in it, by name."""
    parts = {shape.name: shape}
    waiting = [*shape.types.values()]
    while waiting:
        kind = waiting.pop()
        inner = SHAPES.get(kind) if isinstance(kind, type) else None
        waiting += get_args(kind)
        if inner is not None and inner.name not in parts:
            parts[inner.name] = inner
            waiting += inner.types.values()
    return parts


_SCALARS: Mapping[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
}


def schema_of(kind: Any, shapes: Mapping[type, Shape] = SHAPES) -> Schema:
    """Return the JSON Schema of a type. The schema of an unknown type allows any value."""
    if kind in shapes:
        return {"$ref": REFERENCE.format(shapes[kind].name)}
    if kind in _SCALARS:
        return dict(_SCALARS[kind])
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(arg, shapes) for arg in args]}
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple and args[-1] is not Ellipsis:
        return {
            "type": "array",
            "prefixItems": [schema_of(arg, shapes) for arg in args],
            "items": False,
        }
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(args[1], shapes)}
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return {"type": "array", "items": schema_of(args[0], shapes)}
    is_object = isinstance(kind, type) and (issubclass(kind, Message | dict) or kind in SHAPES)
    return {"type": "object"} if is_object else {}
