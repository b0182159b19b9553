"""Whose turn it is among the sessions that are due."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.records import Head, Scope, empty_head
from agent_memory.stores.log import fairly

_BEGUN = datetime(2024, 1, 1, tzinfo=UTC)
_USERS = st.sampled_from([None, None, "a", "b", "0", "1"])  # some have the name of a session


@given(st.lists(st.tuples(st.integers(0, 9), _USERS), max_size=25))
def test_each_owner_has_a_turn_before_any_has_another(drawn: list[tuple[int, str | None]]) -> None:
    """Wrong: who has many sessions keeps others waiting, or who waits longest comes last."""
    since = {str(n): at for n, (at, _) in enumerate(drawn)}
    heads = [empty_head(str(n), user, _BEGUN) for n, (_, user) in enumerate(drawn)]
    order = fairly((since[head.session_id], head) for head in heads)

    def owner(head: Head) -> str:
        return Scope(head.user_id, head.session_id).owner

    assert sorted(order, key=heads.index) == heads
    turns: Counter[str] = Counter()
    keys = []
    for head in order:
        keys.append((turns[owner(head)], since[head.session_id]))
        turns[owner(head)] += 1
    assert keys == sorted(keys)
    for name in turns:
        mine = [since[head.session_id] for head in order if owner(head) == name]
        assert mine == sorted(mine)
