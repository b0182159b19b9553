"""Access to the service: every call with every kind of credential."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.client.calls import CALLS
from agent_memory.server.calls import OPERATIONS
from agent_memory.server.credentials import RIGHTS
from agent_memory.server.operation import Operation
from tests.integration.serving import BY_NAME, Answer, Service, fill, request_of, sample, serving

OF_USER = [one for one in OPERATIONS if one.of_user]
NAMES = [one.name for one in OPERATIONS]
IDS = ("session_id", "note_id", "fact_id", "path", "name", "observation_id", "share")
BEGINNING = {"stream_turn", "replace_log", *(one.name for one in CALLS if one.access == "write")}
"""Calls that begin a session: of one that does not exist they make one."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two users with data of every kind. The calls of these tests change none of it."""
    with serving(tmp_path_factory.mktemp("service")) as service:
        fill(service)
        yield service


@pytest.mark.parametrize("name", NAMES)
def test_a_call_without_a_valid_credential_gets_401(service: Service, name: str) -> None:
    """Wrong: a call succeeds without a valid credential, or the answer says why it is invalid."""
    valid = service.key("ana")
    revoked = service.key("ana")
    service.ring.revoke(revoked[:15])
    over = service.ring.create("over", ["ana"], ["read"], ttl=timedelta(microseconds=1))[0]
    last = "A" if valid[-1] != "A" else "B"
    shown: list[list[tuple[str, str]]] = [
        [], [("Authorization", "")], [("Authorization", "Bearer")],
        [("Authorization", f"Basic {valid}")], [("Authorization", valid)],
        [("Authorization", f"Bearer {valid[:-1]}{last}")],
        [("Authorization", f"Bearer {valid[:-1]}")], [("Authorization", f"Bearer {valid[:15]}")],
        [("Authorization", f"Bearer am_{'0' * 12}_{valid[16:]}")],
        [("Authorization", f"Bearer {revoked}")], [("Authorization", f"Bearer {over}")],
        [("Authorization", "Bearer a.b.c")], [("Authorization", "Bearer \u00fc")],
        [("Authorization", f"Bearer {'x' * 9_000}")],
        [("Authorization", f"Bearer {valid}"), ("Authorization", f"Bearer {valid}")],
        [("Authorization", f"Bearer {valid}"), ("X-API-Key", valid)], [("X-API-Key", revoked)],
        [("Cookie", valid)],
    ]  # fmt: skip
    method, path, _ = request_of(BY_NAME[name], sample(service, name, "ana"))
    told = {_same(service.raw(method, path, headers)) for headers in shown}
    assert len(told) == 1
    assert next(iter(told))[0] == 401
    elsewhere = service.raw(method, f"{path}{'&' if '?' in path else '?'}key={valid}", [])
    assert elsewhere.status == 401


@pytest.mark.parametrize("name", [one.name for one in OPERATIONS if one.needs is not None])
def test_a_call_without_its_right_is_forbidden(service: Service, name: str) -> None:
    """Wrong: a key without the right for a call may make it."""
    needs = BY_NAME[name].needs
    others = [right for right in RIGHTS if right != needs]
    user = "ana" if BY_NAME[name].of_user else None
    for rights in (" ".join(others), *others):
        key = service.key("*", rights=rights)
        answer = service.call(name, key, sample(service, name, "ana"), user=user)
        assert (answer.status, answer.problem) == (403, "forbidden")
    assert _changed_nothing(service)


@pytest.mark.parametrize("name", ["call_tool", "take_turn", "stream_turn", "get_value"])
def test_calls_that_return_stored_content_need_the_read_right(service: Service, name: str) -> None:
    """Wrong: a key that may only write gets stored content, from a tool, a model or a value."""
    key = service.key("ana", rights="write delete")
    answer = service.call(name, key, sample(service, name, "ana"))
    assert (answer.status, answer.problem) == (403, "forbidden")
    assert "read" in answer.body.decode()


def test_only_a_refresh_of_a_value_needs_write(service: Service) -> None:
    """Wrong: a key that may only read gets no value, or postpones when a value expires."""
    key, given = service.key("ana", rights="read"), sample(service, "get_value", "ana")
    assert service.call("get_value", key, given).problem == "not-found"
    answer = service.call("get_value", key, {**given, "refresh": True})
    assert (answer.status, answer.problem) == (403, "forbidden")


@pytest.mark.parametrize("operation", OF_USER, ids=lambda one: one.name)
def test_a_request_cannot_name_another_user(service: Service, operation: Operation) -> None:
    """Wrong: a request that names another user succeeds, or shows whether that user exists."""
    given = sample(service, operation.name, "ana")
    for users in (["ben"], ["ben", "cleo"], ["be*"], ["an", "anaa*"]):
        key = service.key(*users)
        told = set()
        for user in ("ana", "nobody-of-that-name"):
            told.add(_same(service.call(operation.name, key, given, user=user)))
        assert len(told) == 1
        assert next(iter(told))[0] == 404
    several = service.call(operation.name, service.key("be*"), given)
    assert (several.status, several.problem) == (422, "invalid-request")
    twice = request_of(operation, given, "ben")
    answer = service.ask(twice[0], f"{twice[1]}&user_id=ana", service.key("ben"), twice[2])
    assert answer.status == 422
    body = service.call(operation.name, service.key("ben"), {**given, "user_id": "ana"})
    assert body.status in (404, 422)
    assert b"anacanary" not in body.body
    assert _changed_nothing(service)


