"""Hours of mixed calls, by the minute: `python -m benchmarks.soak --minutes 60 --servers`.

Threads of one process call a memory at random, with workers beside it, over data that does not
grow: who has said much is deleted, and retention shortens the logs. Memory, files, threads, the
write-ahead log and how long updates take are to be flat in the second half.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated
from uuid import uuid4

import typer
from rich.console import Console
from rich.table import Table

import benchmarks.torture_calls
import benchmarks.torture_calls_kept  # noqa: F401 - enters its calls in the table
from agent_memory import AgentMemory, AgentMemoryConfig
from agent_memory.core.processes import share_arenas
from agent_memory.errors import AgentMemoryError
from benchmarks.messages import chats
from benchmarks.soak_samples import risen, sampled
from benchmarks.torture_acts import OPERATIONS, Act

_CALLS = {
    "say": 40, "get": 14, "search": 9, "history": 6, "notes": 4, "working": 4, "pop": 1,
    "own_sessions": 2, "turn": 2, "flush": 1, "delete": 0.8, "delete_user": 0.05, "checkpoint": 0.5,
}  # fmt: skip
_SESSIONS = 10
_LONGEST = 60
_WORKER = "from agent_memory.cli.app import main; main()"


class Soak:
    """Threads that call until told to stop, and what it took them.

    Args:
        memory: Whom they call.
        users: How many users there are.
        pause: Seconds between two calls of a thread, on average.
        seed: Of what is called.

    Attributes:
        errors: How many calls failed, by name and class.
    """

    def __init__(self, memory: AgentMemory, users: int, pause: float, seed: int) -> None:
        self.errors: defaultdict[str, int] = defaultdict(int)
        self._memory, self._users, self._pause, self._seed = memory, users, pause, seed
        self._said = chats(seed, 5_000)
        self._stop = threading.Event()
        self._noting = threading.Lock()
        self._taken: defaultdict[str, list[float]] = defaultdict(list)

    def fill(self) -> None:
        """Have each session say something, some more and some less."""
        chance = Random(self._seed)
        for user in range(self._users):
            for number in range(_SESSIONS):
                said = chance.choices(self._said, k=chance.randint(1, _LONGEST))
                self._memory.update(f"u{user}-{number}", said, user_id=f"u{user}")
        self._memory.flush()

    @contextmanager
    def running(self, threads: int) -> Iterator[None]:
        """Call from so many threads meanwhile."""
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
        """Milliseconds of the calls that ended since it was asked last, by name."""
        with self._noting:
            taken, self._taken = self._taken, defaultdict(list)
        return taken

    def _call(self, thread: int) -> None:
        chance = Random(f"{self._seed}/{thread}")
        while not self._stop.wait(self._pause and chance.expovariate(1 / self._pause)):
            user = f"u{chance.randrange(self._users)}"
            session_id = f"{user}-{chance.randrange(_SESSIONS)}"
            name = chance.choices([*_CALLS], [*_CALLS.values()])[0]
            act = Act(self._memory, user, user, session_id, False, "", "", "", chance)
            if name == "say":
                end = self._timed("update", act)
                name = "delete" if end and end > chance.randrange(_LONGEST, 2 * _LONGEST) else ""
            if name:
                self._timed(name, act)

    def _timed(self, name: str, act: Act) -> int | None:
        """Make a call; how long the session is now, after an update."""
        end, begun = None, perf_counter()
        try:
            match name:
                case "update":
                    end = act.update(act.chance.choice(self._said)).end
                case "delete":
                    self._memory.delete(act.session_id)
                case "delete_user":
                    self._memory.delete_user(act.user)
                case _:
                    OPERATIONS[name].run(act)
        except AgentMemoryError as error:  # such as that others deleted meanwhile
            self.errors[f"{name}: {type(error).__name__}"] += 1
        with self._noting:
            self._taken[name].append(1e3 * (perf_counter() - begun))
        return end


def main(
    stores: Annotated[
        list[str] | None, typer.Option("--store", metavar="URL", help="May be given repeatedly.")
    ] = None,
    servers: Annotated[bool, typer.Option(help="PostgreSQL and Redis of its own, too.")] = False,
    minutes: Annotated[float, typer.Option(min=0.01, help="On each store.")] = 60,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two lines.")] = 60,
    threads: Annotated[int, typer.Option(min=1)] = 8,
    workers: Annotated[int, typer.Option(min=0, help="Processes beside it.")] = 2,
    users: Annotated[int, typer.Option(min=1)] = 20,
    rate: Annotated[float, typer.Option(min=0, help="Calls a second; 0: no pauses.")] = 100,
    seed: int = 1,
    out: Annotated[Path | None, typer.Option(help="A folder for the figures, as JSON.")] = None,
) -> None:
    """Call at random for long, and see whether anything grows. By default on a file of its own."""
    flat = True
    if out:  # before the hours, not after them
        out.mkdir(parents=True, exist_ok=True)
    share_arenas()  # as the commands do that run for long
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it started ends with it
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        urls = stores or ([] if servers else [f"sqlite:///{folder}/memory.db"])
        for url in [*urls, *(_started(stack, folder) if servers else ())]:
            with _site(url, folder, workers) as (memory, helpers):
                soak = Soak(memory, users, threads / rate if rate else 0.0, seed)
                soak.fill()
                with soak.running(threads):
                    samples = list(sampled(soak.taken, url, minutes, every, helpers))
                for user in range(users):
                    memory.delete_user(f"u{user}")
            kind, grown = url.partition(":")[0], risen(samples)
            flat = flat and not grown
            table = Table(*samples[0], title=kind, title_justify="left")
            for one in samples:
                table.add_row(*(f"{value:,.{value < 100:d}f}" for value in one.values()))
            Console(width=140).print(table)
            print(f"{kind}: {'not flat: ' + '; '.join(grown) if grown else 'flat'}; "
                  f"errors: {dict(soak.errors) or 'none'}")  # fmt: skip
            if out:
                (out / f"soak-{kind}.json").write_text(json.dumps(samples))
    if not flat:
        raise typer.Exit(1)


@contextmanager
def _site(url: str, folder: Path, workers: int) -> Iterator[tuple[AgentMemory, list[int]]]:
    """A memory, and the ids of workers of the same settings."""
    given = {
        "store": url, "namespace": f"soak-{uuid4().hex[:8]}", "max_tokens": 1500,
        "retention": "PT60S", "overflow_mode": "background", "embedding": "local",
        "overflow": {"kind": "flush_to_ltm", "blocks": [{"kind": "vector"}]},
        "blocks": [{"kind": "notes"}, {"kind": "working"}],
    }  # fmt: skip
    settings = folder / "soak.json"
    settings.write_text(json.dumps(given))
    command = [sys.executable, "-c", _WORKER, "worker", "--config", str(settings)]
    with AgentMemory(AgentMemoryConfig.from_file(settings)) as memory:
        memory.stats()  # there is a store before the workers look for one
        helpers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(workers)]
        try:
            yield memory, [one.pid for one in helpers]
        finally:
            for one in helpers:
                one.send_signal(signal.SIGTERM)
                one.wait()


def _started(stack: ExitStack, folder: Path) -> Iterator[str]:
    from tests.servers.postgres import PostgresServer
    from tests.servers.redis import RedisServer, redis_binaries

    postgres = PostgresServer()
    stack.callback(postgres.remove)
    redis = RedisServer(folder, next(iter(redis_binaries().values())))
    stack.callback(redis.stop)
    for server in (postgres, redis):
        server.start()
        yield server.url


if __name__ == "__main__":
    typer.run(main)
