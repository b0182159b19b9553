"""`agent-memory mcp` over stdin and stdout as clients start it, and over HTTP with tokens."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters

from agent_memory import AgentMemory
from agent_memory.errors import ConfigError, InvalidId
from agent_memory.mcp.http import Tokens
from tests.integration.mcp_calls import CONFIG, Mode, call, connected, resource
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
from agent_memory.mcp.server import build, serve, wire
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


def answer_to(process: subprocess.Popen[str], request: dict[str, Any]) -> Any:
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    assert answer["id"] == request["id"]
    return answer["result"]


def test_the_file_tool_exists_without_a_configuration() -> None:
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
def test_the_server_exits_cleanly_on_signals_and_closed_pipes(how: signal.Signals | str) -> None:
    """Wrong: the server does not end, ends with an error, or leaves its database open."""
    process = piped(COMMAND, "mcp", "--user", "sarah", "--store", STORE)
    assert answer_to(process, HELLO)["serverInfo"]["name"] == "agent-memory"
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


def test_stdout_contains_only_protocol_messages() -> None:
    """Wrong: the output of a block or a child process breaks the protocol."""
    process = piped(sys.executable, "-c", SERVER)
    answer_to(process, HELLO)
    params = {"name": "search_memories", "arguments": {"query": "x"}}
    told = answer_to(process, {**HELLO, "id": 2, "method": "tools/call", "params": params})
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
def test_the_command_requires_a_user_or_a_token_file(arguments: list[str], told: str) -> None:
    """Wrong: the server starts without a user, or with both `--user` and `--tokens`."""
    result = invoke(["mcp", *arguments])
    assert (result.exit_code, result.stdout) == (1, "")
    assert told in result.stderr
    assert not Path("agent_memory.db").exists()


SARAH, BEN = "sarahs-token-0123456789", "bens-token-0123456789"
JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@dataclass(frozen=True)
class Server:
    """A running server and its process."""

    process: subprocess.Popen[str]
    url: str

    def post(self, token: str | None, body: Any = LIST, **headers: str) -> httpx2.Response:
        given = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx2.post(self.url, json=body, headers={**JSON, **given, **headers})

    def ended(self) -> tuple[int, str, str]:
        """Return the exit code and the output, once the server ends."""
        out, errors = self.process.communicate(timeout=60)
        return self.process.returncode, out, errors


def start(folder: Path, *arguments: str, **environment: str) -> Server:
    command = [COMMAND, "mcp", "--http", "--port", "0", *arguments]
    process = piped(*command, stdin=None, cwd=folder, env={**os.environ, **environment})
    line = process.stdout.readline()
    found = re.search(r"http://\S+/mcp", line)
    assert found, (line, process.communicate())
    return Server(process, found[0])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves Sarah and Ben, who each have a session with a canary."""
    folder = tmp_path_factory.mktemp("http")
    (folder / "m.toml").write_text(CONFIG, encoding="utf-8")
    hashed = hashlib.sha256(BEN.encode()).hexdigest()
    (folder / "t.toml").write_text(f'sarah = ["{SARAH}"]\nben = "sha256:{hashed}"\n')
    with AgentMemory(store=f"sqlite:///{folder}/m.db", max_tokens=2_000) as memory:
        for user in ("sarah", "ben"):
            said = {"role": "user", "content": f"{user}'s canary"}
            memory.update(f"of-{user}", said, user_id=user)
    server = start(folder, "--tokens", "t.toml", "--config", "m.toml")
    yield server
    server.process.terminate()
    code, out, errors = server.ended()
    assert (code, out) == (0, "")
    assert "Traceback" not in errors
    assert SARAH not in errors
    assert BEN not in errors


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_concurrent_users_see_only_their_own_memories(server: Server, mode: Mode) -> None:
    """Wrong: one user's token reaches another user's data, also in concurrent calls."""

    async def talk() -> None:
        async with (
            connected(server.url, SARAH, mode) as sarah,
            connected(server.url, BEN, mode) as ben,
        ):
            clients = (("sarah", sarah), ("ben", ben))
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    for user, client in clients:
                        text = f"{user} {number} " + "ü" * 3_900
                        tasks.start_soon(lambda c=client, t=text: call(c, "add_memory", text=t))
            for user, client in clients:
                found = (await call(client, "search_memories", limit=50))["memories"]
                assert sorted(one["text"].split("ü")[0] for one in found) == sorted(
                    f"{user} {number} " for number in range(20)
                )
                for one in found:
                    await call(client, "delete_memory", id=one["id"])

    anyio.run(talk)


