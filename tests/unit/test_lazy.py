"""Values that are made on first use."""

import threading
from dataclasses import dataclass

from agent_memory.core.lazy import made_once


@dataclass(frozen=True)
class _Made:
    size: int

    @made_once
    def items(self) -> list[int]:
        """So many."""
        return [0] * self.size


def test_it_is_made_when_it_is_read_and_kept() -> None:
    """Wrong: each read makes a new value, or all objects share one."""
    one, other = _Made(2), _Made(3)
    assert one.__dict__ == {"size": 2}
    assert one.items is one.items
    assert (len(one.items), len(other.items)) == (2, 3)
    assert _Made.items.__doc__ == "So many."


def test_one_that_is_being_made_keeps_no_other_waiting() -> None:
    """Wrong: making one object's value blocks another object."""
    making, go_on = threading.Event(), threading.Event()

    class Slow:
        is_slow = False

        @made_once
        def value(self) -> bool:
            if self.is_slow:
                making.set()
                assert go_on.wait(30)
            return self.is_slow

    slow, quick = Slow(), Slow()
    slow.is_slow = True
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    try:
        assert making.wait(30)
        assert quick.value is False
    finally:
        go_on.set()
        thread.join()
    assert slow.value is True
