"""What the tests of what is kept outright share: a memory that waits, over a SQLite file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, Block

SECONDS = 60.0
"""Most time for what ought to take a moment; a busy machine has that."""


def opened(store: Any, *blocks: Block, **fields: Any) -> AgentMemory:
    """A memory that waits for its blocks: on a busy machine the first one is slow."""
    return AgentMemory(store=store, blocks=blocks, recall_timeout=SECONDS, **fields)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/m.db"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for another's change looks often."""
    monkeypatch.setattr("agent_memory.engine.leases._MOST_PAUSE_SECONDS", 0.02)
