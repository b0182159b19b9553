"""Describes a framework's own tests, and serves as a pytest plugin that excludes some of them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from agent_memory import AgentMemory, Block

NAME = "AGENT_MEMORY_SUITE"
FOLDER = "AGENT_MEMORY_SUITE_FOLDER"
_numbers = count()


@dataclass(frozen=True)
class Suite:
    """Tests of a framework. `excluded` maps patterns of test names to reasons.

    pip installs `package`. `checkout` is the folder of its repository, and `root` the folder in the
    checkout that contains `tests`.
    """

    name: str
    package: str
    checkout: str
    tests: tuple[str, ...]
    root: str = "."
    needs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)

    def reason(self, test: str) -> str | None:
        """Return the reason why a test is excluded; None for a test that runs."""
        found = (why for pattern, why in self.excluded.items() if fnmatch(test, f"*{pattern}"))
        return next(found, None)


def suite_of(name: str) -> Suite:
    """Return the suite of the module with this name."""
    suite: Suite = importlib.import_module(f"benchmarks.suites.{name}").SUITE
    return suite


def memory(*blocks: Block, **fields: Any) -> AgentMemory:
    """Return a new memory in the run's folder. `fields` are settings."""
    from agent_memory import AgentMemory

    path = f"{os.environ[FOLDER]}/{os.getpid()}-{next(_numbers)}.db"
    return AgentMemory(store=f"sqlite:///{path}", blocks=list(blocks), **fields)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:  # pytest calls it, because this module is a plugin of the runs
    """Deselect the excluded tests."""
    suite = suite_of(os.environ[NAME])
    left = [item for item in items if suite.reason(item.nodeid) is None]
    config.hook.pytest_deselected(items=[item for item in items if item not in left])
    items[:] = left
