"""Decide which layer a test belongs to, by its file and by the names that it and its fixtures use.

- core: tests that need only this process.
- server: tests that name a class of `tests.servers`, and all of `test_folder_*`, `test_qdrant_*`,
  `test_duckdb_*`, `integration/test_service_*` and `integration/test_page_*`. A folder, local
  Qdrant, DuckDB and the service take as long as a server.
- process: tests that name `subprocess`, `multiprocessing`, `os.fork`, or an MCP client.
- long: tests marked `long`, state machines, tests of benchmarks, tests that follow a timeline or
  random logs and calls, tests named "at any step", and all but the first two values of a parameter
  `seed`. In `tests/docs` also those that start processes: they run the code of all documents and
  examples.
"""

import functools
import inspect
import os
import re
import subprocess
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import pytest

import benchmarks

LAYERS = ("core", "server", "process", "long")
EXAMPLES = {"core": 10, "all": 25}
"""The number of Hypothesis examples when only the core runs, and otherwise. Each run tries the same
examples, so more of them would help only once."""

_STORIES = (
    "benchmarks",
    "tests.integration.checked_contexts",
    "tests.integration.random_histories",
    "tests.integration.timeline",
    "tests.isolation",
    "tests.provider_logs",
)
_AT_ANY_STEP = re.compile("_at_(any|each|every)_(step|chunk|event)")
_SEEDS = 2
_BENCHMARKS = "_benchmarks"
_SLOW_STORES = ("test_folder_", "test_qdrant_", "test_duckdb_")
_SERVICE = ("test_service_", "test_page_")
_STARTING = {"fork", "posix_spawn", "spawnv"}


def layer_of(item: pytest.Function) -> str:
    """Return the layer of a collected test."""
    file = item.path.stem
    if (
        item.get_closest_marker("long")
        or hasattr(item.obj, "_hypothesis_state_machine_class")
        or file.endswith(_BENCHMARKS)
    ):
        return "long"
    needs = {need for one in _dependencies(item) for need in _needs(one, item.cls)}
    if "process" in needs and item.path.parent.name == "docs":
        return "long"
    seed = item.callspec.indices.get("seed", 0) if hasattr(item, "callspec") else 0
    at_length = seed >= _SEEDS or _AT_ANY_STEP.search(item.function.__name__)
    if needs.isdisjoint(LAYERS) and at_length:
        return "long"
    served = item.path.parent.name == "integration" and file.startswith(_SERVICE)
    if served or file.startswith(_SLOW_STORES):
        needs.add("server")
    return next((layer for layer in ("long", "server", "process") if layer in needs), "core")


def _dependencies(item: pytest.Function) -> Iterator[FunctionType | type]:
    """Yield the test, its parameters, and its fixtures."""
    params = [*item.callspec.params.values()] if hasattr(item, "callspec") else []
    kinds = [one for one in params if isinstance(one, str)]
    waiting = [item.obj, *params]
    fixtures = {*item.fixturenames, *kinds, *(f"{kind}_url" for kind in kinds)}
    seen: set[str] = set()
    while waiting or fixtures - seen:
        for name in fixtures - seen:
            found = item.session._fixturemanager.getfixturedefs(name, item) or ()
            waiting += [fixture.func for fixture in found]
        seen |= fixtures
        for one in map(_bare, waiting):
            if isinstance(one, FunctionType | type):
                yield one
            if isinstance(one, FunctionType) and "getfixturevalue" in one.__code__.co_names:
                fixtures |= {*_words(one.__code__)}
        waiting.clear()


@functools.cache
def _needs(start: FunctionType | type, cls: type | None) -> frozenset[str]:
    """Return the needs of a function or class, and of all tests' code that it names."""
    needs: set[str] = set()
    seen: set[int] = set()
    waiting: list[Any] = [start]
    while waiting:
        one = _bare(waiting.pop())
        if id(one) in seen:
            continue
        seen.add(id(one))
        needs.update(_need(one))
        if isinstance(one, FunctionType):
            waiting += _named(one, cls)
        elif isinstance(one, type) and _home(one).startswith("tests."):
            waiting += vars(one).values()
    return frozenset(needs)


def _need(one: Any) -> Iterator[str]:
    home = _home(one)
    if home.startswith(_STORIES):
        yield "long"
    if home.startswith("tests.servers.") and isinstance(one, type):
        yield "server"
    if home in ("subprocess", "multiprocessing", "mcp.client.stdio"):
        yield "process"


def _named(function: FunctionType, cls: type | None) -> Iterator[Any]:
    """Yield the objects that a function of the tests names: globals and methods of its class."""
    if not _home(function).startswith(("tests.", "agent_memory.testing.")):
        return
    for code in _codes(function.__code__):
        for name in code.co_names:
            one = function.__globals__.get(name, getattr(cls, name, None))
            yield subprocess if one is os and _STARTING.intersection(code.co_names) else one
        if any(word.split(".")[0] == "benchmarks" for word in _words(code)):
            yield benchmarks


def _words(code: CodeType) -> Iterator[str]:
    for one in code.co_consts:
        yield from (
            word for word in (one if isinstance(one, tuple) else (one,)) if isinstance(word, str)
        )


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code, and that of its inner functions."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _bare(one: Any) -> Any:
    """Return a function without its wrappers."""
    if isinstance(one, functools.partial):
        return _bare(one.func)
    if isinstance(one, MethodType | staticmethod | classmethod):
        return _bare(one.__func__)
    if isinstance(one, FunctionType | functools._lru_cache_wrapper):
        return inspect.unwrap(getattr(getattr(one, "hypothesis", None), "inner_test", one))
    return one


def _home(one: Any) -> str:
    """Return the name of an object's module."""
    if isinstance(one, ModuleType):
        return one.__name__
    return str(one.__module__) if isinstance(one, FunctionType | type) else ""
