"""Whose turn it is, among any users and sessions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_memory.engine.processing.worker import FairQueue

USERS = ["ann", "bob", "cas", "dan"]
SESSIONS = [f"{user}-{n}" for user in USERS for n in range(5)]
STEPS = st.lists(st.sampled_from(SESSIONS) | st.none(), max_size=60)
"""Sessions that are added, in order; None takes one."""


def owner(session: str) -> str:
    return session.split("-")[0]


@given(STEPS)
def test_a_model(steps: list[str | None]) -> None:
    """Wrong: a session waits twice, is lost, is another user's, or passes one of its own user's."""
    queue, waiting = FairQueue(), list[str]()
    for session in steps:
        if session is not None:
            queue.add(session, owner(session))
            waiting += [session] if session not in waiting else []
        else:
            taken = queue.take()
            assert (taken is None) == (not waiting)
            if taken:
                first = next(one for one in waiting if owner(one) == taken[1])
                assert taken == (first, owner(first))
                waiting.remove(first)
        assert sorted(queue) == sorted(waiting)
        assert len(queue) == len(waiting)
        assert bool(queue) == bool(waiting)


@given(STEPS)
def test_nobody_waits_for_more_than_the_other_users(steps: list[str | None]) -> None:
    """Wrong: a user with many sessions, or who adds one after the other, delays those of others."""
    queue, takes = FairQueue(), 0
    waiting: list[str] = []
    latest: dict[str, int] = {}
    for session in [*steps, *[None] * len(SESSIONS)]:
        if session is not None:
            queue.add(session, owner(session))
            if session not in waiting:
                waiting.append(session)
                place = sum(owner(one) == owner(session) for one in waiting)
                if place == 1:  # others who come later come later
                    latest[session] = takes + len({owner(one) for one in waiting})
                else:
                    latest[session] = takes + place * len(USERS)
        elif taken := queue.take():
            takes += 1
            waiting.remove(taken[0])
            assert takes <= latest.pop(taken[0])
    assert not waiting


@given(st.integers(1, 50), st.integers(1, 10))
def test_a_crowd_and_a_few(crowd: int, few: int) -> None:
    """Wrong: who comes with fifty sessions is served before who comes with one."""
    queue = FairQueue()
    for n in range(crowd):
        queue.add(f"crowd-{n}", "crowd")
    for n in range(few):
        queue.add(f"few-{n}", f"few {n}")
    order = [taken[0] for _ in range(crowd + few) if (taken := queue.take())]
    assert order[: few + 1] == ["crowd-0", *(f"few-{n}" for n in range(few))]
    assert order[few + 1 :] == [f"crowd-{n}" for n in range(1, crowd)]
    assert queue.take() is None


def test_who_waits_keeps_the_place() -> None:
    """Wrong: a session that changes hands, or is woken again, loses its place or waits twice."""
    queue = FairQueue()
    queue.add("s", "session:s")
    queue.add("t", "user:ann")
    queue.add("s", "user:bob")
    assert [queue.take(), queue.take(), queue.take()] == [
        ("s", "session:s"),
        ("t", "user:ann"),
        None,
    ]
