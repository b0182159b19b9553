"""Processes that start quickly, report over a pipe, and may be killed."""

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from time import sleep
from typing import Any

_PATIENCE = 180.0
_lock = threading.Lock()
"""`Process.start` also polls all other processes. Without the lock, `join` may miss a result."""


class Hung(Exception):
    """A process sent no message for minutes, and was killed."""


class Child:
    """A process forked from a server process that has done all imports.

    `target` is called with the other arguments and with its end of the pipe.
    """

    def __init__(self, target: Callable[..., None], *args: object) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["benchmarks.durability.warm"])
        self._pipe, its = context.Pipe()
        self._process = context.Process(target=target, args=(*args, its))
        with _lock:
            self._process.start()
        its.close()

    def go(self) -> None:
        """Send a message, for which the process waits."""
        self._pipe.send(None)

    def messages(self, kill: tuple[int, float] | None = None) -> Iterator[Any]:
        """Yield the process's messages until it ends. Raise `Hung` after minutes of silence.

        With `kill`, the process is killed some seconds after a number of messages.
        """
        heard = 0
        with self._pipe:
            while True:
                if kill and heard == kill[0]:
                    sleep(kill[1])
                    self._process.kill()
                    kill = None
                if not self._pipe.poll(_PATIENCE):
                    self._process.kill()
                    raise Hung(f"nothing for {_PATIENCE:g} s, after {heard} messages")
                try:
                    message = self._pipe.recv()
                except (EOFError, OSError):  # OSError: it was killed within a message
                    break
                heard += 1
                yield message
        with _lock:
            self._process.join()

    @property
    def exit_code(self) -> int | None:
        """The exit code, or minus the number of the signal that killed the process."""
        return self._process.exitcode
