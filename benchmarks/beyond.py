"""Past one machine, measured small and counted up: `python -m benchmarks.beyond --store URL`.

Measured, on an empty database: what a message takes there, in bytes by table or key, once it was
said and absorbed by `VectorMemory` with the local embedder; and how often an update, a context and
absorbing ask the server. **Simulated** from that: users whose logs are as unequal as a lognormal
distribution makes them, spread by hash over partitions, nodes and shards, and asked for at the
busiest hour. No such database was ever run here: what a network, a disk and a query planner do at
that size is not in it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from agent_memory import AgentMemory, VectorMemory
from agent_memory.stores.sql import server_connection
from benchmarks.running import machine
from benchmarks.scale import message_text, question_about

PARTS = 16
NODES = 12
_CACHE = 256 * 2**20  # bytes of segments that a process keeps
_SESSION = 50
_SIGMA = 1.5  # of the logarithm of messages a user: the busiest tenth have 60 % of all
_TB, _GB = 1e12, 1e9


@dataclass(frozen=True)
class Measured:
    """What was measured at a store.

    Attributes:
        store: Its scheme.
        messages: How many were said and absorbed.
        size: Bytes a message, by table or kind of key, indexes included.
        segment: Bytes a message that a search of its user reads.
        calls: Times that the server was asked: by an update of one message, by a context, and by
            absorbing a message.
    """

    store: str
    messages: int
    size: Mapping[str, float]
    segment: float
    calls: Mapping[str, float]


@dataclass(frozen=True)
class Simulated:
    """What follows for many users; see the module.

    Attributes:
        disk: Bytes of all.
        largest_part: The fullest of 16 partitions by session, to their mean.
        largest_node: The fullest of 12 nodes by user, to their mean.
        largest_user: Messages of the user who has most.
        peak: Messages a second at the busiest hour, and as many contexts.
        calls: Times a second that the servers are asked then.
        reading: Bytes a second of segments that are read, where any process serves any user.
        cached: Users whose segments fit into a process.
    """

    disk: float
    largest_part: float
    largest_node: float
    largest_user: int
    peak: float
    calls: float
    reading: float
    cached: int


def simulate(measured: Measured, users: int, messages: int, daily: float, seed: int) -> Simulated:
    """Count up what was measured.

    Args:
        measured: At a store.
        users: How many there are.
        messages: How many they have said, all together.
        daily: Messages that a user says in a day. A fifth of a day's come in its busiest hour.
        seed: Of the chances.
    """
    chances = np.random.default_rng(seed)
    each = chances.lognormal(0, _SIGMA, users)
    each *= messages / each.sum()
    sessions = np.ceil(each / _SESSION)
    parts = chances.multinomial(int(sessions.sum()), [1 / PARTS] * PARTS)
    nodes = np.bincount(chances.integers(NODES, size=users), weights=each, minlength=NODES)
    peak = users * daily / 5 / 3600
    # who says much asks much: the user of a request has what a message's user has
    asked = float((each**2).sum() / each.sum())
    return Simulated(
        disk=messages * sum(measured.size.values()),
        largest_part=float(parts.max() / parts.mean()),
        largest_node=float(nodes.max() / nodes.mean()),
        largest_user=int(each.max()),
        peak=peak,
        calls=peak * sum(measured.calls.values()),
        reading=peak * asked * measured.segment,
        cached=int(_CACHE / (messages / users * measured.segment)),
    )


def measure(url: str, users: int, advance: Callable[[], None]) -> Measured:
    """Measure at an empty database.

    Args:
        url: Of PostgreSQL or Redis.
        users: So many say 200 messages each, in sessions of 50.
        advance: Called for each session.
    """
    sized = _postgres_sizes if url.startswith("postgres") else _redis_sizes
    AgentMemory(url, blocks=[VectorMemory()]).close()  # makes the tables
    before, number = sized(url), 0
    calls: Counter[str] = Counter()
    with _counting(url) as asked, AgentMemory(url, blocks=[VectorMemory()]) as memory:
        memory.flush()
        for user in range(users):
            for session in range(4):
                name, owner = f"user-{user}-session-{session}", f"user-{user}"
                for at in range(_SESSION):
                    role = "assistant" if at % 2 else "user"
                    said = {"role": role, "content": message_text(number)}
                    begun = asked()
                    memory.update(name, said, user_id=owner)
                    calls["an update"] += asked() - begun
                    number += 1
                begun = asked()
                memory.flush(name)
                calls["absorbing"] += asked() - begun
                begun = asked()
                memory.get(name, question_about(number - 7))
                calls["a context"] += _SESSION * (asked() - begun)
                advance()
    grown = {kind: size - before.get(kind, 0) for kind, size in sized(url).items()}
    size = {kind: one / number for kind, one in grown.items() if one > 0}
    each = {kind: one / number for kind, one in calls.items()}
    segment = next(one for kind, one in size.items() if "segments" in kind)
    return Measured(url.partition("://")[0], number, size, segment, each)


def _postgres_sizes(url: str) -> dict[str, float]:
    import psycopg

    asked = (
        "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
        "WHERE relkind = 'r' AND relname LIKE 'agent_memory%'"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM FULL")  # what an autovacuum would give back in time
        return {name: float(size) for name, size in connection.execute(asked)}


def _redis_sizes(url: str) -> dict[str, float]:
    import redis

    sizes: Counter[str] = Counter()
    with redis.Redis.from_url(url) as server:
        for key in server.scan_iter("agent_memory:*", count=1000):
            kind = key.split(b":")[1].decode()
            sizes[kind] += server.memory_usage(key, samples=0) or 0
    return {kind: float(size) for kind, size in sizes.items()}


@contextmanager
def _counting(url: str) -> Iterator[Callable[[], int]]:
    """How often the server was asked so far."""
    if not url.startswith("postgres"):
        import redis

        own = count(1)
        with redis.Redis.from_url(url) as server:
            # those of scripts count too; this asks as well
            yield lambda: int(server.info("stats")["total_commands_processed"]) - next(own)
        return
    whole, times = server_connection.ServerConnection._translated, 0

    def counted(self: Any, call: Callable[[], Any]) -> Any:
        nonlocal times
        times += 1
        return whole(self, call)

    server_connection.ServerConnection._translated = counted  # type: ignore[method-assign]
    try:
        yield lambda: times
    finally:
        server_connection.ServerConnection._translated = whole  # type: ignore[method-assign]


def run(
    store: Annotated[str, typer.Option(help="URL of an empty PostgreSQL database, or of Redis.")],
    measured_users: Annotated[int, typer.Option(min=1)] = 25,
    users: Annotated[int, typer.Option(min=1)] = 1_000_000,
    messages: Annotated[int, typer.Option(min=1)] = 1_000_000_000,
    daily: Annotated[float, typer.Option(help="Messages that a user says in a day.")] = 10.0,
    seed: int = 1,
    out: Annotated[Path | None, typer.Option(help="Write the figures as JSON.")] = None,
) -> None:
    """Measure what a message takes, and count it up to many users."""
    with typer.progressbar(length=measured_users * 4, label="sessions") as bar:
        measured = measure(store, measured_users, lambda: bar.update(1))
    told = simulate(measured, users, messages, daily, seed)
    _show(measured, told, users, messages)
    if out is not None:
        given = {"machine": machine(), "measured": vars(measured), "simulated": vars(told)}
        out.write_text(json.dumps(given, indent=1), encoding="utf-8")


def _show(measured: Measured, told: Simulated, users: int, messages: int) -> None:
    console = Console()
    table = Table(title=f"Measured at {measured.store}, {measured.messages:,} messages")
    table.add_column("a message")
    table.add_column("", justify="right")
    for kind, size in sorted(measured.size.items(), key=lambda one: -one[1]):
        table.add_row(f"bytes, {kind}", f"{size:,.0f}")
    for kind, times in measured.calls.items():
        table.add_row(f"asks of the server, {kind}", f"{times:.2f}")
    console.print(table)
    table = Table(title=f"Simulated: {users:,} users, {messages:,} messages")
    table.add_column("")
    table.add_column("", justify="right")
    rows = {
        "bytes of all, TB": f"{told.disk / _TB:.2f}",
        f"fullest of {PARTS} partitions by session, to the mean": f"{told.largest_part:.3f}",
        f"fullest of {NODES} nodes by user, to the mean": f"{told.largest_node:.3f}",
        "messages of the largest user": f"{told.largest_user:,}",
        "messages a second, and contexts, at the busiest hour": f"{told.peak:,.0f}",
        "asks of the servers a second then": f"{told.calls:,.0f}",
        "segments read then, any process for any user, GB/s": f"{told.reading / _GB:.2f}",
        "mean users whose segments one process keeps": f"{told.cached:,}",
    }
    for row in rows.items():
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    typer.run(run)
