"""Describe a framework's own tests, and run them with our class in place of theirs."""

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
    """Tests of a framework; `excluded` maps patterns of test names to reasons.

    `package` is installed by pip; `checkout` is the folder of its repository, `root` the folder in
    it that holds `tests`.
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
        """Why a test is excluded; None for one that is run."""
        found = (why for pattern, why in self.excluded.items() if fnmatch(test, f"*{pattern}"))
        return next(found, None)


def suite_of(name: str) -> Suite:
    """The suite that a module of this name has."""
    suite: Suite = importlib.import_module(f"benchmarks.suites.{name}").SUITE
    return suite


def memory(*blocks: Block, **fields: Any) -> AgentMemory:
    """A memory of its own, in the run's folder, with fields of its configuration."""
    from agent_memory import AgentMemory

    path = f"{os.environ[FOLDER]}/{os.getpid()}-{next(_numbers)}.db"
    return AgentMemory(store=f"sqlite:///{path}", blocks=list(blocks), **fields)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:  # this module is a plugin of those runs
    """Leave the excluded tests out."""
    suite = suite_of(os.environ[NAME])
    left = [item for item in items if suite.reason(item.nodeid) is None]
    config.hook.pytest_deselected(items=[item for item in items if item not in left])
    items[:] = left
