"""Finding strategies and blocks by the `kind` that configuration files call them.

Built-in kinds load when first named. Other packages add theirs as entry points in the groups
`agent_memory.strategies` and `agent_memory.ltm_blocks`, named after the kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from agent_memory.core.limits import quoted
from agent_memory.errors import UnknownKind

BUILT_IN: dict[str, dict[str, str]] = {
    "agent_memory.strategies": {
        "trim": "agent_memory.strategies.trim:Trim",
        "summarize": "agent_memory.strategies.summarize:Summarize",
        "flush_to_ltm": "agent_memory.strategies.flush:FlushToLTM",
        "chain": "agent_memory.strategies.chain:Chain",
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
    """The class for a kind.

    Raises:
        UnknownKind: Nobody provides it.
    """
    built_in = BUILT_IN[group]
    if kind in built_in:
        module, name = built_in[kind].split(":")
        found = getattr(import_module(module), name)
    else:
        offered = entry_points(group=group)
        if kind not in offered.names:
            known = ", ".join(sorted({*built_in, *offered.names}))
            raise UnknownKind(
                f"No {quoted(kind)} in {group}. Known kinds: {known}. A package of your own adds "
                f"one as an entry point of the group {group!r}."
            )
        found = offered[kind].load()
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise UnknownKind(f"The entry point {kind!r} of {group} is not a strategy or block class.")
    return found


@dataclass(frozen=True)
class ByKind:
    """Annotates a field: takes an instance, or a mapping whose `kind` names the class."""

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
        if len(others) < len(classes):  # a chain holds strategies: spelled out, it would not end
            member = {"type": "object", "required": ["kind"]}
            members = {"type": "array", "items": member, "minItems": 1}
            properties = {"kind": {"const": "chain"}, "members": members}
            required = ["kind", "members"]
            one_of.append({"type": "object", "properties": properties, "required": required})
        return {"oneOf": one_of}

    def _build(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        kind = value.get("kind")
        if not isinstance(kind, str):
            raise ValueError("a mapping here needs a `kind`")
        return find_kind(self.group, kind)(**value)
