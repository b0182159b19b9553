"""`agent-memory mcp --http` under load from peers without a token."""

import errno
import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_memory.listening.serving import MOST, listen, most_connections
from tests.kit import piped

USUAL = "from agent_memory.cli.entry import main; main()"
QUICK = f"""
from agent_memory.listening import serving
serving.HEADERS_SECONDS = serving.BODY_SECONDS = 1.0
{USUAL}
"""
ARGUMENTS = ["mcp", "--http", "--port", "0", "--tokens", "t.json"]
TOKEN = "sarahs-token-0123456789"
BODY = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
HEADERS = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {TOKEN}"}
HALF = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"
MOST_LOGGED = 4_000


@contextmanager
def serving(folder: Path, files: int | None = None, *, quick: bool = False) -> Iterator[str]:
    """Yield a server's address: `quick` has timeouts of 1 s; check its log at the end."""

    def limit() -> None:
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    (folder / "t.json").write_text(f'{{"sarah": "{TOKEN}"}}')
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-c", QUICK if quick else USUAL, *ARGUMENTS]
        process = piped(*command, stdin=None, stderr=log, cwd=folder, preexec_fn=limit)
    try:
        yield process.stdout.readline().split()[2].rstrip(".")
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()
    told = (folder / "log").read_text()
    assert len(told) < MOST_LOGGED, told[:1_000]
    assert "Traceback" not in told


def connected(url: str, count: int, sent: bytes) -> list[socket.socket]:
    """Return `count` connections, on each of which `sent` was sent."""
    host, port = url.removeprefix("http://").removesuffix("/mcp").split(":")
    peers = []
    for _ in range(count):
        peer = socket.create_connection((host, int(port)), timeout=30)
        with suppress(OSError):  # already closed
            peer.sendall(sent)
        peers.append(peer)
    return peers


def answered(url: str) -> int:
    """Return the status for a client with a token, which retries like a real client."""
    for _ in range(20):
        with suppress(httpx2.TransportError):
            return httpx2.post(url, json=BODY, headers=HEADERS, timeout=30).status_code
        time.sleep(0.1)
    return 0


def is_closed(peer: socket.socket) -> bool:
    """Return whether the server closes a connection, after reading its output."""
    try:
        while peer.recv(1_000):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def gives_up(peer: socket.socket) -> bool:
    """Return whether the server closes a connection that sends a header now and then."""
    for _ in range(600):
        try:
            peer.sendall(b"X-More: 1\r\n")
        except ConnectionError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(("files", "count"), [(None, 300), (256, 400), (64, 400)])
def test_half_sent_requests_block_no_client(tmp_path: Path, files: int | None, count: int) -> None:
    """Wrong: peers without a token block clients with one, or flood the log."""
    with serving(tmp_path, files) as url, ExitStack() as opened:
        assert answered(url) == 200
        peers = [opened.enter_context(peer) for peer in connected(url, count, HALF)]
        assert [answered(url) for _ in range(5)] == [200] * 5
        if files is not None:  # the oldest connection was closed
            assert is_closed(peers[0])
    told = (tmp_path / "log").read_text()
    assert ("connections: the longest waiting was closed" in told) == (files is not None)


def test_connections_with_unfinished_requests_are_closed(tmp_path: Path) -> None:
    """Wrong: a peer keeps a connection for ever, by silence or by sending slowly."""
    token = f"Authorization: Bearer {TOKEN}\r\n".encode()
    length = b"Content-Length: 9999\r\n\r\n{"
    with serving(tmp_path, quick=True) as url, ExitStack() as opened:
        begun = [b"", HALF, HALF + length, HALF + token + length]
        peers = [one for sent in begun for one in connected(url, 1, sent)]
        trickling = connected(url, 1, HALF)[0]
        for peer in [*peers, trickling]:
            opened.enter_context(peer)
        assert gives_up(trickling)
        for peer in peers:
            assert is_closed(peer)
        assert answered(url) == 200


def test_invalid_requests_are_rejected_and_not_logged(tmp_path: Path) -> None:
    """Wrong: invalid requests fill the log, or a forged `Host` header is accepted."""
    with serving(tmp_path) as url, ExitStack() as opened:
        for peer in connected(url, 100, b"\x00\x01 nothing\r\n\r\n"):
            opened.enter_context(peer)
        host = url.removeprefix("http://").removesuffix("/mcp")
        for forged in (f"{host}@evil", f"{host}/", "127.0.0.1:", "127.0.0.1:x", "[::1", ""):
            told = httpx2.post(url, json=BODY, headers={**HEADERS, "Host": forged})
            assert told.status_code in (400, 421), forged
        for right in (host, "localhost:1", "127.0.0.1", "[::1]:80"):
            assert httpx2.post(url, json=BODY, headers={**HEADERS, "Host": right}).is_success
    assert (tmp_path / "log").read_text() == ""


def test_connections_use_at_most_half_the_open_file_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: connections may use up the process's open files, so that the store gets none."""
    for files, most in ((256, 128), (1, 1), (10**6, MOST), (resource.RLIM_INFINITY, MOST)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, files=files: (files, files))
        assert most_connections() == most


def test_a_lack_of_file_descriptors_logs_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong: without free files the event loop logs a traceback for each connection."""
    with listen("127.0.0.1", 0) as listener:
        monkeypatch.setattr(socket.socket, "accept", partial(refuse, errno.EMFILE))
        for _ in range(2):
            with pytest.raises(BlockingIOError):
                listener.accept()
    assert [one.levelname for one in caplog.records] == ["WARNING"]


def refuse(number: int, *given: Any) -> None:
    raise OSError(number, "refused")
