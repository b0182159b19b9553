"""`agent-memory serve` as a process: the command, its signals and its log."""

import http.client
import json
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory
from agent_memory.testing import FakeLLM
from tests.kit import piped, until

COMMAND = [sys.executable, "-c", "from agent_memory.cli.entry import main; main()"]
CONFIG = 'store = "sqlite:///m.db"\nblocks = [{kind = "vector"}]\n'
CANARY = "swordfish"
SAID = {"messages": [{"role": "user", "content": f"The password is {CANARY}."}]}
MOST_LOGGED = 100_000


@dataclass
class Server:
    """A running service; `log` collects its stderr."""

    process: subprocess.Popen[str]
    port: int
    log: Path

    def ask(self, method: str, path: str, key: str, given: Any = None, **more: str) -> Any:
        """Return the status and the body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            headers = {"Authorization": f"Bearer {key}", **more}
            body = None if given is None else json.dumps(given)
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def key_of(folder: Path, users: str = "ana", rights: str = "read,write") -> str:
    given = ["--label", "x", "--users", users, "--rights", rights, "--config", "m.toml"]
    return run(folder, "keys", "create", *given).stdout.strip()


@contextmanager
def serving(
    folder: Path, *more: str, files: int | None = None, extra: bool = True, config: str = CONFIG
) -> Iterator[Server]:
    """Run the service in the folder, with or without the extra `mcp`. Check its log at the end."""
    command = (
        COMMAND if extra else [*COMMAND[:2], f"import sys; sys.modules['mcp'] = None; {COMMAND[2]}"]
    )

    def limit() -> None:
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    (folder / "m.toml").write_text(config, encoding="utf-8")
    log = folder / "log"
    with log.open("ab") as stream:
        command = [*command, "serve", "--port", "0", "--config", "m.toml", *more]
        process = piped(*command, stdin=None, stderr=stream, cwd=folder, preexec_fn=limit)
    try:
        line = process.stdout.readline()
        assert "/v1, and its page" in line, (line, log.read_text())
        yield Server(process, int(line.split("/v1")[0].rpartition(":")[2]), log)
    finally:
        if process.poll() is None:
            process.terminate()
            assert process.wait(60) == 0
        process.stdout.close()
    told = log.read_text()
    assert CANARY not in told
    assert len(told) < MOST_LOGGED
    assert "Traceback" not in told


def test_three_commands_start_a_working_service(tmp_path: Path) -> None:
    """Wrong: three commands give no working service, or its log contains a secret."""
    with serving(tmp_path) as server:
        key = key_of(tmp_path)
        status, end = server.ask("POST", "/v1/sessions/chat-1/messages", key, SAID)
        assert (status, end["end"]) == (200, 1)
        status, found = server.ask("POST", "/v1/search", key, {"query": "password"})
        assert CANARY in found["results"][0]["text"]
        assert server.ask("GET", "/v1/sessions", key[:-1] + "?")[0] == 401
        assert server.ask("GET", "/v1/openapi.json", "")[1]["openapi"] == "3.1.0"
    lines = server.log.read_text().splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("{"))
    requests = [json.loads(line) for line in lines[begin:]]
    assert {one["route"] for one in requests} >= {"/v1/sessions/{session_id}/messages"}
    assert "keys create" in "".join(lines[:begin])  # there was no key when it started
    for secret in (key[16:], "chat-1", '"ana"'):
        assert secret not in server.log.read_text()


@pytest.mark.parametrize("extra", [True, False])
def test_serve_offers_mcp_if_the_extra_is_installed(tmp_path: Path, extra: bool) -> None:
    """Wrong: `serve` does not offer `/mcp`, or does not say which extra it needs."""
    with serving(tmp_path, extra=extra) as server:
        key, asked = key_of(tmp_path), {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accepted = {"Accept": "application/json, text/event-stream"}
        told = server.process.stdout
        assert told
        line = told.readline()
        assert ("/mcp." in line, "agent-memory-log[mcp]" in line) == (extra, not extra)
        given = {**accepted, "Content-Type": "application/json"}
        status, answer = server.ask("POST", "/mcp", key, asked, **given)
        assert (status, "result" in answer) == ((200, True) if extra else (404, False))
        assert server.ask("GET", "/v1/sessions", key)[0] == 200


@pytest.mark.parametrize(
    ("number", "times"), [(signal.SIGTERM, 1), (signal.SIGINT, 1), (signal.SIGTERM, 2)]
)
def test_a_signal_lets_requests_finish(tmp_path: Path, number: signal.Signals, times: int) -> None:
    """Wrong: a signal cuts off a request in progress, or the service accepts new ones after it. Or
    the service ignores a second signal."""
    with serving(tmp_path) as server:
        key, body = key_of(tmp_path), json.dumps(SAID).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as peer:
            head = (
                "POST /v1/sessions/s/messages HTTP/1.1\r\nHost: x\r\n"
                f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            peer.sendall(head.encode() + body[:10])
            for _ in range(times):
                time.sleep(0.5)
                server.process.send_signal(number)
            if times > 1:
                assert server.process.wait(5) == -number
                return
            time.sleep(0.5)
            peer.sendall(body[10:])
            answer = b""
            while part := peer.recv(4_096):
                answer += part
        assert answer.startswith(b"HTTP/1.1 200")
        assert server.process.wait(60) == 0
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", server.port), timeout=5)
    with AgentMemory(store=f"sqlite:///{tmp_path}/m.db", blocks=[]) as memory:
        assert len(memory.history("s", user_id="ana")) == 1


def test_a_hanging_model_does_not_delay_the_shutdown(tmp_path: Path) -> None:
    """Wrong: after SIGTERM the service waits for a model until the service manager kills it. Or the
    next process does not continue the work."""
    with FakeLLM('{"facts": []}') as fake:
        config = (
            'store = "sqlite:///m.db"\nmodel = "openai/fake"\napi_key = "k"\nmodel_timeout = 600\n'
            f'api_base = "{fake.api_base}"\nquiet_seconds = 0\n[overflow]\nkind = "flush_to_ltm"\n'
            'absorb = "every_update"\nblocks = ["extractive"]\n'
        )
        fake.outage("hang")
        with serving(tmp_path, config=config) as server:
            key = key_of(tmp_path)
            server.ask("POST", "/v1/sessions/s/messages", key, SAID)
            peer = http.client.HTTPConnection("127.0.0.1", server.port)
            given = {"Authorization": f"Bearer {key}"}
            peer.request("POST", "/v1/sessions/t/turn", '{"message": "hello"}', given)
            until(lambda: len(fake.requests) == 2)
            server.process.terminate()
            assert server.process.wait(60) == 0
            peer.close()
        fake.clear()
        with serving(tmp_path, config=config) as server:
            until(lambda: len(fake.requests) == 3)
        with AgentMemory(store=f"sqlite:///{tmp_path}/m.db", blocks=[]) as memory:
            assert memory.sessions(user_id="ana")[0].cursors == {"extractive": 1}


def test_a_killed_server_neither_loses_nor_duplicates_writes(tmp_path: Path) -> None:
    """Wrong: a killed server loses an acknowledged write, or stores a retry twice."""
    sent = 0
    for _ in range(3):
        with serving(tmp_path) as server:
            key = key_of(tmp_path)
            for number in range(sent + 4):  # including the earlier ones
                given = {"messages": [{"role": "user", "content": f"number {number}"}]}
                name = {"Idempotency-Key": f"w-{number}"}
                status, _ = server.ask("POST", "/v1/sessions/s/messages", key, given, **name)
                assert status == 200
            sent += 4
            server.process.kill()
            server.process.wait(60)
    with AgentMemory(store=f"sqlite:///{tmp_path}/m.db", blocks=[]) as memory:
        log = memory.history("s", user_id="ana")
        assert [one.message.content for one in log] == [f"number {n}" for n in range(sent)]


def test_serving_on_a_network_requires_a_credential(tmp_path: Path) -> None:
    """Wrong: the service listens on a network before any credential exists."""
    (tmp_path / "m.toml").write_text(CONFIG, encoding="utf-8")
    command = ["serve", "--host", "0.0.0.0", "--port", "0", "--config", "m.toml"]
    done = run(tmp_path, *command)
    assert (done.returncode, done.stdout) == (1, "")
    told = " ".join(done.stderr.split())
    assert "There is no credential" in told
    assert "keys create" in told
    key = key_of(tmp_path)
    run(tmp_path, "keys", "revoke", key[:15], "--config", "m.toml")
    assert run(tmp_path, *command).returncode == 1
    key_of(tmp_path)
    with serving(tmp_path, "--host", "0.0.0.0") as server:
        assert "TLS" in server.log.read_text()
    issuer = ["--issuer", "i", "--audience", "a"]
    for wrong in (issuer, ["--jwks", "http://evil.example/k", *issuer]):
        assert run(tmp_path, "serve", "--port", "0", *wrong).returncode == 1
