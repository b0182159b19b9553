"""Whether a value does what a protocol asks, decided by what it answers.

`isinstance` with a protocol asks the class alone from Python 3.12 on, and does not see what an
object hands on to another by `__getattr__`: a proxy around a store would be no store.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

_NAMED = 3


def offers(value: object, protocol: type) -> bool:
    """Whether the value has every public member of the protocol, wherever it takes it from."""
    return not _missing(value, protocol)


@dataclass(frozen=True)
class Offering:
    """Annotates a field whose type is a protocol: takes any value that offers it."""

    def __get_pydantic_core_schema__(
        self, source: type, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def check(value: Any) -> Any:
            missing = _missing(value, source)
            if missing:
                names = ", ".join(f"`{name}`" for name in missing[:_NAMED])
                more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
                raise PydanticCustomError(
                    "offers",
                    "Input should be a {protocol}: it has no {names}",
                    {"protocol": source.__name__, "names": names + more},
                )
            return value

        return core_schema.no_info_plain_validator_function(check)


def _missing(value: object, protocol: type) -> list[str]:
    return [name for name in _members(protocol) if getattr(value, name, None) is None]


@cache
def _members(protocol: type) -> tuple[str, ...]:
    return tuple(name for name in dir(protocol) if not name.startswith("_"))
