"""Two agents in two processes share a namespace, while a third process grants and revokes."""

import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from agent_memory import AgentMemory
from tests.kit import piped

SECONDS = 3.0
AGENTS = ("ann", "ben")
AGENT = """
import json, sys, threading, time
from agent_memory import AgentMemory
from agent_memory.errors import AccessDenied

url, namespace, agent_id = sys.argv[1:]
stop = threading.Event()

def wait():
    sys.stdin.readline()
    stop.set()

with AgentMemory(store=url, namespace=namespace, tokenizer="approximate") as memory:
    agent = memory.share("team").agent(agent_id)
    calls = {
        "write": lambda: agent.update("s", {"role": "user", "content": agent_id}),
        "read": lambda: (agent.history("s", limit=3), agent.get("s")),
    }
    print("ready", flush=True)
    threading.Thread(target=wait, daemon=True).start()
    done = []
    while not stop.is_set():
        for kind, call in calls.items():
            begun = time.monotonic()
            try:
                call()
                outcome = True
            except AccessDenied:
                outcome = False
            done.append([kind, begun, time.monotonic(), outcome])
    print(json.dumps(done), flush=True)
"""


@dataclass(frozen=True)
class Change:
    """A change of a grant, with the times of its call and its return."""

    begun: float
    ended: float
    access: str | None


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/m.db"
    else:
        yield request.getfixturevalue("redis_url")


def may(access: str | None, kind: str) -> bool:
    return access == "write" or access == kind


def test_no_call_succeeds_after_its_revocation(url: str) -> None:
    """Wrong: a process caches a grant, or misses a new one."""
    namespace, rng = uuid4().hex, random.Random(7)
    changes: dict[str, list[Change]] = {agent: [] for agent in AGENTS}
    with AgentMemory(store=url, namespace=namespace) as memory:
        share = memory.share("team")

        def change(agent: str, access: str | None) -> None:
            begun = time.monotonic()
            if access is None:
                share.revoke(agent)
            else:
                share.grant(agent, access)  # type: ignore[arg-type]
            changes[agent].append(Change(begun, time.monotonic(), access))

        command = [sys.executable, "-W", "error", "-c", AGENT]
        processes = {agent: piped(*command, url, namespace, agent, stderr=None) for agent in AGENTS}
        try:
            for process in processes.values():
                assert process.stdout.readline() == "ready\n"
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                change(rng.choice(AGENTS), rng.choice(["read", "write", None]))
                time.sleep(rng.uniform(0.0, 0.1))
            for agent in AGENTS:
                change(agent, "write")
            time.sleep(0.3)
            for agent in AGENTS:
                change(agent, None)
            time.sleep(0.3)
            calls = {
                agent: json.loads(process.communicate("stop\n", timeout=60)[0])
                for agent, process in processes.items()
            }
        finally:
            for process in processes.values():
                process.kill()
                process.wait()
        share.grant("host", "read")
        log = [entry.message for entry in share.agent("host").history("s")]
        memory.share("team").delete()

    for agent in AGENTS:
        settled = 0
        told = [Change(0.0, 0.0, None), *changes[agent], Change(1e18, 1e18, None)]
        for kind, begun, ended, succeeded in calls[agent]:
            # grants in force at some moment of the call: the last one that had returned before it
            # began, and those that were under way meanwhile
            last = max(n for n, one in enumerate(told) if one.ended <= begun)
            in_force = {one.access for one in told[last:] if one.begun <= ended}
            if succeeded:
                assert any(may(access, kind) for access in in_force), (agent, kind, begun, ended)
            else:
                assert not all(may(access, kind) for access in in_force), (agent, kind, begun)
            settled += len(in_force) == 1
        outcomes = {(kind, succeeded) for kind, _, _, succeeded in calls[agent]}
        assert outcomes == {(kind, done) for kind in ("read", "write") for done in (True, False)}
        assert settled > len(calls[agent]) / 2
        wrote = sum(1 for kind, _, _, succeeded in calls[agent] if kind == "write" and succeeded)
        assert sum(one.metadata == {"agent": agent} for one in log) == wrote
        assert all(one.text() == one.metadata["agent"] for one in log)