def test_a_request_without_a_valid_token_gets_401(server: Server) -> None:
    """Wrong: a request is served without a valid token, or a wrong one gets another response."""
    given = [
        {}, {"Authorization": ""}, {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {SARAH}x"}, {"Authorization": f"Bearer {SARAH[:-1]}"},
        {"Authorization": f"Basic {SARAH}"}, {"Authorization": SARAH},
        {"Authorization": f"Bearer {hashlib.sha256(BEN.encode()).hexdigest()}"},
        {"Authorization": "Bearer ü".encode()},
        [("Authorization", f"Bearer {SARAH}"), ("Authorization", "Bearer other")],
        {"Authorization": "Bearer nobody", "MCP-Protocol-Version": "2026-07-28"},
        {"X-Token": SARAH},
    ]  # fmt: skip
    told = set()
    with httpx2.Client() as http:
        for headers in given:
            for method in ("GET", "POST", "DELETE", "OPTIONS"):
                for path in ("/mcp", f"/elsewhere?token={SARAH}"):
                    url = server.url.removesuffix("/mcp") + path
                    answer = http.request(method, url, headers=headers, content=json.dumps(LIST))
                    told.add((answer.status_code, answer.headers["WWW-Authenticate"], answer.text))
    assert told == {(401, 'Bearer realm="agent-memory"', "A valid token is needed.\n")}
    assert server.post(SARAH).status_code == 200
    assert server.post("", Authorization=f"bearer  {SARAH}").status_code == 200


def test_the_server_accepts_only_post_on_its_path(server: Server) -> None:
    """Wrong: `GET` opens a stream that keeps the server from ending, or another path is served."""
    headers = {**JSON, "Authorization": f"Bearer {SARAH}"}
    for method in ("GET", "DELETE", "OPTIONS", "HEAD"):
        answer = httpx2.request(method, server.url, headers=headers)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    elsewhere = server.url.removesuffix("/mcp") + "/elsewhere"
    assert httpx2.post(elsewhere, headers=headers).status_code == 404


def test_forged_hosts_and_origins_are_rejected(server: Server) -> None:
    """Wrong: a web page whose domain resolves to this machine can call the server."""
    assert server.post(SARAH, Host="evil.example").status_code == 421
    assert server.post(SARAH, Host="127.0.0.1.evil.example:80").status_code == 421
    assert server.post(SARAH, Origin="http://evil.example").status_code == 403
    assert server.post(SARAH, Origin="null").status_code == 403
    assert server.post(SARAH, Host="localhost:1", Origin="http://localhost:1").status_code == 200


def test_a_protocol_session_gives_no_access_to_another_user(server: Server) -> None:
    """Wrong: a protocol session of one user gives another user access."""
    client = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    begun = server.post(SARAH, {**LIST, "method": "initialize", "params": hello})
    assert begun.json()["result"]["serverInfo"]["name"] == "agent-memory"
    assert "mcp-session-id" not in begun.headers
    read = {**LIST, "method": "resources/read", "params": {"uri": "memory://sessions"}}
    for token, user in ((SARAH, "sarah"), (BEN, "ben")):
        answer = server.post(token, read, **{"Mcp-Session-Id": "1"}).json()
        text = answer["result"]["contents"][0]["text"]
        assert [one["session_id"] for one in json.loads(text)["sessions"]] == [f"of-{user}"]


def test_a_too_large_or_invalid_json_body_is_rejected(server: Server) -> None:
    """Wrong: an invalid request ends the server, or one of any size is read."""
    headers = {**JSON, "Authorization": f"Bearer {SARAH}"}
    assert httpx2.post(server.url, headers=headers, content=b" " * 5_000_000).status_code == 413
    assert httpx2.post(server.url, headers=headers, content=b"{").status_code == 400
    assert httpx2.post(server.url, headers=headers, content=b"[" * 50_000).status_code == 400
    assert server.post(SARAH).status_code == 200


def test_the_server_generates_a_token_if_none_is_configured(tmp_path: Path) -> None:
    """Wrong: without `--tokens` no token works, or any does."""
    server = start(tmp_path, "--user", "sarah")
    read = {**LIST, "method": "resources/read", "params": {"uri": "memory://sessions"}}
    assert server.post("made-up-by-somebody-else").status_code == 401
    token = server.process.stderr.readline().split()[-1]
    assert len(token) >= 32
    assert server.post(token, read).status_code == 200
    server.process.send_signal(signal.SIGINT)
    assert server.ended() == (0, "", "")
    assert not (tmp_path / "agent_memory.db-wal").exists()


def test_a_token_from_the_environment_is_used_but_not_printed(tmp_path: Path) -> None:
    """Wrong: the token in the environment is not used, or is printed."""
    server = start(tmp_path, "--user", "sarah", "--host", "0.0.0.0", AGENT_MEMORY_MCP_TOKEN=SARAH)
    local = Server(server.process, server.url.replace("0.0.0.0", "127.0.0.1"))
    assert local.post(SARAH).status_code == 200
    assert local.post(BEN).status_code == 401
    server.process.send_signal(signal.SIGTERM)
    code, out, errors = server.ended()
    assert (code, out) == (0, "")
    assert errors.startswith("warning: ")
    assert "TLS" in errors
    assert SARAH not in errors


def test_a_port_in_use_gives_an_error_message(server: Server, tmp_path: Path) -> None:
    """Wrong: a port in use ends in a traceback, or another port is served."""
    port = server.url.split(":")[2].removesuffix("/mcp")
    command = [COMMAND, "mcp", "--http", "--port", port, "--user", "sarah"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"Cannot listen on port {port} of '127.0.0.1'" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["m.toml"]


def test_tokens_from_a_file_identify_their_users(tmp_path: Path) -> None:
    """Wrong: a token in the file is refused, or one that is not in it is accepted."""
    hashed = "sha256:" + hashlib.sha256(b"third-token-0123456789").hexdigest()
    users = {"sarah": [SARAH, "another-token-of-hers+/=="], 'b e"n@x': BEN, "eve": hashed}
    file = tmp_path / "t.json"
    file.write_text(json.dumps(users))
    tokens = Tokens.read(file)
    assert tokens.user_of(SARAH.encode()) == "sarah"
    assert tokens.user_of(b"another-token-of-hers+/==") == "sarah"
    assert tokens.user_of(BEN.encode()) == 'b e"n@x'
    assert tokens.user_of(b"third-token-0123456789") == "eve"
    for wrong in (b"", b"\xff", hashed.encode(), hashed[7:].encode(), SARAH.upper().encode()):
        assert tokens.user_of(wrong) is None
    assert repr(tokens) == "Tokens(of 3 users)"
    assert SARAH not in str(vars(tokens))


@pytest.mark.parametrize(
    ("name", "text"),
    [("t.toml", 'sarah = "swordfish"'), ("t.toml", 'sarah = "swordfish-0123456789 and more"'),
     ("t.toml", 'sarah = "swordfish-öäü-0123456789"'), ("t.toml", 'sarah = "sha256:swordfish"'),
     ("t.toml", "sarah = 1234567890123456789"), ("t.toml", "sarah = []"),
     ("t.toml", 'sarah = ["swordfish"]'), ("t.toml", 'sarah = ""'), ("t.toml", ""),
     ("t.toml", 'a = "swordfish-0123456789"\nb = "swordfish-0123456789"'),
     ("t.toml", '"swordfish-0123456789'), ("t.toml", '[users]\nsarah = "swordfish-0123456789"'),
     ("t.json", '["swordfish-0123456789"]'), ("t.json", '{"sarah": "swordfish-0123456789"'),
     ("t.yaml", 'sarah: "swordfish-0123456789"'), ("missing.toml", None)],
)  # fmt: skip
def test_rejected_token_files_are_not_quoted(tmp_path: Path, name: str, text: str | None) -> None:
    """Wrong: a weak token is accepted, or the error about a bad token quotes it."""
    file = tmp_path / name
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        Tokens.read(file)
    assert "swordfish" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_token_file_with_an_invalid_user_id_is_rejected(tmp_path: Path) -> None:
    """Wrong: a token stands for an invalid user id."""
    file = tmp_path / "t.toml"
    file.write_text(f'" " = "{SARAH}"')
    with pytest.raises(InvalidId):
        Tokens.read(file)
