"""Which values a search keeps, by their fields. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_memory.core.limits import quoted
from agent_memory.errors import InvalidInput

Where = Mapping[str, Any]
"""For each field what it must be: a value, or comparisons such as {"$gte": 3, "$lt": 5}."""

_NONE = object()


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(found: Any, wanted: Any) -> bool:
        numbers = isinstance(found, int | float) and isinstance(wanted, int | float)
        return (numbers or (isinstance(found, str) and isinstance(wanted, str))) and compare(
            found, wanted
        )

    return holds


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda found, wanted: found == wanted,
    "$ne": lambda found, wanted: found != wanted,
    "$in": lambda found, wanted: found in wanted,
    "$gt": _ordered(lambda found, wanted: found > wanted),
    "$gte": _ordered(lambda found, wanted: found >= wanted),
    "$lt": _ordered(lambda found, wanted: found < wanted),
    "$lte": _ordered(lambda found, wanted: found <= wanted),
}


def check_where(where: object) -> Where:
    """Conditions as `matches` takes them.

    Raises:
        InvalidInput: It is no dict of fields, or a comparison is unknown.
    """
    if where is None:
        return {}
    if not isinstance(where, Mapping) or not all(isinstance(name, str) for name in where):
        raise InvalidInput(f"where is {quoted(where)}. Give a dict of fields and values.")
    for wanted in where.values():
        for name, value in wanted.items() if _compares(wanted) else ():
            if name not in _COMPARISONS:
                known = ", ".join(_COMPARISONS)
                raise InvalidInput(f"{quoted(name)} is no comparison. Give one of {known}.")
            if name == "$in" and not isinstance(value, list | tuple | set | frozenset):
                raise InvalidInput(f"$in is given {quoted(value)}. Give a list of values.")
    return where


def matches(value: Any, where: Where) -> bool:
    """Whether a value has all fields as they must be.

    A field is a key of the value, or a path of keys: "author.name". A dict without comparisons is
    met by a dict that has all of it.
    """
    return all(_meets(_field(value, name), wanted) for name, wanted in where.items())


def _meets(found: Any, wanted: Any) -> bool:
    if _compares(wanted):
        return all(
            _COMPARISONS[name](None if found is _NONE else found, one)
            for name, one in wanted.items()
        )
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return all(_meets(found.get(name, _NONE), one) for name, one in wanted.items())
    return bool(found == wanted)


def _compares(wanted: Any) -> bool:
    return (
        isinstance(wanted, Mapping) and bool(wanted) and all(str(n).startswith("$") for n in wanted)
    )


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        if name in value:
            return value[name]
        first, _, rest = name.partition(".")
        if rest and first in value:
            return _field(value[first], rest)
    return _NONE
