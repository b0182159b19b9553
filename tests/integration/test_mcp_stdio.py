"""`agent-memory mcp` over stdin and stdout, started as clients do."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from agent_memory import AgentMemory
from tests.integration.mcp_calls import CONFIG, call, resource
from tests.kit import invoke, piped

COMMAND = str(Path(sys.executable).with_name("agent-memory"))
STORE = "sqlite:///m.db"
CLIENT = {"name": "test", "version": "1"}
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}}  # fmt: skip
SERVER = """
import os, subprocess, sys, time
from typing import Literal
from agent_memory import AgentMemory, Block, Recall
from agent_memory.mcp.server import build
from agent_memory.mcp.stdio import serve, wire
from agent_memory.core.tools import Arguments, Tool

class Noisy(Block):
    kind: Literal["noisy"] = "noisy"
    def get(self, scope, message, limit):
        print("printed")
        sys.__stdout__.write("written")
        os.write(1, b"raw")
        read = subprocess.run([sys.executable, "-c", "print(input())"], check=False).returncode
        return [Recall("noisy", "1", f"The child ended with {read}.", 1.0)]
    def update(self, scope, entries): ...
    def delete(self, scope): ...
    def tools(self):
        return [Tool("noisy_slow", "Takes its time.", Arguments, self.slow)]
    def slow(self, scope, asked):
        print("begun", flush=True)
        time.sleep(0.5)
        return memory.user(scope.user_id).notes().add("late").text

streams = wire()
print("before")
with AgentMemory(store="sqlite:///m.db", recall_timeout=60, blocks=[Noisy()]) as memory:
    serve(build(memory, lambda asked: "sarah"), *streams)
print("after")
"""
"""A server with a block that prints wherever it can."""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.toml").write_text(CONFIG, encoding="utf-8")


def called(name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}


def asked(process: subprocess.Popen[str], request: dict[str, Any]) -> Any:
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    assert answer["id"] == request["id"]
    return answer["result"]


def test_without_a_configuration_there_are_files() -> None:
    """Wrong: without a configuration file the file tool is missing."""

    async def talk() -> None:
        args = ["mcp", "--user", "sarah", "--store", STORE]
        server = StdioServerParameters(command=COMMAND, args=args, env={**os.environ})
        async with Client(server) as client:
            assert "files" in [tool.name for tool in (await client.list_tools()).tools]

    anyio.run(talk)


def test_the_command_serves_a_client() -> None:
    """Wrong: over real pipes a tool or a resource is missing, or written data is lost."""
    with AgentMemory(store=STORE, max_tokens=2_000) as memory:
        memory.update("sarahs", {"role": "user", "content": "I sing."}, user_id="sarah")
        memory.update("bens", {"role": "user", "content": "I do not."}, user_id="ben")

    async def talk() -> None:
        args = ["mcp", "--user", "sarah", "--config", "m.toml"]
        server = StdioServerParameters(command=COMMAND, args=args, env={**os.environ})
        async with Client(server) as client:
            assert len((await client.list_tools()).tools) == 7
            await call(client, "files", command="create", path="/memories/a.md", file_text="la")
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    text = f"{number} " * 1_300
                    tasks.start_soon(lambda t=text: call(client, "add_memory", text=t))
            assert len((await call(client, "search_memories", limit=50))["memories"]) == 20
            found = await call(client, "search_memories", query="May everybody sing?")
            assert "Everybody may sing." in [one["text"] for one in found["memories"]]
            [listed] = (await resource(client, "memory://sessions"))["sessions"]
            log = await resource(client, listed["uri"])
            assert [one["content"] for one in log["messages"]] == ["I sing."]

    anyio.run(talk)
    with AgentMemory(store=STORE, max_tokens=2_000) as memory:
        assert len(memory.user("sarah").notes().all()) == 20
        assert memory.user("ben").notes().all() == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, "end of input", "nobody reads"])
def test_it_ends(how: signal.Signals | str) -> None:
    """Wrong: the server does not end, ends with an error, or leaves its database open."""
    process = piped(COMMAND, "mcp", "--user", "sarah", "--store", STORE)
    assert asked(process, HELLO)["serverInfo"]["name"] == "agent-memory"
    assert Path("m.db-wal").exists()
    if isinstance(how, signal.Signals):
        process.send_signal(how)
    elif how == "end of input":
        process.stdin.close()
    else:
        process.stdout.close()
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}) + "\n")
        process.stdin.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == ""
    if how != "nobody reads":
        assert process.stdout.read() == ""
    assert not Path("m.db-wal").exists()
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()


def test_nothing_but_the_protocol_is_on_stdout() -> None:
    """Wrong: the output of a block or a child process breaks the protocol."""
    process = piped(sys.executable, "-c", SERVER)
    asked(process, HELLO)
    told = asked(process, called("search_memories", query="x"))
    [found] = told["structuredContent"]["memories"]
    assert found["text"] == "The child ended with 1."
    rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    for noise in ("before", "printed", "written", "raw", "EOFError", "after"):
        assert noise in errors


@pytest.mark.parametrize(
    ("arguments", "told"),
    [([], "--user"), (["--tokens", "t.toml"], "--http"),
     (["--user", "sarah", "--tokens", "t.toml"], "--http"), (["--user", " "], "--user is empty"),
     (["--http"], "--user"), (["--http", "--user", "sarah", "--tokens", "t.toml"], "either")],
)  # fmt: skip
def test_whose_memory_has_to_be_said(arguments: list[str], told: str) -> None:
    """Wrong: the server starts without a user, or with both `--user` and `--tokens`."""
    result = invoke(["mcp", *arguments])
    assert (result.exit_code, result.stdout) == (1, "")
    assert told in result.stderr
    assert not Path("agent_memory.db").exists()
