"""What becomes of calls to blocks: their threads go by the block's name until they end."""

import threading

from tests.kit import until


def running(name: str) -> int:
    """How many calls to a block run now."""
    return sum(thread.name == f"block-{name}" for thread in threading.enumerate())


def wait_for_calls(name: str) -> None:
    """Wait until no call to a block runs any more, abandoned ones included."""
    until(lambda: not running(name))
