"""Make mixed calls for hours: `python -m benchmarks durability soak --minutes 60`.

Threads of one process make random calls of a memory, while worker processes absorb. The data does
not grow: long sessions are deleted, and retention shortens the logs. Memory, files, threads, the
write-ahead log and the time of updates must stay flat in the second half.

With `--services 2` the calls go over HTTP to two processes of `agent-memory serve`. In the first
half, the services, the workers and the database server are restarted one after another. Each thread
appends numbers to a session of its own, which must end with all acknowledged ones, each once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from statistics import mean, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Annotated
from uuid import uuid4

import typer
from rich.console import Console
from rich.table import Table

from agent_memory import AgentMemory, AgentMemoryConfig, operations
from agent_memory.core.processes import share_arenas
from agent_memory.errors import AgentMemoryError, StoreUnavailable
from agent_memory.server.credentials import RIGHTS
from agent_memory.server.keys import KeyRing
from benchmarks.messages import chats

_WEIGHTS = {
    "update": 40, "get": 14, "search": 9, "history": 6, "notes": 4, "working": 4, "pop": 1,
    "sessions": 2, "turn": 2, "number": 10, "flush": 1, "delete": 0.8,
    "delete_user": 0.05, "checkpoint": 0.5,
}  # fmt: skip
_SESSIONS = 10
_LONGEST = 60
_MAIN = "from agent_memory.cli.entry import main; main()"
_SLACK = {"rss": 0.1, "workers": 0.1, "files": 0.1, "threads": 0.1, "wal": 0.3, "p99": 0.3}
"""Values that must stay flat, and the share by which each may rise."""
_LEAST = {"rss": 8.0, "workers": 8.0, "files": 3.0, "threads": 3.0, "wal": 8.0, "p99": 5.0}
"""The rise of each value that is always allowed."""

Sample = dict[str, float]
"""The values of an interval, which ends at `minute`.

In MB: `rss` of the calling process, `workers` of all helpers, `size` of the file, `wal` at most.
In milliseconds: updates (`p50`, `p99`) and deletions (`delete` for p50, `slowest`).
Numbers: `files` and `threads` of the calling process, `calls`, and the `deletions` among them.
"""


def risen(samples: Sequence[Sample]) -> list[str]:
    """Return the names that are higher in the last quarter than in the one before."""
    quarter = len(samples) // 4
    if not quarter:
        return ["too short to tell"]
    found = []
    for name, slack in _SLACK.items():
        values = [one[name] for one in samples]
        before, after = mean(values[-2 * quarter : -quarter]), mean(values[-quarter:])
        if after - before > max(slack * before, _LEAST[name]):
            found.append(f"{name} {before:,.0f} to {after:,.0f}")
    return found


def sampled(
    taken: Callable[[], Mapping[str, Sequence[float]]],
    url: str,
    minutes: float,
    every: float,
    helpers: Sequence[Helper],
) -> Iterator[Sample]:
    """Sample this process and its helpers every `every` seconds.

    `taken` returns the milliseconds of the calls since the last sample, by name.
    """
    begun = perf_counter()
    path = url.removeprefix("sqlite:///") if url.startswith("sqlite:") else None
    while (passed := perf_counter() - begun) < 60 * minutes:
        wal = 0.0
        while perf_counter() - begun < passed + every:
            sleep(min(0.2, every))
            wal = max(wal, _megabytes(path, "-wal"))
        calls = taken()
        updates, deletes = calls.get("update", []), calls.get("delete", [])
        sample = {
            "minute": (perf_counter() - begun) / 60, "rss": resident(os.getpid()),
            "workers": sum(resident(one.pid) for one in helpers),
            "files": len(os.listdir("/proc/self/fd")), "threads": threading.active_count(),
            "size": _megabytes(path, ""), "wal": wal,
            "calls": sum(map(len, calls.values())), "deletions": len(deletes),
            "p50": _part(updates, 50), "p99": _part(updates, 99),
            "delete": _part(deletes, 50), "slowest": max(deletes, default=0.0),
        }  # fmt: skip
        print({name: round(value, 1) for name, value in sample.items()}, file=sys.stderr)
        yield sample


def _part(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100)[percent - 1] if len(values) > 1 else sum(values)


def resident(pid: int) -> float:
    """Return the resident memory of a process in MB; 0 after it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _megabytes(path: str | None, suffix: str) -> float:
    try:
        return os.stat(f"{path}{suffix}").st_size / 1e6 if path else 0.0
    except FileNotFoundError:
        return 0.0


class Helper:
    """A process of the command line: a worker, or a service at `url`."""

    def __init__(self, settings: Path, port: int = 0) -> None:
        self._command = ["serve", "--port", str(port), "--rate", "0"] if port else ["worker"]
        self._command = [sys.executable, "-c", _MAIN, *self._command, "--config", str(settings)]
        self.url = f"http://127.0.0.1:{port}"
        self.start()

    @property
    def pid(self) -> int:
        """The id of the current process."""
        return self._process.pid

    def start(self) -> None:
        """Start the process. Wait until a service is ready."""
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(self._command, stdout=pipe, stderr=quiet, text=True)
        assert self._process.stdout is not None
        if "serve" in self._command and not self._process.stdout.readline():
            raise SystemExit(f"{self._command} ended.")

    def stop(self) -> None:
        """Stop the process with SIGTERM, as a deployment would."""
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate()

    def restart(self) -> None:
        """Stop the process, and start it again at the same address."""
        self.stop()
        self.start()


