"""Ids: which are accepted, and how those of shared namespaces are distinguished."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.limits import (
    MAX_ID,
    MAX_SHARE,
    PAST_SHARED,
    OwnId,
    check_id,
    check_share,
    readable,
    share_of,
    shared_session,
    shared_user,
    visible_id,
)
from agent_memory.errors import InvalidId


def taken(check: Callable[..., object], *given: object) -> bool:
    try:
        check(*given)
    except InvalidId:
        return False
    return True


def texts(separators: str) -> st.SearchStrategy[str]:
    some = st.text(separators, max_size=3)
    return st.text(min_size=1, max_size=8) | st.builds("{}a{}".format, some, some)


NAMES = texts("a\x1d\x1f ").filter(lambda name: taken(check_share, name))
IDS = texts("a\x1d\x1e\x1f ").filter(lambda one: taken(check_id, "session_id", one))


@given(NAMES, IDS, NAMES, IDS)
def test_no_two_places_are_one(share: str, one: str, other: str, two: str) -> None:
    """Wrong: two sessions of different namespaces get one id, or a shared one gets a private id."""
    first, second = shared_session(share, one), shared_session(other, two)
    assert (first == second) == ((share, one) == (other, two))
    assert (share_of(first), visible_id(first)) == (share, one)
    assert share_of(shared_user(share)) == share
    assert first != one
    assert (share_of(one), visible_id(one)) == (None, one)
    assert readable(one) == one
    assert share in readable(first)
    assert one in readable(first)


@given(NAMES, IDS)
def test_only_the_library_makes_them(share: str, session_id: str) -> None:
    """Wrong: a caller reaches a shared namespace by the id that the store uses."""
    for made in (shared_session(share, session_id), shared_user(share)):
        assert taken(check_id, "session_id", made)
        assert not taken(check_id, "session_id", str(made))
        assert not taken(check_id, "session_id", made[:])
    assert not taken(shared_session, share, f"\x1e{session_id}")


@given(NAMES, IDS, IDS)
def test_shared_ones_lie_together(share: str, session_id: str, other: str) -> None:
    """Wrong: a page that skips shared sessions also skips others."""
    assert (other < shared_session(share, session_id)) or other > PAST_SHARED
    assert shared_session(share, session_id) < PAST_SHARED


@pytest.mark.parametrize(
    "name", ["", " ", "x" * (MAX_SHARE + 1), "a\x1eb", "\x1ea", "a\x00b", "\ud800", None, 7]
)
def test_an_ambiguous_namespace_name_is_refused(name: object) -> None:
    """Wrong: a name gives an ambiguous id, or one that a store cannot hold."""
    with pytest.raises(InvalidId, match=r"namespace"):
        check_share(name)


def test_ids_up_to_the_length_limit_are_accepted() -> None:
    """Wrong: an id within the limit is refused, or a database truncates one."""
    name = "n" * MAX_SHARE
    check_share(name)
    room = MAX_ID - MAX_SHARE - 2
    assert len(shared_session(name, "s" * room)) == MAX_ID
    with pytest.raises(InvalidId, match=f"limit is {room}"):
        shared_session(name, "s" * (room + 1))
    check_id("session_id", "s" * MAX_ID)
    assert not taken(check_id, "session_id", OwnId("s" * (MAX_ID + 1)))
