"""Updates on SQLite for a while, for a profiler to watch.

py-spy record --rate 500 --output update.svg -- python -m benchmarks.hot
python -m benchmarks.hot --threads 8 --durability power
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import typer

from agent_memory import AgentMemory
from benchmarks.messages import chats


def run(
    seconds: float = 10.0, budget: int = 10**9, threads: int = 1, durability: str = "process"
) -> None:
    """Append messages of 60 tokens, each thread to a session of its own; print how many."""
    texts = chats(0, 1_000)
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'm.db').as_posix()}"
        with AgentMemory(store=url, max_tokens=budget, durability=durability) as memory:
            until = monotonic() + seconds

            def work(thread: int) -> int:
                number = 0
                while monotonic() < until:
                    memory.update(f"s{thread}", texts[number % len(texts)])
                    number += 1
                return number

            if threads == 1:
                number = work(0)
            else:
                with ThreadPoolExecutor(threads) as pool:
                    number = sum(pool.map(work, range(threads)))
    print(f"{number:,} updates in {seconds:g} s")


if __name__ == "__main__":
    typer.run(run)