class Soak:
    """Threads that call memories of one store at random, `pause` seconds apart on average."""

    def __init__(
        self,
        memory: AgentMemory,
        memories: Sequence[AgentMemory],
        users: int,
        pause: float,
        seed: int,
    ) -> None:
        self.errors: Counter[str] = Counter()
        self.acknowledged: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._memory, self._memories = memory, memories
        self._users, self._pause, self._seed = users, pause, seed
        self._said = chats(seed, 5_000)
        self._stop = threading.Event()
        self._noting = threading.Lock()
        self._taken: defaultdict[str, list[float]] = defaultdict(list)

    def fill(self) -> None:
        """Fill each session with some messages."""
        chance = Random(self._seed)
        for user in range(self._users):
            for number in range(_SESSIONS):
                said = chance.choices(self._said, k=chance.randint(1, _LONGEST))
                self._memory.update(f"u{user}-{number}", said, user_id=f"u{user}")
        self._memory.flush()

    @contextmanager
    def running(self, threads: int) -> Iterator[None]:
        """Make calls from `threads` threads during the `with` block."""
        crowd = [threading.Thread(target=self._call, args=(n,)) for n in range(threads)]
        for one in crowd:
            one.start()
        try:
            yield
        finally:
            self._stop.set()
            for one in crowd:
                one.join()

    def taken(self) -> dict[str, list[float]]:
        """Return the milliseconds of the calls since the last `taken`, by name."""
        with self._noting:
            taken, self._taken = self._taken, defaultdict(list)
        return taken

    def _call(self, thread: int) -> None:
        chance = Random(f"{self._seed}/{thread}")
        while not self._stop.wait(self._pause and chance.expovariate(1 / self._pause)):
            user = f"u{chance.randrange(self._users)}"
            session_id = f"{user}-{chance.randrange(_SESSIONS)}"
            name = chance.choices([*_WEIGHTS], [*_WEIGHTS.values()])[0]
            if name == "number":
                user, session_id = "numbers", f"numbers-{thread}"
            memory = chance.choice(self._memories)
            end = self._timed(memory, name, user, session_id, chance.choice(self._said))
            if name == "update" and end > chance.randrange(_LONGEST, 2 * _LONGEST):
                self._timed(memory, "delete", user, session_id, {})

    def _timed(
        self, memory: AgentMemory, name: str, user: str, session_id: str, message: dict[str, str]
    ) -> int:
        """Make a call; return the session's length after an update."""
        end, begun = 0, perf_counter()
        try:
            if name == "update":
                end = memory.update(session_id, message, user_id=user).end
            else:
                self._other(memory, name, user, session_id, message.get("content", ""))
        except AgentMemoryError as error:  # such as a session that another thread deleted
            with self._noting:
                self.errors[f"{name}: {type(error).__name__}"] += 1
        with self._noting:
            self._taken[name].append(1e3 * (perf_counter() - begun))
        return end

    def number(self, memory: AgentMemory, session_id: str) -> None:
        """Append the next number until it is acknowledged, and check the session's end."""
        number = self.acknowledged[session_id] + 1
        while True:
            try:
                memory.update(session_id, str(number), user_id="numbers", key=str(number))
                break
            except StoreUnavailable:
                with self._noting:
                    self.errors["number: StoreUnavailable"] += 1
                memory = self._memories[number % len(self._memories)]
                sleep(0.1)
        self.acknowledged[session_id] = number
        seen = [int(entry.message.text()) for entry in memory.history(session_id, last=50)]
        if not seen or seen != [*range(seen[0], number + 1)]:
            self.wrong.append(f"{session_id} ends with {seen} after {number}")

    def _other(self, memory: AgentMemory, name: str, user: str, session_id: str, text: str) -> None:
        match name:
            case "number":
                self.number(memory, session_id)
            case "get":
                memory.get(session_id, text, user_id=user).to_messages()
            case "search":
                memory.search(text, user_id=user)
            case "history":
                memory.history(session_id, last=20)
            case "notes":
                notes = memory.user(user).notes()
                if len(stored := notes.all()) < 20:
                    notes.add(text)
                else:
                    notes.delete(stored[0].id)
            case "working":
                working = memory.session(session_id, user).working()
                working.set("plan", text)
                working.delete("plan")
            case "pop":
                memory.pop(session_id, 2)
            case "sessions":
                memory.sessions(user_id=user)
            case "turn":
                memory.after_turn(memory.before_turn(session_id, text, user_id=user), text)
            case "flush":
                memory.flush(session_id)
            case "delete":
                memory.delete(session_id)
            case "delete_user":
                memory.delete_user(user)
            case "checkpoint":
                checkpoint = memory.checkpoint(session_id, user_id=user)
                operations.verify(self._memory, checkpoint.to_json())


