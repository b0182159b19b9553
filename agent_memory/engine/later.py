"""`update` needs few modules. The first call of another method loads the others.

The modules are loaded off the main thread. If a signal handler raised an exception during an import
on the main thread, Python's import lock would never be released.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from types import FunctionType
from typing import Any, TypeVar

from agent_memory.core.lazy import lazy_property
from agent_memory.core.threads import off_main_thread

# these modules import the others
_MODULES = (
    "core.summaries",
    "engine.edit.delete",
    "engine.edit.repair",
    "engine.loop.turns",
    "engine.pins",
    "engine.session",
    "engine.sharing.shares",
    "engine.tool_calls",
    "ltm_blocks.notes",
)

T = TypeVar("T")
Class = TypeVar("Class", bound=type)


@cache
@off_main_thread
def load_rest() -> None:
    for name in _MODULES:
        import_module(f"agent_memory.{name}")
    import_module("agent_memory.core.formats.registry").is_registered(None)  # loads the formats


def loading_rest(method: Callable[..., T]) -> Callable[..., T]:
    """Decorate a method: load all modules before its first call."""

    @wraps(method)
    def call(*args: Any, **named: Any) -> T:
        load_rest()
        return method(*args, **named)

    return call


def late_property(make: Callable[[Any], T]) -> lazy_property[T]:
    """Return a cached property. Its first read loads all modules, then computes the value."""
    return lazy_property(loading_rest(make))


def part(place: str, takes: str | None = None) -> Any:
    """Return a descriptor for an attribute: an object that is created when it is first read.

    `place` has the module in the engine, and the object's class, such as "pins:Pins". The class
    gets the value of the attribute `takes`, or the owner itself.
    """
    module, name = place.split(":")

    def make(owner: Any) -> Any:
        factory = getattr(import_module(f"agent_memory.engine.{module}"), name)
        return factory(owner if takes is None else getattr(owner, takes))

    return late_property(make)


def with_rest(cls: Class) -> Class:
    """Decorate a class: load all modules before each public method except `update`."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_") and name != "update":
            setattr(cls, name, loading_rest(method))
    return cls
