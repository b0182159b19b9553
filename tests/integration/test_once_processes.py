"""Four processes retry each of their writes, while connections are cut and processes killed."""

import os
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from agent_memory import AgentMemory
from tests.kit import piped
from tests.servers.line import Line
from tests.servers.process import CannotStart, untested
from tests.servers.redis import RedisNodes, redis_binaries

WRITERS = 4
WRITES = 12
KILLS = 1
ODDS = 0.02

WRITER = """
import sys
from random import Random
from agent_memory import AgentMemory, Trim
from agent_memory.errors import StoreError

url, namespace, encryption, name, first, last, seed = sys.argv[1:]
random = Random(seed)

def heard(call):
    while True:
        try:
            return call()
        except StoreError:
            pass

def opened():
    return AgentMemory(store=url, namespace=namespace, tokenizer="approximate", blocks=[],
                       encryption=encryption or None, overflow=Trim(), max_tokens=200)

memory = heard(opened)
print("ready", flush=True)
for n in range(int(first), int(last)):
    if n % 3:
        given, terms = {"role": "user", "content": f"{name} {n}"}, {"key": f"{name} {n}"}
    else:
        given = [{"role": "user", "content": f"{name} {n} {m}", "id": f"{name} {n} {m}"}
                 for m in range(3)]
        terms = {}
    ends = [heard(lambda: memory.update("s", given, **terms)).end
            for _ in range(1 + random.randint(0, 5))]
    # making room, the first may have seen what others wrote after it
    assert len({*ends[1:]}) <= 1, ends
    print(n, flush=True)
memory.close()
"""


@pytest.fixture(scope="module")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        nodes = RedisNodes(tmp_path_factory.mktemp("nodes"), next(iter(redis_binaries().values())))
        nodes.start()
    except CannotStart as reason:
        untested("a Redis cluster", reason)
    yield nodes.url
    nodes.stop()


def _expected_texts(name: str) -> list[str]:
    return [
        text
        for n in range(WRITES)
        for text in ([f"{name} {n}"] if n % 3 else [f"{name} {n} {m}" for m in range(3)])
    ]


@contextmanager
def _lined(url: str) -> Iterator[str]:
    """Yield the URL of a server behind a proxy that cuts connections."""
    parts = urlsplit(url)
    assert parts.port is not None
    line = Line(parts.port)
    line.odds = ODDS
    try:
        place = parts.netloc.replace(f":{parts.port}", f":{line.port}")
        yield urlunsplit(parts._replace(netloc=place))
    finally:
        line.close()


class _Writer(threading.Thread):
    """Run a process until it has written everything, and kill it now and then."""

    def __init__(self, url: str, namespace: str, encryption: str, name: str) -> None:
        super().__init__()
        self._given = (url, namespace, encryption, name)
        self._random = Random(name)
        self._next = 0
        self.failed: str | None = None

    def run(self) -> None:
        try:
            for _ in range(KILLS):
                self._write(self._random.randint(1, WRITES // KILLS))
            self._write(None)
        except Exception as error:  # noqa: BLE001 - told in the test's own thread
            self.failed = self.failed or repr(error)

    def _write(self, most: int | None) -> None:
        """Let a process write, and kill it after `most` writes, if given."""
        numbers = (str(self._next), str(WRITES), str(self._random.random()))
        command = [sys.executable, "-c", WRITER, *self._given, *numbers]
        with piped(*command, stdin=None) as process:
            for count, line in enumerate(process.stdout):
                if line != "ready\n":
                    self._next = int(line)  # the next process repeats this write
                if count == most:
                    time.sleep(self._random.uniform(0, 0.02))
                    process.kill()
                    return
            told = process.stderr.read()
            if process.wait():
                self.failed = told


@pytest.mark.parametrize(
    "kind", ["sqlite", "encrypted", "redis", "cluster", "mongodb", "postgres", "mysql"]
)
def test_writes_retried_by_several_processes_are_stored_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a write is lost or stored twice because its reply was lost or its process died."""
    monkeypatch.setenv("ONCE_KEYS", f"k:{b64encode(os.urandom(32)).decode()}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    namespace, encryption = uuid4().hex, "ONCE_KEYS" if kind == "encrypted" else ""
    on_disk = kind in ("sqlite", "encrypted")
    url = f"sqlite:///{tmp_path}/m.db" if on_disk else request.getfixturevalue(f"{kind}_url")
    names = [f"w{n}" for n in range(WRITERS)]
    straight = on_disk or kind == "cluster"  # its nodes announce their own addresses
    with nullcontext(url) if straight else _lined(url) as through:
        writers = [_Writer(through, namespace, encryption, name) for name in names]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    assert [writer.failed for writer in writers if writer.failed] == []
    settings = {"namespace": namespace, "encryption": encryption or None, "blocks": []}
    with AgentMemory(store=url, tokenizer="approximate", **settings) as memory:
        log = memory.history("s")
        assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
        texts = [entry.message.text() for entry in log]
        for name in names:
            assert [text for text in texts if text.startswith(f"{name} ")] == _expected_texts(name)
        assert len(texts) == WRITERS * len(_expected_texts("w0"))