def main(
    stores: Annotated[
        list[str] | None, typer.Option("--store", metavar="URL", help="May be given repeatedly.")
    ] = None,
    servers: Annotated[
        list[str] | None, typer.Option("--server", help="Starts its own: postgresql, redis.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.01, help="On each store.")] = 60,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two lines.")] = 60,
    threads: Annotated[int, typer.Option(min=1)] = 8,
    workers: Annotated[int, typer.Option(min=0, help="Processes beside it.")] = 2,
    services: Annotated[int, typer.Option(min=0, help="Call these, and restart them.")] = 0,
    users: Annotated[int, typer.Option(min=1)] = 20,
    rate: Annotated[float, typer.Option(min=0, help="Calls a second; 0: no pauses.")] = 100,
    seed: int = 1,
) -> None:
    """Make random calls, and check that nothing grows. The default store is a temporary file."""
    flat = True
    share_arenas()  # as long-running commands do
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that helpers end, too
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        urls = stores or ([] if servers else [f"sqlite:///{folder}/memory.db"])
        started = [(url, _nothing) for url in urls]
        for url, restart in [*started, *_started(stack, folder, servers or [])]:
            with _site(url, folder, workers, services) as (memory, memories, helpers):
                soak = Soak(memory, memories, users, threads / rate if rate else 0.0, seed)
                soak.fill()
                changes = [one.restart for one in helpers] + [restart] if services else []
                with soak.running(threads), _later(changes, 60 * minutes / 2):
                    samples = list(sampled(soak.taken, url, minutes, every, helpers))
                for session_id in soak.acknowledged:
                    soak.number(memory, session_id)
                for user in ["numbers", *(f"u{user}" for user in range(users))]:
                    memory.delete_user(user)
            kind, grown = url.partition(":")[0], risen(samples)
            flat = flat and not grown and not soak.wrong
            table = Table(*samples[0], title=kind, title_justify="left")
            for one in samples:
                table.add_row(*(f"{value:,.{value < 100:d}f}" for value in one.values()))
            Console(width=140).print(table)
            print(f"{kind}: {'not flat: ' + '; '.join(grown) if grown else 'flat'}; "
                  f"errors: {dict(soak.errors) or 'none'}; numbers acknowledged: "
                  f"{soak.acknowledged.total():,}; wrong: {soak.wrong or 'none'}")  # fmt: skip
    if not flat:
        raise typer.Exit(1)


@contextmanager
def _later(changes: Sequence[Callable[[], object]], seconds: float) -> Iterator[None]:
    """Make the changes one after another during the `with` block, spread over `seconds`."""
    stop = threading.Event()

    def make() -> None:
        for change in changes:
            if stop.wait(seconds / (len(changes) + 1)):
                return
            change()

    thread = threading.Thread(target=make)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _site(
    url: str, folder: Path, workers: int, services: int
) -> Iterator[tuple[AgentMemory, list[AgentMemory], list[Helper]]]:
    """Start services and workers with the same settings, and open a memory for each service."""
    given = {
        "store": url, "namespace": f"soak-{uuid4().hex[:8]}", "max_tokens": 1500,
        "retention": "PT60S", "overflow_mode": "background", "embedding": "local",
        "overflow": {"kind": "flush_to_ltm", "blocks": [{"kind": "vector"}]},
        "blocks": [{"kind": "notes"}, {"kind": "working"}],
    }  # fmt: skip
    settings = folder / "soak.json"
    settings.write_text(json.dumps(given))
    from tests.servers.process import free_port

    with ExitStack() as stack:
        memory = stack.enter_context(AgentMemory(AgentMemoryConfig.from_file(settings)))
        memory.stats()  # creates the store before the workers open it
        memories, helpers = [memory], []
        for port in [free_port() for _ in range(services)] + [0] * workers:
            helpers.append(Helper(settings, port))
            stack.callback(helpers[-1].stop)
        if services:
            key, _ = KeyRing(memory.components.store).create("soak", ["*"], RIGHTS)
            memories = [
                stack.enter_context(AgentMemory(one.url, api_key=key)) for one in helpers[:services]
            ]
        yield memory, memories, helpers


def _nothing() -> None: ...


def _started(
    stack: ExitStack, folder: Path, names: Sequence[str]
) -> Iterator[tuple[str, Callable[[], object]]]:
    from tests.servers.postgres import PostgresServer
    from tests.servers.process import PrivateServer
    from tests.servers.redis import RedisServer, redis_binaries

    makes: dict[str, Callable[[], PrivateServer]] = {
        "postgresql": PostgresServer,
        "redis": lambda: RedisServer(folder, next(iter(redis_binaries().values()))),
    }
    for name in names:
        server = makes[name]()
        stack.callback(server.remove if isinstance(server, PostgresServer) else server.stop)
        server.start()
        yield server.url, server.restart
