"""Updates on SQLite for a while, for a profiler to watch.

py-spy record --rate 500 --output update.svg -- python -m benchmarks.hot
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import typer

from agent_memory import AgentMemory
from benchmarks.messages import chats


def run(seconds: float = 10.0, budget: int = 10**9) -> None:
    """Append messages of 60 tokens to one session; print how many."""
    texts = chats(0, 1_000)
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'm.db').as_posix()}"
        with AgentMemory(store=url, max_tokens=budget) as memory:
            until = monotonic() + seconds
            number = 0
            while monotonic() < until:
                memory.update("s", texts[number % len(texts)])
                number += 1
    print(f"{number:,} updates in {seconds:g} s")


if __name__ == "__main__":
    typer.run(run)
