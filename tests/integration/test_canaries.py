"""Many users make random calls, and each result contains only words of its own user."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, Message, Session, User, operations
from agent_memory.core.records import Recall, Scope
from tests.isolation.acts import NOT_CALLED, OPERATIONS
from tests.isolation.crowd import Plan
from tests.isolation.run import run_crowd
from tests.kit import Silent

FACES = (AgentMemory, Session, User)
CALLS = int(os.environ.get("AGENT_MEMORY_CALLS", "1800"))
CALLED = {call for row in OPERATIONS.values() for call in row.calls}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.engine.processing.worker.POLL_SECONDS", 0.05)


@pytest.mark.timeout(300)
def test_no_call_returns_another_users_words(tmp_path: Path) -> None:
    """Wrong: a call, log, request or file contains words of another user or of a deleted one."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count

    plan = Plan(f"sqlite:///{tmp_path}/m.db", "n", calls=CALLS, users=5, threads=4, seed=1)
    report = run_crowd(plan, advance)
    assert report.leaks == []
    assert report.done.total() == done == CALLS
    assert report.words > 300
    assert report.requests > 5
    assert report.refused["SessionOfAnotherUser"] > 50
    assert report.refused["AccessDenied"] > 10
    often = {row.name for row in OPERATIONS.values() if row.weight >= 0.4}
    assert often <= report.done.keys()


def test_every_call_is_in_the_table() -> None:
    """Wrong: a new public call is not covered by the random run."""
    public = set(operations.__all__) | {
        name for face in FACES for name in dir(face) if not name.startswith("_")
    }
    for name in sorted(public - CALLED - NOT_CALLED.keys()):
        pytest.fail(
            f"{name} is in no operation of tests/isolation/*_calls.py. Add one to the "
            "table, with whose words it may give back; or say in NOT_CALLED why there is none."
        )
    assert CALLED | NOT_CALLED.keys() <= public
    assert not CALLED & NOT_CALLED.keys()


class Gossip(Silent):
    """Leaks the previous question, whoever asked it."""

    kind: str = "gossip"
    way: str
    heard: Any

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        said = " ".join(self.heard)
        self.heard[:] = [message.text()] if message else []
        if self.way == "error":
            raise ValueError(said)
        if self.way == "log":
            logging.getLogger("agent_memory.gossip").error("heard %s", said)
        elif self.way == "metadata":
            return [Recall(self.name, "g", "psst", metadata={"deep": [{said: (1, said)}]})]
        elif self.way == "text":
            return [Recall(self.name, "g", said)]
        return []


@pytest.mark.parametrize("way", ["text", "metadata", "error", "log"])
def test_the_run_detects_a_planted_leak(way: str) -> None:
    """Wrong: the run does not find a leak."""
    plan = Plan("memory://", "n", calls=150, users=3, threads=1, seed=2)
    report = run_crowd(plan, lambda count: None, [Gossip(way=way, heard=[])])
    assert {"get", "search", "call_tool"} & {leak.name for leak in report.leaks}
    assert "gave back Canary(user=" in report.leaks[0].told
