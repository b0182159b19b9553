"""Pure functions of the service."""

import json
import logging
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import AgentMemoryError, ConfigError, InvalidInput, errors
from agent_memory.server.credentials import (
    RIGHTS,
    Buckets,
    Limits,
    Principal,
    Tokens,
    checked_rights,
    checked_users,
    one_user,
)
from agent_memory.server.monitoring import JsonLines
from agent_memory.server.problems import Kind, Refused, problem_of

SHORT = st.text("ab*", min_size=1, max_size=3)
SECRET = "swordfish"


@given(users=st.lists(SHORT, min_size=1, max_size=3), named=st.none() | SHORT)
def test_a_credential_is_for_its_users_alone(users: list[str], named: str | None) -> None:
    """Wrong: a pattern admits a user whose id does not match, or refuses one whose id does."""
    try:
        whose = checked_users(users)
    except InvalidInput:
        assert any("*" in one[:-1] for one in users)
        return
    principal = Principal("k", whose, frozenset({"read"}))
    allowed = named is not None and any(
        named.startswith(one[:-1]) if one.endswith("*") else named == one for one in whose
    )
    own = one_user(whose)
    if allowed or (named is None and own is not None):
        assert principal.user(named) == (own if named is None else named)
    else:
        with pytest.raises(Refused) as refused:
            principal.user(named)
        assert refused.value.kind.status == (422 if named is None else 404)


@given(rights=st.lists(st.sampled_from([*RIGHTS, "root"])), users=st.sampled_from(["*", "ana"]))
def test_rights_are_granted_only_on_request(rights: list[str], users: str) -> None:
    """Wrong: a right is granted unasked, or "admin" to a credential for some users."""
    try:
        found = checked_rights(rights, (users,))
    except InvalidInput:
        assert not rights or "root" in rights or ("admin" in rights and users != "*")
        return
    assert found == set(rights)
    principal = Principal("k", (users,), found)
    for right in RIGHTS:
        if right in rights:
            principal.require(right)
        else:
            with pytest.raises(Refused):
                principal.require(right)


@given(gaps=st.lists(st.floats(0, 30), max_size=200))
def test_no_more_than_the_limit(gaps: list[float]) -> None:
    """Wrong: more requests pass than rate and burst allow, or one after the wait is refused."""
    limits = Limits(per_second=2, burst=5)
    buckets, now, let_in = Buckets(limits), 0.0, 0
    for gap in gaps:
        now += gap
        wait = buckets.wait("key", now)
        if wait:
            now += wait
            assert buckets.wait("key", now) == 0
        let_in += 1
    assert let_in <= limits.burst + limits.per_second * now + 1e-6


def _all_errors(kind: type[AgentMemoryError] = AgentMemoryError) -> list[type[AgentMemoryError]]:
    return [kind, *(one for each in kind.__subclasses__() for one in _all_errors(each))]


@pytest.mark.parametrize(
    "kind", [one for one in _all_errors() if one.__module__ == errors.__name__]
)
def test_each_error_has_a_problem_without_internal_text(kind: type[AgentMemoryError]) -> None:
    """Wrong: one of our errors becomes a bare 500, or an internal error's text reaches a client."""
    error = kind.__new__(kind)
    error.args = (SECRET,)
    problem = problem_of(error)
    assert problem.kind in Kind
    assert problem.kind is not Kind.BROKEN or kind is AgentMemoryError
    told = json.dumps(problem.body())
    ours = issubclass(kind, InvalidInput | ConfigError | errors.UnsupportedOperation)
    assert (SECRET in told) == (ours or kind is errors.ModelRequired)
    assert problem.detail


def test_an_unexpected_error_becomes_status_500_without_its_text() -> None:
    """Wrong: a driver's error text reaches a client."""
    for error in (RuntimeError(SECRET), KeyError(SECRET), OSError(SECRET)):
        assert SECRET not in json.dumps(problem_of(error).body())
        assert problem_of(error).kind.status == 500
    assert len({kind.type for kind in Kind}) == len(Kind)


def test_log_lines_contain_no_text_of_users() -> None:
    """Wrong: a log line contains text of a record, a request or a driver's error."""
    try:
        raise ValueError(SECRET)
    except ValueError:
        info = sys.exc_info()
    line = JsonLines()
    for name, told in (("agent_memory.engine.x", "it failed: %s"), ("sqlalchemy", "%s")):
        record = logging.LogRecord(name, logging.ERROR, "f", 1, told, (SECRET,), info)
        written = line.format(record)
        assert SECRET not in written
        assert json.loads(written)["error"] == "builtins.ValueError"
        assert "\n" not in written


@pytest.mark.parametrize(
    ("url", "issuer", "audience", "rights"),
    [
        ("http://evil.example/keys", "i", "a", ["read"]),
        ("file:///etc/passwd", "i", "a", ["read"]),
        ("https:///keys", "i", "a", ["read"]),
        ("https://i.example/keys", "", "a", ["read"]),
        ("https://i.example/keys", "i", "", ["read"]),
        ("https://i.example/keys", "i", "a", ["admin"]),
        ("https://i.example/keys", "i", "a", []),
    ],
)
def test_an_insecure_issuer_is_refused(url: str, issuer: str, audience: str, rights: Any) -> None:
    """Wrong: an issuer whose keys can be replaced on the network is accepted."""
    with pytest.raises((ConfigError, InvalidInput)):
        Tokens(url, issuer, audience, "sub", rights)
