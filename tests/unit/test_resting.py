"""When what failed is tried again."""

from __future__ import annotations

import pytest

from agent_memory.engine.resting import LONGEST_REST, Rests


def test_rests_grow_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an outage slows every call, or is never found to be over."""
    clock = [0.0]
    monkeypatch.setattr("agent_memory.engine.resting.monotonic", lambda: clock[0])
    rests = Rests()
    assert rests.idle("x")
    rests.failed("x")
    assert (rests.ready("x"), rests.idle("x")) == (True, False)
    for expected in (4, 8, 16, 32, 64, 128, 256, LONGEST_REST, LONGEST_REST):
        rests.failed("x")
        clock[0] += expected - 0.5
        assert not rests.ready("x")
        assert rests.ready("y")
        clock[0] += 0.5
        assert rests.ready("x")
    rests.failed("x")
    rests.succeeded("x")
    assert (rests.ready("x"), rests.idle("x")) == (True, True)
