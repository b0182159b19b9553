"""A model's stream that is stopped while another thread reads it."""

from collections.abc import Iterator
from typing import Any

from agent_memory.models.llm import Reading


class _Stream:
    """A stream like litellm's that counts how often its connection was closed."""

    def __init__(self) -> None:
        self.completion_stream = self
        self.closed = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return "chunk"

    def close(self) -> None:
        self.closed += 1


class _Late:
    """A lock whose stream is closed by another thread just before its release."""

    def __init__(self, lock: Any, reading: Reading) -> None:
        self._lock, self._reading = lock, reading
        self.acquire, self.release = lock.acquire, lock.release

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._reading.close()
        self._lock.release()


def test_a_stopped_reader_leaves_no_connection() -> None:
    """Wrong: a stream that is stopped during a read is closed by neither thread."""
    stream = _Stream()
    reading = Reading(stream)
    reading._lock = _Late(reading._lock, reading)  # type: ignore[assignment]
    assert next(reading) == "chunk"
    assert stream.closed == 1
    stream = _Stream()
    reading = Reading(stream)
    assert next(reading) == "chunk"
    reading.close()
    assert list(reading) == []
    assert stream.closed >= 1
