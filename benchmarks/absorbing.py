"""What absorbing costs: `python -m benchmarks.absorbing`.

Beside the embedder alone, and of several blocks beside one. Needs the extra `local`. Medians of the
rounds, which take the works in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from agent_memory import AgentMemory, Block, Entry, Message, Recall, VectorMemory
from agent_memory.core.records import Scope
from agent_memory.models.embedders import open_embedder
from benchmarks.messages import chats

_BATCH = 100


class Waiting(Block):
    """A block that waits for a model, which takes so long for each batch.

    Attributes:
        seconds: How long.
    """

    kind: str = "waiting"
    seconds: float

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        sleep(self.seconds)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return []

    def delete(self, scope: Scope) -> None:
        """Nothing is kept."""


def run(
    sessions: Annotated[int, typer.Option(min=1)] = 20,
    messages: Annotated[int, typer.Option(min=1, help="In each session.")] = 200,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    seconds: Annotated[float, typer.Option(help="What the waiting model takes.")] = 0.05,
) -> None:
    """Measure and print a table."""
    texts = [chat["content"] for chat in chats(0, sessions * messages)]
    waiting = [Waiting(name=f"w{n}", seconds=seconds) for n in range(3)]
    works: dict[str, Callable[[], float]] = {
        "the embedder alone": lambda: _embedding(texts),
        "VectorMemory": lambda: _flushing(texts, messages, [VectorMemory()]),
        f"a block that waits {seconds:g} s a batch": lambda: _flushing(
            texts, messages, waiting[:1]
        ),
        "three of these": lambda: _flushing(texts, messages, waiting),
    }
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in track(range(rounds), description="rounds"):
        for name, work in works.items():
            taken[name].append(work())
    table = Table("absorbing", "messages/s", "to the one above", title=f"{len(texts):,} messages")
    above: list[float] | None = None
    for name, found in taken.items():
        ratio = median(a / b for a, b in zip(found, above, strict=True)) if above else 1.0
        shown = f"{ratio:.2f}x the time" if above else ""
        table.add_row(name, f"{len(texts) / median(found):,.0f}", shown)
        above = found
    Console().print(table)


def _embedding(texts: Sequence[str]) -> float:
    """Seconds for all texts, in batches as blocks get them; nothing comes from the cache."""
    embedder = open_embedder(None)
    embedder.embed(["warm"])
    begun = perf_counter()
    for start in range(0, len(texts), _BATCH):
        embedder.embed(texts[start : start + _BATCH])
    return perf_counter() - begun


def _flushing(texts: Sequence[str], messages: int, blocks: Sequence[Block]) -> float:
    """Seconds for a flush of sessions of so many messages each."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'm.db').as_posix()}"
        with AgentMemory(store=url, max_tokens=10**9, blocks=blocks) as memory:
            for number, start in enumerate(range(0, len(texts), messages)):
                said = [{"role": "user", "content": text} for text in texts[start:][:messages]]
                memory.update(f"s{number}", said, user_id=f"u{number}")
            memory.search("warm", user_id="u0")  # loads the embedder
            begun = perf_counter()
            done = memory.flush()
            took = perf_counter() - begun
            if any(one.error for one in done) or any(b.lag for b in memory.stats().blocks.values()):
                raise RuntimeError(f"Not all was absorbed: {done}.")
            return took


if __name__ == "__main__":
    typer.run(run)
