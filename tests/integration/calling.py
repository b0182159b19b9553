"""Find the threads of calls to blocks: each is named after its block until the call ends."""

import threading

from tests.kit import until


def running(name: str) -> int:
    return sum(thread.name == f"block-{name}" for thread in threading.enumerate())


def wait_for_calls(name: str) -> None:
    """Wait until no call to a block runs, abandoned ones included."""
    until(lambda: not running(name))
