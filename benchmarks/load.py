"""The service under load, beside an empty route and raw inserts: `python -m benchmarks.load`.

Two processes of `agent-memory serve` over one store, two of an empty route of FastAPI that takes
the same bodies, and the same 64 clients by turns. Then, with `--minutes`, the service alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.load_client import Job
from benchmarks.load_sides import Side, database, empty, raw, service

_WARM_SECONDS = 3.0
_RAW_SECONDS = 2.0
_COLUMNS = ("requests/s", "p50, ms", "p99, ms", "server µs", "client µs", "MB", "others")


def main(
    postgres: Annotated[
        str | None,
        typer.Option(metavar="URL", help="On PostgreSQL, in a database of its own beside this."),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Of each side.")] = 2,
    clients: Annotated[int, typer.Option(min=1)] = 64,
    sessions: Annotated[int, typer.Option(min=1)] = 10_000,
    users: Annotated[int, typer.Option(min=1)] = 1_000,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each side in a round.")] = 10,
    rounds: Annotated[int, typer.Option(min=0)] = 5,
    minutes: Annotated[float, typer.Option(min=0, help="Then the service alone.")] = 0,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds of a line of these.")] = 60,
    uvicorn: Annotated[
        list[str] | None, typer.Option(help="More options for the empty route's server.")
    ] = None,
) -> None:
    """Measure, and print tables. By default on a SQLite file of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        url = f"sqlite:///{folder}/memory.db"
        if postgres is not None:
            url = stack.enter_context(database(postgres))
        ours = stack.enter_context(service(url, processes, users))
        inserts = stack.enter_context(raw(url, folder))
        job = Job([], clients, sessions, users, seconds, "")
        begun = _loaded(ours, replace(job, seconds=0))  # first, a message to each session
        print(f"sessions begun a second: {begun['rate']:,.0f} ({begun['server']:.0f} µs)")
        if rounds:
            other = stack.enter_context(empty(processes, list(uvicorn or ())))
            _loaded(other, replace(job, seconds=_WARM_SECONDS))
            floors: list[float] = []
            found: dict[str, list[dict[str, Any]]] = {side.name: [] for side in (other, ours)}
            for number in range(rounds):
                floors.append(inserts(_RAW_SECONDS))
                for side in (other, ours):
                    found[side.name].append(_loaded(side, replace(job, seed=number + 1)))
            _show(found, floors)
        if minutes:
            _show_minutes(ours, replace(job, seconds=every), minutes)


def _loaded(side: Side, job: Job) -> dict[str, Any]:
    """What comes of a job on a side."""
    given = json.dumps(asdict(replace(job, ports=side.ports, key=side.key)))
    command, used = [sys.executable, "-m", "benchmarks.load_client"], side.cpu()
    done = subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    each = 1e6 / max(1, told["requests"])
    return told | {
        "rate": told["requests"] / told["seconds"],
        "rss": side.rss(),
        "server": (side.cpu() - used) * each,
        "client": told["cpu"] * each,
    }


def _cells(samples: list[dict[str, Any]]) -> list[str]:
    def middle(name: str) -> float:
        return float(median(one[name] for one in samples))

    others = {name: n for one in samples for name, n in one["others"].items()}
    return [
        f"{middle('rate'):,.0f}", f"{middle('p50'):.1f}", f"{middle('p99'):.1f}",
        f"{middle('server'):.0f}", f"{middle('client'):.0f}", f"{middle('rss'):.0f}",
        str(others or "none"),
    ]  # fmt: skip


def _show(found: dict[str, list[dict[str, Any]]], floors: list[float]) -> None:
    table = Table("side", *_COLUMNS)
    for name, samples in found.items():
        table.add_row(name, *_cells(samples))
    Console(width=120).print(table)
    (_, them), (_, ours) = found.items()
    pairs = list(zip(ours, them, strict=True))
    share = median(one["rate"] / other["rate"] for one, other in pairs)
    tail = median(one["p99"] / one["p50"] for one in ours)
    inserts = median(one["rate"] / floor for one, floor in zip(ours, floors, strict=True))
    print(f"append, to the empty route: {share:.2f} (bar: at least 0.5)")
    print(f"p99, to p50: {tail:.1f} (bar: at most 5)")
    print(f"append, to raw inserts ({median(floors):,.0f}/s): {inserts:.2f}")


def _show_minutes(side: Side, job: Job, minutes: float) -> None:
    begun = perf_counter()
    lines: list[dict[str, Any]] = []
    while (passed := perf_counter() - begun) < 60 * minutes:
        lines.append(_loaded(side, replace(job, seed=len(lines) + 1)))
        print(f"{passed / 60:.1f}", *_cells(lines[-1:]), file=sys.stderr)
    table = Table("minute", *_COLUMNS)
    for number, one in enumerate(lines, 1):
        table.add_row(f"{number * job.seconds / 60:.1f}", *_cells([one]))
    Console(width=120).print(table)


if __name__ == "__main__":
    typer.run(main)
