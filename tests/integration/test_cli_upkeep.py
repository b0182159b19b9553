"""Commands that only look change nothing. Commands that fail or are stopped leave no damage."""

import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryConfig
from agent_memory.testing import FakeLLM
from tests.kit import SECONDS, clean_environment, run, until

CONFIG = """
store = "sqlite:///m.db"
max_tokens = 400
absorb_attempts = 1
quiet_seconds = 0
[overflow]
kind = "flush_to_ltm"
absorb = "every_update"
blocks = [{kind = "extractive"}]
"""


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean_environment(monkeypatch, tmp_path)
    Path("m.toml").write_text(CONFIG, encoding="utf-8")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLLM]:
    """A model server that every command finds through the environment."""
    with FakeLLM(json.dumps({"facts": []})) as server:
        monkeypatch.setenv("AGENT_MEMORY_MODEL", "openai/any")
        monkeypatch.setenv("AGENT_MEMORY_API_BASE", server.api_base)
        monkeypatch.setenv("AGENT_MEMORY_API_KEY", "none")
        yield server


def command(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [Path(sys.executable).with_name("agent-memory"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


def write(sessions: int = 1, messages: int = 2) -> None:
    """Store sessions without blocks, so that all messages are pending."""
    with AgentMemory(store="sqlite:///m.db", max_tokens=400, blocks=[]) as memory:
        for number in range(sessions):
            said = [{"role": "user", "content": f"{number} says {i}"} for i in range(messages)]
            memory.update(f"s{number}", said, user_id="u")


def lags(block: str = "extractive") -> dict[str, int]:
    with AgentMemory(store="sqlite:///m.db") as memory:
        return {head.session_id: head.lag(block) for head in memory.sessions()}


def dump() -> list[str]:
    with closing(sqlite3.connect("m.db")) as connection:
        return list(connection.iterdump())


def test_doctor_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `doctor` absorbs messages, or stores the embedding model of a block."""
    monkeypatch.setenv("AGENT_MEMORY_OVERFLOW_MODE", "background")
    write()
    before, files = dump(), sorted(Path().iterdir())
    Path("vector.toml").write_text(CONFIG.replace("extractive", "vector"), encoding="utf-8")
    files.append(Path("vector.toml"))
    assert "1 sessions, 2 messages" in run("doctor", "--config", "vector.toml")
    assert dump() == before
    assert sorted(Path().iterdir()) == files


def test_doctor_tells_what_fails_elsewhere() -> None:
    """Wrong: `doctor` reports no problem although absorbing fails."""
    Path("m.toml").write_text(CONFIG, encoding="utf-8")
    with AgentMemory(AgentMemoryConfig.from_file("m.toml")) as memory:
        memory.update("s", {"role": "user", "content": "I live in Rome."}, user_id="u")
        memory.flush()
    told = run("doctor", "--config", "m.toml")
    assert "'extractive' absorbs nothing: it needs a language model" in " ".join(told.split())
    assert "✗" not in told
    with FakeLLM() as fake:
        fake.fail(401)
        asked = f'model = "openai/m"\napi_base = "{fake.api_base}"\napi_key = "k"\n'
        Path("m.toml").write_text(asked + CONFIG, encoding="utf-8")
        with AgentMemory(AgentMemoryConfig.from_file("m.toml")) as memory:
            (failed,) = memory.flush()
            assert failed.error is not None
        told = " ".join(run("doctor", "--config", "m.toml", code=1).split())
    assert "✗ absorbing extractive failed to absorb and will retry: ModelForbidden" in told


@pytest.mark.parametrize("content", [b"no database at all, but a text " * 40, b""])
def test_doctor_says_what_is_no_memory(content: bytes) -> None:
    """Wrong: a file that is no memory ends `doctor` in a traceback, or gets our tables."""
    Path("m.db").write_bytes(content)
    told = run("doctor", "--config", "m.toml", code=1 if content else 0)
    assert ("not a database" if content else "without a memory") in told
    assert Path("m.db").read_bytes() == content


@pytest.mark.parametrize("name", ["sessions", "stats", "show s0", "search x --user u", "export s0"])
def test_looking_absorbs_nothing(name: str, fake: FakeLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a command that only reads absorbs messages, and so pays for model calls."""
    monkeypatch.setenv("AGENT_MEMORY_OVERFLOW_MODE", "background")
    write()
    run(*name.split(), "--config", "m.toml")
    assert lags() == {"s0": 2}
    assert fake.requests == []


def test_once_tells_cron_of_failures_only(fake: FakeLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `worker --once` exits with 1 for a failure that a retry solved, or without a model."""
    write()
    monkeypatch.delenv("AGENT_MEMORY_MODEL")
    assert "ModelRequired" in run("worker", "--once", "--config", "m.toml")
    monkeypatch.setenv("AGENT_MEMORY_MODEL", "openai/any")
    write()
    fake.fail(401)
    told = run("worker", "--once", "--config", "m.toml")
    assert "ModelForbidden" in told
    assert "4 messages of 1 sessions absorbed." in told
    write()
    fake.fail(401, times=20)
    assert "ModelForbidden" in run("worker", "--once", "--config", "m.toml", code=1)


def test_a_second_signal_ends_a_worker_at_once(fake: FakeLLM) -> None:
    """Wrong: a worker that waits for a model ignores a second signal."""
    write()
    fake.outage("hang")
    worker = command("worker", "--config", "m.toml")
    assert worker.stdout is not None
    assert worker.stdout.readline().startswith("Working on sqlite:///m.db")
    until(lambda: fake.requests)
    worker.send_signal(signal.SIGINT)
    assert worker.stdout.readline() == "SIGINT. Stopping after the work in progress.\n"
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=SECONDS)
    assert (worker.returncode, errors) == (-signal.SIGTERM, "")


def test_a_worker_that_nobody_reads_stops() -> None:
    """Wrong: `agent-memory worker | head -1` runs on, or loses its finished work."""
    Path("m.toml").write_text(CONFIG.replace("extractive", "vector"), encoding="utf-8")
    write()
    worker = command("worker", "--config", "m.toml")
    assert worker.stdout is not None
    assert worker.stderr is not None
    worker.stdout.readline()
    worker.stdout.close()
    errors = worker.stderr.read()
    worker.stderr.close()
    assert worker.wait(SECONDS)
    assert "Traceback" not in errors
    assert lags("vector") == {"s0": 0}


def test_a_worker_needs_a_store_to_share() -> None:
    """Wrong: a worker waits for ever on a private store, or creates a missing one."""
    assert "memory:// is private" in run("worker", "--store", "memory://", code=1)
    assert "There is no memory at m.db" in run("worker", "--config", "m.toml", code=1)
    assert not Path("m.db").exists()


def test_ctrl_c_leaves_a_replay_that_goes_on(fake: FakeLLM) -> None:
    """Wrong: an interrupted replay prints a traceback, starts again, or skips sessions."""
    write(sessions=4)
    run("flush", "--config", "m.toml")
    asked, gate = len(fake.requests), threading.Event()

    def answer(body: dict[str, Any]) -> str:
        if len(fake.requests) > asked + 2:
            gate.wait(SECONDS)
        return json.dumps({"facts": []})

    fake.default = answer
    replay = command("replay", "extractive", "--config", "m.toml")
    until(lambda: len(fake.requests) > asked + 2)
    replay.send_signal(signal.SIGINT)
    told, errors = replay.communicate(timeout=SECONDS)
    gate.set()
    assert (replay.returncode, told) == (130, "")
    assert "extractive: stopped after 2 of 4 sessions. Run the same command to continue." in errors
    assert "Traceback" not in errors
    assert lags() == {"s0": 0, "s1": 0, "s2": 2, "s3": 0}
    told = run("doctor", "--config", "m.toml")
    assert "A replay of extractive is running or was interrupted after 2 sessions" in told
    begun = len(fake.requests)
    told = run("replay", "extractive", "--config", "m.toml")
    assert "Continuing an interrupted replay: 2 sessions were done." in told
    assert "extractive: 2 of 2 sessions rebuilt." in told
    assert len(fake.requests) == begun + 2
    assert "no unfinished replay" in run("doctor", "--config", "m.toml")
    assert "4 of 4 sessions rebuilt" in run("replay", "extractive", "--config", "m.toml")
