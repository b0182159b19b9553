"""The queue of appends: calls that wait at the same time run as one batch."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from agent_memory.engine.append import AppendQueue

SECONDS = 20.0


class Batches:
    """Runs calls, each batch only when `release` is called. `begun` gets each batch."""

    def __init__(self) -> None:
        self.begun: SimpleQueue[list[str]] = SimpleQueue()
        self._turns = threading.Semaphore(0)
        self.queue = AppendQueue[str, str](lambda job: self._run([job])[0], self._run)

    def _run(self, jobs: Sequence[str]) -> Sequence[str]:
        self.begun.put(sorted(jobs))
        assert self._turns.acquire(timeout=SECONDS)
        return [job.upper() for job in jobs]

    def release(self) -> None:
        self._turns.release()

    def wait_for(self, count: int) -> None:
        while len(self.queue._pending) < count:
            threading.Event().wait(0.001)


def test_more_calls_than_fit_a_batch_all_run() -> None:
    batches = Batches()
    with ThreadPoolExecutor(81) as pool:
        first = pool.submit(batches.queue.run, "first")
        batches.begun.get(timeout=SECONDS)
        calls = [pool.submit(batches.queue.run, str(number)) for number in range(80)]
        batches.wait_for(80)
        for _ in range(4):
            batches.release()
        assert [call.result(SECONDS) for call in [first, *calls]] == [
            "FIRST", *map(str, range(80)),
        ]  # fmt: skip
        assert [len(batches.begun.get(timeout=SECONDS)) for _ in range(3)] == [32, 32, 16]
