"""Reading of a model's stream, safe from exceptions raised by signal handlers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from agent_memory.core.threads import apart

_END = object()


class Reading(Iterator[Any]):
    """The chunks of a litellm stream.

    litellm and the HTTP client hold locks. An exception of a signal handler in the middle of a step
    would leave them locked forever. The main thread therefore runs each step on another thread.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        _let_go_quietly(stream)
        self._lock = threading.Lock()
        self._stopped = False

    def __next__(self) -> Any:
        chunk = self._step()
        if chunk is _END:
            raise StopIteration
        return chunk

    @apart
    def _step(self) -> Any:
        try:
            with self._lock:
                return _END if self._stopped else next(self.stream, _END)
        finally:  # outside the lock: a concurrent `close` leaves hanging up to this step
            if self._stopped:
                self._hang_up()

    @apart
    def close(self) -> None:
        """Close the connection. A step under way closes it when it ends."""
        self._stopped = True
        self._hang_up()

    def _hang_up(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                close = getattr(self.stream.completion_stream, "close", None)
                if close is not None:
                    close()
            finally:
                self._lock.release()


def _let_go_quietly(stream: Any) -> None:
    """Disable a stream's finalizer.

    litellm's `CustomStreamWrapper.__del__` sets context variables. Before Python 3.12 the garbage
    collector may run while one is being set, and a finalizer that sets another then crashes the
    process (python/cpython#148891). A synchronous stream has nothing to restore there.
    """
    logged = getattr(stream, "logging_obj", None)
    if logged is not None:
        logged._restore_correlation_context_if_unclaimed = None
