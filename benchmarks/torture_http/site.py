"""Processes of `agent-memory serve` over one store, which are killed and started anew."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from agent_memory.server.keys import KeyRing
from agent_memory.stores import open_store

_COMMAND = (sys.executable, "-c", "from agent_memory.cli.entry import main; main()", "serve")
_BLOCKS = """
blocks = [
    {kind = "vector"}, {kind = "extractive"}, {kind = "notes"}, {kind = "files"},
    {kind = "skills", folder = "skills"}, {kind = "spatial"},
]
"""
PLAIN = """
blocks = [{kind = "vector"}, {kind = "notes"}, {kind = "spatial"}]
"""
"""Blocks that ask no model."""

_GRACE = 60.0
_IDLE_SECONDS = 3.0


class Answer:
    """What a server answered.

    Args:
        status: The status.
        headers: The headers, by names in lower case.
        body: The body.
    """

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        """The body, read; None where it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Server:
    """A server process.

    Args:
        folder: Where its settings are.
        name: Names its log.
        options: Of the command.
    """

    def __init__(self, folder: Path, name: str, options: Sequence[str]) -> None:
        self.log = folder / f"{name}.log"
        self.port = 0
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens; from the second time on at the same port."""
        command = [*_COMMAND, "--port", str(self.port), "--config", "m.toml", *self._options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout
        line = self._process.stdout.readline()
        if "/v1" not in line:
            raise RuntimeError(f"The server does not start: {self.log.read_text()[-2_000:]}")
        self.port = int(line.split("/v1")[0].rpartition(":")[2])

    def kill(self) -> None:
        """Kill it: it has no time to do anything about that."""
        self._end("kill")

    def stop(self) -> int:
        """Have it end in good order; its exit code."""
        return self._end("terminate")

    def _end(self, how: str) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        getattr(process, how)()
        code = process.wait(_GRACE)
        assert process.stdout
        process.stdout.close()
        return code


class Caller:
    """Asks servers, over connections that stay open; of one thread.

    Args:
        servers: The servers.
    """

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers
        self._open: dict[int, tuple[HTTPConnection, float]] = {}

    def ask(
        self, number: int, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> Answer:
        """What a server answers.

        Raises:
            OSError: It does not.
            HTTPException: Its answer is cut off.
        """
        connection = self._connection(number)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            told = answer.read()
        except (OSError, HTTPException):
            self._open.pop(number)[0].close()
            raise
        self._open[number] = connection, monotonic()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, named, told)

    def _connection(self, number: int) -> HTTPConnection:
        """The one that is open, unless the server is about to close it."""
        connection, used = self._open.get(number, (None, 0.0))
        if connection is not None and monotonic() - used < _IDLE_SECONDS:
            return connection
        if connection is not None:
            connection.close()
        connection = HTTPConnection("127.0.0.1", self._servers[number].port, timeout=120)
        self._open[number] = connection, monotonic()
        return connection

    def close(self) -> None:
        """Close the connections."""
        for one, _ in self._open.values():
            one.close()


class Site:
    """A store with servers over it.

    Args:
        folder: For files of the run.
        url: The store.
        namespace: Where in it.
        servers: The processes.
    """

    def __init__(self, folder: Path, url: str, namespace: str, servers: list[Server]) -> None:
        self.folder = folder
        self.url = url
        self.namespace = namespace
        self.servers = servers
        self._store = open_store(url, namespace)
        self.ring = KeyRing(self._store)
        self._callers = threading.local()
        self._all: list[Caller] = []

    @property
    def caller(self) -> Caller:
        """Of this thread."""
        found: Caller | None = getattr(self._callers, "caller", None)
        if found is None:
            found = self._callers.caller = Caller(self.servers)
            self._all.append(found)
        return found

    @property
    def files(self) -> list[Path]:
        """Whatever is left on disk: logs, skills, and the database where it is a file."""
        return [one for one in self.folder.rglob("*") if one.is_file()]

    def close(self) -> None:
        """Close what this process has open."""
        for one in self._all:
            one.close()
        self._store.close()


@contextmanager
def site(
    store: str | None,
    namespace: str,
    count: int,
    model: str,
    options: Sequence[str] = (),
    blocks: str | None = None,
) -> Iterator[Site]:
    """Servers over a store, which are stopped in the end.

    Args:
        store: Its URL; None for a SQLite file.
        namespace: Where in it.
        count: How many servers.
        model: Where the model answers.
        options: More options of the command.
        blocks: Its blocks, as a file of settings has them; None for one of each kind.
    """
    with TemporaryDirectory(prefix="torture-http-") as name:
        folder = Path(name)
        url = store or f"sqlite:///{folder}/memory.db"
        fields = {
            "store": url,
            "namespace": namespace,
            "max_tokens": 400,
            "model": "openai/gpt-4o-mini",
            "api_base": model,
            "api_key": "none",
            "embedding": "local",
            "absorb_attempts": 2,
            "recall_timeout": 60,
        }
        lines = [f"{field} = {json.dumps(value)}" for field, value in fields.items()]
        settings = "\n".join(lines) + (_BLOCKS if blocks is None else blocks)
        (folder / "m.toml").write_text(settings, encoding="utf-8")
        servers = [Server(folder, f"{n}", ["--rate", "0", *options]) for n in range(count)]
        try:
            for one in servers:
                one.start()
            place = Site(folder, url, namespace, servers)
            try:
                yield place
            finally:
                place.close()
        finally:
            for one in servers:
                one.stop()
