"""What becomes of calls to blocks: their threads go by the block's name until they end."""

from __future__ import annotations

import threading
import time

SECONDS = 60.0
"""Most time for what ought to take a moment; a busy machine has that."""


def running(name: str) -> int:
    """How many calls to a block run now."""
    return sum(thread.name == f"block-{name}" for thread in threading.enumerate())


def wait_for_calls(name: str) -> None:
    """Wait until no call to a block runs any more, abandoned ones included."""
    deadline = time.monotonic() + SECONDS
    while running(name):
        assert time.monotonic() < deadline
        time.sleep(0.002)
