"""A model's stream, read so that no exception of a signal can tear what litellm does meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from agent_memory.core.threads import apart

_END = object()


class Reading(Iterator[Any]):
    """The chunks of a stream that litellm gave.

    litellm and the HTTP client have locks of their own, which an exception in the middle of a step
    leaves held for ever. So the main thread leaves each step to another one.

    Args:
        stream: The stream.

    Attributes:
        stream: The same.
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
        finally:  # not under the lock: whoever stops it meanwhile leaves the rest to this
            if self._stopped:
                self._hang_up()

    @apart
    def close(self) -> None:
        """Close the connection, however far it was read; a step under way does it at its end."""
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
    """Have a stream's finalizer do nothing.

    litellm's `CustomStreamWrapper.__del__` sets context variables. Before Python 3.12 the collector
    runs in the middle of setting one, and the process dies where a finalizer sets another then
    (python/cpython#148891). Of a stream that is not async there is nothing for it to put back.
    """
    logged = getattr(stream, "logging_obj", None)
    if logged is not None:
        logged._restore_correlation_context_if_unclaimed = None
