"""How soon places are found: `python -m benchmarks.spatial`.

Observations of one user in an SQLite file, one for each square of a plane, made within the last 90
days; asked through the public API, from another place each time. Beside each the floor: looking at
all positions with numpy, which are in memory already.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agent_memory import AgentMemory, SpatialMemory
from benchmarks.running import machine
from benchmarks.scale import message_text

_K = 10
_RADIUS = 5.0  # about 78 observations
_SIDE = 10.0  # 100
_QUERY = "station for charging the robot"

Samples = list[float]


@contextmanager
def memory_at(path: Path) -> Iterator[AgentMemory]:
    """A memory of places, in a file."""
    block = SpatialMemory(max_observations=200_000)
    with AgentMemory(store=f"sqlite:///{path}", blocks=[block]) as memory:
        yield memory


def observations(count: int, random: Random) -> list[dict[str, Any]]:
    """So many, one for each square of a plane on average."""
    now, side = datetime.now(UTC), count**0.5
    return [
        {
            "text": " ".join(message_text(number).split()[:12]),
            "position": (random.uniform(0, side), random.uniform(0, side)),
            "at": now - timedelta(days=random.uniform(0, 90)),
            "confidence": random.uniform(0.5, 1),
        }
        for number in range(count)
    ]


def timed(work: Callable[[np.ndarray], object], points: np.ndarray) -> Samples:
    """Milliseconds that it takes from each point."""
    taken = []
    for point in points:
        begun = perf_counter()
        work(point)
        taken.append((perf_counter() - begun) * 1e3)
    return taken


def measured(folder: Path, count: int, questions: int) -> dict[str, tuple[Samples, Samples]]:
    """For each kind of question the times that it takes, and those of its floor."""
    random = Random(count)
    made = observations(count, random)
    path = folder / "places.db"
    with memory_at(path) as memory:
        begun = perf_counter()
        memory.user("u").spatial().observe_many(made)
        written = (perf_counter() - begun) * 1e3
    side = count**0.5 - _SIDE
    points = np.array([[random.uniform(0, side) for _ in "xy"] for _ in range(questions)])
    all_of = np.array([one["position"] for one in made])

    def by_distance(point: np.ndarray) -> np.ndarray:
        return np.argpartition(((all_of - point) ** 2).sum(axis=1), _K)[:_K]

    def by_box(point: np.ndarray) -> np.ndarray:
        return np.flatnonzero(((all_of >= point) & (all_of <= point + _SIDE)).all(axis=1))

    with memory_at(path) as memory:
        places = memory.user("u").spatial()
        first = timed(lambda point: places.nearest(point, 1), points[:1])
        places.near(points[0], query=_QUERY)  # loads the embedder
        near_floor, box_floor = timed(by_distance, points), timed(by_box, points)
        found = {
            "nearest": (timed(lambda p: places.nearest(p, _K), points), near_floor),
            "near": (timed(lambda p: places.near(p, k=_K), points), near_floor),
            "near, radius": (timed(lambda p: places.near(p, _RADIUS, _K), points), near_floor),
            "within": (timed(lambda p: places.within(p, p + _SIDE), points), box_floor),
            "near, query": (
                timed(lambda p: places.near(p, k=_K, query=_QUERY), points),
                near_floor,
            ),
            "within, query": (
                timed(lambda p: places.within(p, p + _SIDE, query=_QUERY), points),
                box_floor,
            ),
            "observe": (timed(lambda p: places.observe("A new thing.", p), points), []),
        }
    return {**found, "first question": (first, rows_read(path)), "observe_many": ([written], [])}


def rows_read(path: Path) -> Samples:
    """Milliseconds that reading and decoding the same rows takes."""
    begun = perf_counter()
    with closing(sqlite3.connect(path)) as database:
        for (body,) in database.execute(
            "SELECT body FROM agent_memory_documents WHERE collection LIKE 'fact:%'"
        ):
            json.loads(body)
    return [(perf_counter() - begun) * 1e3]


def run(
    counts: Annotated[str, typer.Option(help="Numbers of observations.")] = "1000,10000,100000",
    questions: Annotated[int, typer.Option(min=1, help="Questions timed of each kind.")] = 300,
) -> None:
    """Time how places are found, beside looking at all of them."""
    console = Console()
    console.print(machine())
    table = Table("observations", "question", title="Finding places, ms")
    for column in ("p50", "p95", "floor", "p50 / floor"):
        table.add_column(column, justify="right")
    sizes = [int(count) for count in counts.split(",")]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("places", total=len(sizes))
        for count in sizes:
            with TemporaryDirectory() as folder:
                cells = measured(Path(folder), count, questions)
            for name, (taken, floor) in cells.items():
                p95 = sorted(taken)[min(len(taken) - 1, len(taken) * 95 // 100)]
                beside = f"{median(floor):.3f}" if floor else ""
                ratio = f"{median(taken) / median(floor):.2f}" if floor else ""
                table.add_row(
                    f"{count:,}", name, f"{median(taken):.3f}", f"{p95:.3f}", beside, ratio
                )
            table.add_section()
            progress.advance(task)
    console.print(table)


if __name__ == "__main__":
    typer.run(run)
