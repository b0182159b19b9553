"""Size a service over PostgreSQL, back it up, and restore it: `python -m benchmarks durability
operations`.

Threads send messages of many users to two processes of `agent-memory serve`. The output shows the
processor time of a message, the memory of the services and the database's size. Then `pg_dump`
writes a backup while messages still arrive. `pg_restore` fills an empty database with the backup.
Every message that was acknowledged before the backup must be in it.
"""

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated

import typer

from agent_memory import AgentMemory, AgentMemoryConfig
from agent_memory.server.credentials import RIGHTS
from agent_memory.server.keys import KeyRing
from benchmarks.durability.soak import Helper, resident
from benchmarks.messages import chats, machine

_TICKS = os.sysconf("SC_CLK_TCK")


def _used(helpers: Sequence[Helper]) -> tuple[float, float]:
    """Return the processor seconds and the resident MB of processes, together."""
    seconds = megabytes = 0.0
    for one in helpers:
        fields = Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()
        seconds += (int(fields[11]) + int(fields[12])) / _TICKS
        megabytes += resident(one.pid)
    return seconds, megabytes


def main(
    sessions: Annotated[int, typer.Option(min=1, help="One of each user.")] = 1_000,
    messages: Annotated[int, typer.Option(min=2, help="In each session.")] = 10,
    threads: Annotated[int, typer.Option(min=1, help="That send requests.")] = 8,
    embedding: Annotated[str, typer.Option(help="An embedder, or none.")] = "local",
) -> None:
    """Measure, back up, restore and compare."""
    from tests.servers.postgres import PostgresServer
    from tests.servers.process import free_port

    print(machine())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = PostgresServer()
        stack.callback(server.remove)
        server.start()

        def tool(name: str, *arguments: str) -> str:
            command = [str(server._programs / name), *arguments]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        def disk() -> float:
            size = "SELECT pg_database_size(current_database())"
            return int(tool("psql", "-tA", "-c", size, server.url)) / 1e6

        embedder = None if embedding == "none" else embedding
        given = {"store": server.url, "overflow_mode": "background", "embedding": embedder}
        settings = folder / "memory.json"
        settings.write_text(json.dumps({**given, "blocks": [{"kind": "vector"}]}))
        memory = stack.enter_context(AgentMemory(AgentMemoryConfig.from_file(settings)))
        key, _ = KeyRing(memory.components.store).create("operations", ["*"], RIGHTS)
        helpers, clients = [], []
        for port in (free_port(), free_port()):
            helpers.append(Helper(settings, port))
            stack.callback(helpers[-1].stop)
            clients.append(stack.enter_context(AgentMemory(helpers[-1].url, api_key=key)))
        texts = chats(1, 5_000)

        def send(number: int) -> None:
            for place in range(messages):
                clients[number % 2].update(
                    f"s{number}", texts[(number * messages + place) % 5_000], user_id=f"u{number}"
                )

        send(sessions)
        (cpu, rss), empty, begun = _used(helpers), disk(), perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(send, range(sessions)))
        seconds, count = perf_counter() - begun, sessions * messages
        sent, more = _used(helpers)
        print(f"{count:,} messages, {count / seconds:,.0f} a second, "
              f"{1e3 * (sent - cpu) / count:.2f} ms of processor time each")  # fmt: skip
        memory.flush()
        absorbed, most = _used(helpers)
        print(f"the services: {rss:,.0f} MB at first, {more:,.0f} after {sessions:,} sessions, "
              f"{most:,.0f} when all was absorbed; {absorbed - sent:,.0f} s for that")  # fmt: skip
        print(f"the database: {disk() - empty:,.1f} MB more")

        ended = threading.Event()

        def write_on() -> None:
            number = sessions
            while not ended.is_set():
                send(number := number + 1)

        writer = threading.Thread(target=write_on)
        writer.start()
        begun, backup = perf_counter(), folder / "backup"
        try:
            tool("pg_dump", "--format=custom", f"--file={backup}", server.url)
        finally:
            ended.set()
            writer.join()
        print(f"pg_dump while messages arrived: {perf_counter() - begun:.1f} s, "
              f"{backup.stat().st_size / 1e6:,.1f} MB")  # fmt: skip
        begun = perf_counter()
        tool("psql", "-c", "CREATE DATABASE restored", server.url)
        tool("pg_restore", f"--dbname={server.url_of('restored')}", str(backup))
        print(f"pg_restore: {perf_counter() - begun:.1f} s")
        lost = 0
        with AgentMemory(server.url_of("restored"), embedding=embedder) as restored:
            for number in range(sessions):
                log = [entry.message.text() for entry in restored.history(f"s{number}")]
                begin = number * messages
                known = [texts[at % 5_000]["content"] for at in range(begin, begin + messages)]
                lost += log != known
            found = restored.search(texts[0]["content"], user_id="u0")
        print(
            f"sessions that differ: {lost}; the restored memory finds its messages: {bool(found)}"
        )
    if lost or not found:
        raise typer.Exit(1)
