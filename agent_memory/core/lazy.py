"""Lazy values: public names of a package, attributes of an object."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


def lazily(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: The `__name__` of the package.
        homes: For each module, relative to the package (`.trim`), the names that it defines.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return load


class made_once(Generic[T]):  # noqa: N801 - a decorator
    """A property that is computed at its first read, and cached.

    No lock is used. Before Python 3.12, `functools.cached_property` holds one lock for all objects
    of the class during the computation. A process that forks then leaves the child with a lock
    that is never released. Two threads may both compute the value, but both get the same result.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, kind: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> made_once[T]: ...

    @overload
    def __get__(self, owner: object, kind: type) -> T: ...

    def __get__(self, owner: object | None, kind: type) -> T | made_once[T]:
        if owner is None:
            return self
        value: T = owner.__dict__.setdefault(self._name, self._make(owner))
        return value
