"""Filters by the fields of values, for searches. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from agent_memory.core.limits import quoted
from agent_memory.errors import InvalidInput

Where = Mapping[str, Any]
"""Maps each field to its value, or to comparisons such as {"$gte": 3, "$lt": 5}."""


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(value: Any, wanted: Any) -> bool:
        numbers = isinstance(value, int | float) and isinstance(wanted, int | float)
        texts = isinstance(value, str) and isinstance(wanted, str)
        return (numbers or texts) and compare(value, wanted)

    return holds


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$in": lambda value, wanted: any(value == item for item in wanted),
    "$gt": _ordered(operator.gt),
    "$gte": _ordered(operator.ge),
    "$lt": _ordered(operator.lt),
    "$lte": _ordered(operator.le),
}


def check_where(where: object) -> Where:
    """Validate conditions, and return them. None means no conditions."""
    if where is None:
        return {}
    if not isinstance(where, Mapping) or not all(isinstance(name, str) for name in where):
        raise InvalidInput(f"where is {quoted(where)}. Give a dict of fields and values.")
    for wanted in where.values():
        for name, value in wanted.items() if _compares(wanted) else ():
            if name not in _COMPARISONS:
                names = ", ".join(_COMPARISONS)
                raise InvalidInput(f"{quoted(name)} is not a comparison. Use one of {names}.")
            if name == "$in" and not isinstance(value, list | tuple | set | frozenset):
                raise InvalidInput(f"$in is {quoted(value)}. Give a list of values.")
    return where


def matches(value: Any, where: Where) -> bool:
    """Return whether a value meets all conditions.

    A field is a key of the value, or a path of keys such as "author.name". A missing field counts
    as None. A condition that is a dict without comparisons matches a dict with at least the same
    fields and values.
    """
    return all(_meets(_field(value, name), wanted) for name, wanted in where.items())


def _meets(value: Any, wanted: Any) -> bool:
    if _compares(wanted):
        return all(_COMPARISONS[name](value, operand) for name, operand in wanted.items())
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        return all(_meets(value.get(name), operand) for name, operand in wanted.items())
    return bool(value == wanted)


def _compares(wanted: Any) -> bool:
    names = wanted if isinstance(wanted, Mapping) else ()
    return bool(names) and all(str(name).startswith("$") for name in names)


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        if name in value:
            return value[name]
        first, _, rest = name.partition(".")
        if rest and first in value:
            return _field(value[first], rest)
    return None