@pytest.mark.parametrize("operation", OF_USER, ids=lambda one: one.name)
def test_another_users_ids_look_like_missing_ids(service: Service, operation: Operation) -> None:
    """Wrong: status or body show whether another user's id exists."""
    theirs = sample(service, operation.name, "ana")
    key = service.key("ben")
    for field in [name for name in IDS if name in theirs]:
        for foreign in (theirs[field], "s-nobody" if field == "session_id" else theirs[field]):
            absent = f"{foreign[:-2]}zz" if field != "path" else "/memories/zzz.md"
            there = service.call(operation.name, key, {**theirs, field: foreign})
            assert b"canary" not in there.body.replace(b"bencanary", b"")
            if operation.name in BEGINNING or (operation.name, field) in _OWN_NAMES:
                continue
            nowhere = service.call(operation.name, key, {**theirs, field: absent})
            assert _same(there) == _same(nowhere), field
    if operation.name in BEGINNING:
        assert service.call(operation.name, key, theirs).problem == "not-found"
    if operation.name in ("write_file", "create_file"):
        service.memory.user("ben").files().delete(theirs["path"])
    if operation.name == "save_skill":
        service.memory.user("ben").skills().delete(theirs["name"])
    assert _changed_nothing(service)


ASKED = st.tuples(
    st.sampled_from(OF_USER),
    st.sampled_from(["ben", "be*", "read ben", "none"]),
    st.sampled_from([None, "ana", "ben", "cleo", "an*", "*", "\x1eshare-ana", "", "ana\x00"]),
    st.dictionaries(st.sampled_from(IDS), st.sampled_from(["ana", "ben", "none"])),
)


@given(asked=st.lists(ASKED, min_size=1, max_size=6))
def test_no_request_shows_or_changes_another_users_data(service: Service, asked: list[Any]) -> None:
    """Wrong: a mix of credential, user and ids shows or changes another user's data."""
    for operation, holder, named, ids in asked:
        if operation.name == "delete_user":
            continue
        rights = "read" if holder.startswith("read") else "read write delete"
        key = None if holder == "none" else service.key(holder.split()[-1], rights=rights)
        given = sample(service, operation.name, "ben")
        for field, whose in ids.items():
            if field in given:
                given[field] = {"none": "nowhere"}.get(whose, service.ids.get(whose, {}).get(field))
        answer = service.call(operation.name, key, given, user=named)
        assert b"anacanary" not in answer.body
        assert answer.status != 500
    assert _changed_nothing(service)


def test_the_admin_right_needs_a_key_for_all_users(service: Service) -> None:
    """Wrong: a key for some users may administer the service, or an admin key reads sessions."""
    with pytest.raises(ValueError, match="as the users"):
        service.key("ana", rights="admin")
    key = service.key("*", rights="admin")
    assert service.call("read_stats", key).status == 200
    assert service.call("list_sessions", key, user="ana").problem == "forbidden"
    assert service.call("read_stats", key, user="ana").problem == "invalid-request"


def test_a_revoked_key_gets_401_immediately(service: Service) -> None:
    """Wrong: a revoked key is accepted until a restart, or gets another answer than 401."""
    token, key = service.ring.create("soon over", ["ana"], ["read", "write"])
    assert service.call("list_sessions", token).status == 200
    good = {"session_id": "s-ana", "metadata": {"title": "anacanary"}}
    assert service.call("describe_session", token, good).status == 200
    service.ring.revoke(key.prefix)
    for name, asked in (("list_sessions", {}), ("describe_session", {**good, "metadata": 1})):
        assert service.call(name, token, asked).status == 401
    assert [one.used_at is not None for one in service.ring.all() if one == key] in ([True], [])


_OWN_NAMES = {
    ("write_file", "path"), ("create_file", "path"), ("save_skill", "name"), ("call_tool", "name"),
}  # fmt: skip


def _same(answer: Answer) -> tuple[Any, ...]:
    """Return what must not differ of an answer: no ids, times or last digits of scores."""
    alone = ("x-request-id", "content-length")
    headers = {name: value for name, value in answer.headers.items() if name not in alone}
    body = re.sub(r'(_messages":\[\{[^]]*"created_at":)"[^"]*"', r"\1now", answer.body.decode())
    body = re.sub(r"\d\.\d{6,}", lambda found: f"{float(found[0]):.4f}", body)
    return answer.status, body, tuple(sorted(headers.items()))


def _changed_nothing(service: Service) -> bool:
    """Return whether Ana's data is unchanged."""
    ana, ids = service.memory.user("ana"), service.ids["ana"]
    [entry] = service.memory.history("s-ana", user_id="ana")
    assert entry.message.content == "The anacanary lives in Lisbon."
    head = service.memory.head("s-ana", user_id="ana")
    assert head.metadata == {"title": "anacanary"}
    assert [note.text for note in ana.notes().all()] == ["anacanary note"]
    assert ana.files().paths() == [ids["path"]]
    assert ana.skills().load("skill-ana") is not None
    assert [one.id for one in ana.spatial().all()] == [ids["observation_id"]]
    assert [one.id for one in ana.facts()] == [ids["fact_id"]]
    assert service.memory.share("share-ana").agents() == {"ana": "write"}
    [nobodys] = service.memory.history("s-nobody")
    assert nobodys.message.content == "the nobodycanary"
    head = service.memory.head("s-nobody")
    assert head.user_id is None
    return True
