"""Classes of strategies and blocks by their `kind`, and validation of duck-typed values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, PlainValidator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from agent_memory.core.limits import quoted, without_password
from agent_memory.errors import UnknownKind

BUILT_IN: dict[str, dict[str, str]] = {
    "agent_memory.strategies": {
        "trim": "agent_memory.strategies.bounded:Trim",
        "summarize": "agent_memory.strategies.summarize:Summarize",
        "flush_to_ltm": "agent_memory.strategies.bounded:FlushToLTM",
        "clear_tools": "agent_memory.strategies.bounded:ClearTools",
        "chain": "agent_memory.strategies.base:Chain",
    },
    "agent_memory.ltm_blocks": {
        "static": "agent_memory.ltm_blocks.static:StaticMemory",
        "extractive": "agent_memory.ltm_blocks.extractive.block:ExtractiveMemory",
        "vector": "agent_memory.ltm_blocks.vector:VectorMemory",
        "notes": "agent_memory.ltm_blocks.notes:NoteMemory",
        "working": "agent_memory.ltm_blocks.working:WorkingMemory",
        "skills": "agent_memory.ltm_blocks.skills.block:SkillMemory",
        "spatial": "agent_memory.ltm_blocks.spatial.block:SpatialMemory",
        "files": "agent_memory.ltm_blocks.files.block:FileMemory",
    },
}


@cache
def find_kind(group: str, kind: str) -> type[BaseModel]:
    built_in = BUILT_IN[group]
    if kind in built_in:
        module, name = built_in[kind].split(":")
        kind_class = getattr(import_module(module), name)
    else:
        from importlib.metadata import entry_points

        plugins = entry_points(group=group)
        if kind not in plugins.names:
            kinds = sorted({*built_in, *plugins.names})
            from difflib import get_close_matches

            near = get_close_matches(kind, kinds, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UnknownKind(
                f"No {quoted(without_password(kind))} in {group}.{hint} Known kinds: "
                f"{', '.join(kinds)}. To add one, register it as an entry point of the group "
                f"{group!r}."
            )
        try:
            kind_class = plugins[kind].load()
        except (ImportError, AttributeError) as error:
            raise UnknownKind(
                f"The entry point {kind!r} of {group} cannot be loaded: {error}. Correct it in the "
                "package that registers it."
            ) from error
    if not (isinstance(kind_class, type) and issubclass(kind_class, BaseModel)):
        raise UnknownKind(f"The entry point {kind!r} of {group} is not a strategy or block class.")
    return kind_class


@dataclass(frozen=True)
class ByKind:
    """Annotates a field that accepts an instance, a kind, or a mapping with a `kind`."""

    group: str

    def __get_pydantic_core_schema__(
        self, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            self._build,
            core_schema.is_instance_schema(source),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value, info: value.model_dump(mode=info.mode), info_arg=True
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        classes = [find_kind(self.group, kind) for kind in BUILT_IN[self.group]]
        others = [cls for cls in classes if cls.__name__ != "Chain"]
        one_of = [handler(cls.__pydantic_core_schema__) for cls in others]
        if len(others) < len(classes):
            # A chain may hold chains, so its full schema would be infinite.
            member = {"type": "object", "required": ["kind"]}
            members = {"type": "array", "items": member, "minItems": 1}
            properties = {"kind": {"const": "chain"}, "members": members}
            required = ["kind", "members"]
            one_of.append({"type": "object", "properties": properties, "required": required})
        return {"oneOf": one_of}

    def _build(self, value: Any) -> Any:
        if isinstance(value, BaseModel):
            return value
        if isinstance(value, type):
            name = value.__name__
            raise ValueError(f"{name} is a class. Call it to create an instance: {name}(...)")
        table = value if isinstance(value, dict) else {"kind": value}
        kind = table.get("kind")
        if not isinstance(kind, str):
            kinds = ", ".join(BUILT_IN[self.group])
            raise ValueError(f"must be one of {kinds}, a mapping with a `kind`, or an instance")
        return find_kind(self.group, kind).model_validate(table)  # so errors name the field


_NAMED = 3


def offers(value: object, protocol: type) -> bool:
    """Return whether a value has every public member of a protocol."""
    return not _missing(value, protocol)


def offering(protocol: type) -> PlainValidator:
    """Return a pydantic validator that accepts values with all public members of a protocol."""

    def check(value: Any) -> Any:
        if missing := _missing(value, protocol):
            names = ", ".join(f"`{name}`" for name in missing[:_NAMED])
            more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            raise PydanticCustomError(
                "offers",
                "Input should be a {protocol}: it has no {names}",
                {"protocol": protocol.__name__, "names": names + more},
            )
        return value

    return PlainValidator(check)


def _missing(value: object, protocol: type) -> list[str]:
    return [name for name in _members(protocol) if getattr(value, name, None) is None]


@cache
def _members(protocol: type) -> tuple[str, ...]:
    return tuple(name for name in dir(protocol) if not name.startswith("_"))
