"""Collect the tests of the frameworks that are installed here; a file that is named is collected.

`python -m tests.frameworks` installs all frameworks and names the tests of each.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_memory import AgentMemory, VectorMemory
from tests.frameworks.environments import FRAMEWORKS, INSTALLED

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"  # it is read at import

collect_ignore = [f"test_{name}.py" for name in FRAMEWORKS.keys() - {*INSTALLED}]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    """A memory in a file, with vectors."""
    url = f"sqlite:///{tmp_path}/m.db"
    with AgentMemory(store=url, blocks=[VectorMemory()], recall_timeout=60) as opened:
        yield opened
