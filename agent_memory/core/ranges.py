"""Ranges of the numbers and durations that settings accept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_after_validator_function

from agent_memory.core.limits import MOST

YEAR_SECONDS = 31_536_000


@dataclass(frozen=True, slots=True)
class Range:
    """Refuses values outside a range, including infinities and NaN. The error names the range.

    Attributes:
        least: The least value.
        most: The greatest value.
        above: Whether the least value itself is refused.
    """

    least: Any
    most: Any
    above: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        json_schema: dict[str, Any] = handler(schema)
        if isinstance(self.most, int):
            json_schema["exclusiveMinimum" if self.above else "minimum"] = self.least
            json_schema["maximum"] = self.most
        return json_schema

    def _check(self, value: Any) -> Any:
        if not self.least <= value <= self.most or (self.above and value == self.least):
            begins = f"above {self.least} and at most" if self.above else f"from {self.least} to"
            allowed_range = f"{begins} {self.most}"
            raise PydanticCustomError(
                "out_of_range", "Give a value {allowed}", {"allowed": allowed_range}
            )
        return value


Positive = Annotated[int, Range(1, MOST)]
"""A count of 1 or more."""

Amount = Annotated[int, Range(0, MOST)]
"""A count of 0 or more."""

Threads = Annotated[int, Range(1, 256)]
"""A number of threads or cores."""

_InSeconds = BeforeValidator(lambda one: one.total_seconds() if isinstance(one, timedelta) else one)

Seconds = Annotated[float, _InSeconds, Range(0, YEAR_SECONDS, above=True)]
"""A time limit of up to a year, in seconds or as a timedelta."""

Pause = Annotated[float, _InSeconds, Range(0, YEAR_SECONDS)]
"""A pause of up to a year, in seconds or as a timedelta; 0 for none."""

Weight = Annotated[float, Range(0, 1_000_000)]
"""A relative weight."""

Duration = Annotated[timedelta, Range(timedelta(), timedelta(days=36_500), above=True)]
"""A duration of up to a hundred years."""
