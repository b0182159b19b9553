"""When what failed is tried again."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.engine.backoff import LONGEST_REST, Backoff


def test_rests_grow_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an outage slows every call, or is never found to be over."""
    clock = [0.0]
    monkeypatch.setattr("agent_memory.engine.backoff.monotonic", lambda: clock[0])
    rests = Backoff()
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


NAMES = ["x", "y", ("x", "s")]


@given(
    st.lists(
        st.tuples(st.sampled_from(["failed", "worked", "passes"]), st.sampled_from(NAMES))
        | st.tuples(st.just("passes"), st.floats(0, 500)),
        max_size=60,
    )
)
def test_a_model(steps: list[tuple[str, object]]) -> None:
    """Wrong: names rest for each other, a rest ends early or never, or a success is not enough."""
    clock, failures = 1000.0, Counter[object]()
    until: dict[object, float] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent_memory.engine.backoff.monotonic", lambda: clock)
        rests = Backoff()
        for step, what in steps:
            if step == "failed":
                rests.failed(what)
                failures[what] += 1
                if failures[what] > 1:
                    until[what] = clock + min(2.0 ** failures[what], LONGEST_REST)
            elif step == "worked":
                rests.succeeded(what)
                del failures[what]
                until.pop(what, None)
            elif isinstance(what, float):
                clock += what
            left = {name: max(0.0, until.get(name, 0.0) - clock) for name in NAMES}
            for name in NAMES:
                assert rests.seconds(name) == left[name] <= LONGEST_REST
                assert rests.ready(name) == (left[name] == 0)
                assert rests.idle(name) == (failures[name] == 0)
            assert rests.seconds(*NAMES) == max(left.values())
            assert rests.ready(*NAMES) == (max(left.values()) == 0)


def test_a_long_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: after a thousand failures the rest can't be computed any more, or is forgotten."""
    monkeypatch.setattr("agent_memory.engine.backoff.monotonic", lambda: 0.0)
    rests = Backoff()
    for _ in range(2000):
        rests.failed("x")
    assert rests.seconds("x") == LONGEST_REST
