"""Names of a package and attributes of an object that are loaded or computed when first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any


def lazily(
    package: str, homes: Mapping[str, Sequence[str]], places: Iterable[str] = ()
) -> tuple[Callable[[str], Any], list[str]]:
    """Return a `__getattr__` that imports a package's names from their modules, and the names.

    `homes` has the names that each module defines. The modules are relative to the package:
    ".trim". `places` has more names, as "module:name".
    """
    home_of = {name: home for home, names in homes.items() for name in names}
    home_of |= {name: home for home, _, name in (place.partition(":") for place in places)}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, sorted(home_of)


if TYPE_CHECKING:
    lazy_property = cached_property
else:

    class lazy_property:  # noqa: N801 - a decorator
        """A property that is computed at its first read, and cached, without a lock.

        Two threads may both compute the value, but both get the same result. Before Python 3.12,
        `functools.cached_property` computes under a lock, which would stay locked in a forked
        child.
        """

        def __init__(self, make):
            self._make = make
            self.__doc__ = make.__doc__

        def __set_name__(self, kind, name):
            self._name = name

        def __get__(self, owner, kind):
            if owner is None:
                return self
            return owner.__dict__.setdefault(self._name, self._make(owner))
