"""The service: each request is carried out once, and appends at the same time are batched."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.aio import THREADS
from agent_memory.server.calls import OPERATIONS
from agent_memory.server.credentials import Limits
from agent_memory.testing import FakeLLM
from tests.integration.serving import (
    BY_NAME,
    Answer,
    Service,
    fill,
    request_of,
    sample,
    serving,
    unanswered,
)
from tests.kit import user as said


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path) as service:
        fill(service)
        yield service


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that all examples of a property write to."""
    folder = tmp_path_factory.mktemp("once")
    with serving(folder, store=f"sqlite:///{folder}/m.db") as service:
        yield service


TRIES = st.lists(st.sampled_from(["whole", "cut", "unheard"]), max_size=5)
WRITES = st.lists(
    st.tuples(st.sampled_from(["key", "id", "both"]), TRIES, st.integers(1, 3)),
    min_size=1,
    max_size=5,
)
_sessions = iter(range(1_000_000))


@given(writes=WRITES)
def test_each_write_is_done_once(lasting: Service, writes: list[Any]) -> None:
    """Wrong: a retry after a lost or cut request is stored twice."""
    session, key = f"s-{next(_sessions)}", lasting.key("ana")
    wanted = []
    for number, (way, tries, count) in enumerate(writes):
        messages = [said(f"{number} {one}") for one in range(count)]
        headers = {"Idempotency_Key": f"w{number}"} if way != "id" else {}
        if way != "key":
            messages = [{**one, "id": f"{number}-{at}"} for at, one in enumerate(messages)]
        given = {"session_id": session, "messages": messages}
        ends = set()
        for how in [*tries, "whole"]:
            if how == "cut":
                method, path, body = request_of(BY_NAME["append_messages"], given)
                half = json.dumps(body).encode()[: 10 + number]
                shown = [("Authorization", f"Bearer {key}")]
                assert lasting.raw(method, path, shown, half, leaves=True).status == 0
            else:
                answer = lasting.call("append_messages", key, given, **headers)
                assert answer.status == 200
                ends.add(answer.json["end"])
        wanted += messages
        assert ends == {len(wanted)}
    log = lasting.call("list_messages", key, {"session_id": session}).json["messages"]
    assert [one["message"] for one in log] == wanted
    assert [one["seq"] for one in log] == list(range(1, len(wanted) + 1))


ONCE = [one.name for one in BY_NAME.values() if one.keyed]
OTHER: dict[str, dict[str, Any]] = {
    "append_messages": {"messages": [said("other")]},
    "append_shared": {"messages": [said("other")]}, "after_turn": {"answer": "Other."},
    "take_turn": {"message": "turn: other"}, "stream_turn": {"message": "turn: other"},
    "write_note": {"text": "Other."}, "observe": {"text": "other"},
    "finish_shared": {"answer": "Other."}, "take_shared": {"message": "turn: other"},
    "call_tool": {"arguments": {"text": "Other."}},
}  # fmt: skip
FIRST = {"call_tool": {"name": "memory_write", "arguments": {"text": "Likes tea."}}}
"""For calls whose sample writes nothing."""


@pytest.mark.parametrize("name", ONCE)
def test_an_idempotency_key_identifies_one_write(service: Service, name: str) -> None:
    """Wrong: a call with a key writes twice, or accepts other content under the same key."""
    key, given = service.key("ana"), {**sample(service, name, "ana"), **FIRST.get(name, {})}
    before = _size(service)
    first = service.call(name, key, given, Idempotency_Key="k-1")
    assert first.status == 200, first.body
    after = _size(service)
    assert after != before
    again = service.call(name, key, given, Idempotency_Key="k-1")
    assert again.status == 200, again.body
    assert _size(service) == after
    if not BY_NAME[name].streams:
        assert again.json == first.json
    other = service.call(name, key, {**given, **OTHER[name]}, Idempotency_Key="k-1")
    if name == "call_tool":  # a model gets the error as text
        assert "was used for another note" in other.json["text"]
    else:
        assert (other.status, other.problem) == (409, "conflict")
    assert _size(service) == after
    for bad in ("", " ", "x" * 256):
        refused = service.call(name, key, given, Idempotency_Key=bad)
        assert refused.status == 422


@pytest.mark.parametrize("name", [one.name for one in OPERATIONS if not one.keyed | one.again])
def test_a_call_without_idempotency_rejects_a_key(service: Service, name: str) -> None:
    """Wrong: a call ignores its key, so that a retry takes effect twice."""
    given = sample(service, name, "ana")
    answer = service.call(name, service.key("ana"), given, Idempotency_Key="k-1")
    assert answer.status == 422
    assert "takes no Idempotency-Key" in answer.json["detail"]


def test_a_write_with_a_stale_version_is_rejected(service: Service) -> None:
    """Wrong: a client with a stale version overwrites or deletes another's change."""
    key = service.key("ana")
    note = service.call("read_note", key, {"note_id": service.ids["ana"]["note_id"]})
    tag, which = note.headers["etag"], {"note_id": note.json["id"]}
    assert tag == f'"{note.json["version"]}"'
    changed = service.call("change_note", key, {**which, "text": "Second."}, If_Match=tag)
    assert changed.status == 200
    late = service.call("change_note", key, {**which, "text": "Lost?"}, If_Match=tag)
    assert (late.status, late.problem) == (412, "changed")
    assert service.call("delete_note", key, which, If_Match=tag).status == 412
    assert service.call("read_note", key, which).json["text"] == "Second."
    assert service.call("delete_note", key, which, If_Match=changed.headers["etag"]).status == 200

    path = {"path": "/memories/plan.md"}
    made = service.call("write_file", key, {**path, "text": "one"})
    assert service.call("write_file", key, {**path, "text": "two"}).status == 200
    old = {"If_Match": made.headers["etag"]}
    assert service.call("write_file", key, {**path, "text": "lost?"}, **old).status == 412
    assert service.call("delete_file", key, path, **old).status == 412
    now = service.call("read_file", key, path)
    assert now.json["text"] == "two"
    assert service.call("delete_file", key, path, If_Match=now.headers["etag"]).status == 200
    gone = service.call("write_file", key, {**path, "text": "x"}, If_Match=now.headers["etag"])
    assert gone.status == 412
    for bad in ("*", "W/" + tag, "plain", '""', '"a", "b"'):
        assert service.call("change_note", key, {**which, "text": "x"}, If_Match=bad).status == 422


def test_too_large_and_too_many_requests_are_rejected(tmp_path: Path) -> None:
    """Wrong: a body of any size is read, or a credential has no rate limit."""
    limits = Limits(body_bytes=2_000, per_second=0.5, burst=3)
    with serving(tmp_path, limits=limits) as service:
        ana, ben = service.key("ana"), service.key("ben")
        large = {"session_id": "s", "messages": [said("x" * 3_000)]}
        assert service.call("append_messages", ana, large).problem == "too-large"
        assert service.call("read_session", ana, {"session_id": "s"}).status == 404
        many = {"session_id": "s", "messages": [said("x")] * 501}
        assert service.call("append_messages", ben, many).status == 413
        assert service.call("list_notes", ana).status == 200
        refused = service.call("list_notes", ana)
        assert (refused.status, refused.problem) == (429, "too-many-requests")
        assert 1 <= int(refused.headers["retry-after"]) <= 2
        assert service.call("list_notes", ben).status == 200
        assert service.ask("GET", "/health/live", None).status == 200


def test_a_call_that_hangs_gets_504(tmp_path: Path) -> None:
    """Wrong: a client waits forever for a call that hangs."""
    limits = Limits(per_second=0, call_seconds=0.2)
    with serving(tmp_path, limits=limits) as service:
        key = service.key("ana")
        with unanswered(service):
            answer = service.call("read_session", key, {"session_id": "s"})
        assert (answer.status, answer.problem) == (504, "too-slow")


@pytest.mark.parametrize("name", ["take_turn", "stream_turn"])
def test_turns_that_wait_for_a_model_delay_no_other_call(tmp_path: Path, name: str) -> None:
    """Wrong: while a few clients wait for a slow model, the service is not ready."""
    answers = threading.Event()
    with FakeLLM(lambda _: "Hi." if answers.wait(30) else "") as fake:

        async def readiness(service: Service) -> Answer:
            key = service.key("ana")
            shown = [("Authorization", f"Bearer {key}")]
            turns = []
            for n in range(THREADS + 1):
                given = {"session_id": f"s{n}", "message": "Hello"}
                method, path, body = request_of(BY_NAME[name], given)
                sent = json.dumps(body).encode()
                turns.append(asyncio.ensure_future(service.answered(method, path, shown, sent)))
            try:
                async with asyncio.timeout(10):
                    while len(fake.requests) < THREADS:
                        await asyncio.sleep(0.001)
                return await service.answered("GET", "/health/ready", [])
            finally:
                answers.set()
                await asyncio.gather(*turns)

        with serving(tmp_path, api_base=fake.api_base) as service:
            ready = asyncio.run(readiness(service))
        assert ready.status == 200


def _size(service: Service) -> tuple[int, ...]:
    ana, memory = service.memory.user("ana"), service.memory
    heads = memory.sessions(user_id="ana")
    shared = memory.share("share-ana").sessions()
    logs = sum(head.end for head in [*heads, *shared])
    return len(heads), logs, len(ana.notes().all()), len(ana.spatial().all())


@pytest.fixture(params=["sqlite", "memory"])
def batching(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """A service that batches appends, over a store with or without such transactions."""
    store = f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else "memory://"
    with serving(tmp_path, store=store, overflow_mode="background") as batching:
        yield batching


Given = tuple[str, str, str, Mapping[str, Any]]


def append(token: str, session: str, *texts: str, **more: Any) -> Given:
    messages = [{"role": "user", "content": text} for text in texts]
    return token, session, more.pop("key", ""), {"messages": messages, **more}


def ask_all(batching: Service, requests: list[Given]) -> list[Answer]:
    """Return the answers to requests that all arrive before the first is answered."""

    async def ask(given: Given) -> Answer:
        token, session, key, body = given
        shown = [("Authorization", f"Bearer {token}")]
        shown += [("Idempotency-Key", key)] if key else []
        path = f"/v1/sessions/{session}/messages"
        return await batching.answered("POST", path, shown, json.dumps(body).encode())

    async def main() -> list[Answer]:
        return list(await asyncio.gather(*map(ask, requests)))

    return asyncio.run(main())


def stored_in(batching: Service, session: str) -> list[Any]:
    return [entry.message.content for entry in batching.memory.history(session)]


def test_each_request_of_a_batch_gets_its_own_response(batching: Service) -> None:
    """Wrong: a request of a batch gets another's answer."""
    ana, ben = batching.key("ana"), batching.key("ben")
    batching.memory.update("nobodys", {"role": "user", "content": "kept"})
    assert batching.call("append_messages", ben, _first("bens")).status == 200
    assert batching.call("append_messages", ana, _first("anas")).status == 200
    answers = ask_all(
        batching,
        [
            append(ana, "anas", "one"), append(ana, "bens", "another's"),
            append(ana, "nobodys", "nobody's"), append(ana, "anas", "late", expected_end=0),
            append(ana, "anas", "two", key="k"), append(ana, "anas", "two", key="k"),
            append(ana, "anas", "other", key="k"), append(ana, "%00", "no id"),
            append(ben, "bens", "three", "four"),
        ],
    )  # fmt: skip
    statuses = [one.status for one in answers]
    assert statuses == [200, 404, 404, 409, 200, 200, 409, 422, 200]
    assert answers[1].body == answers[2].body
    assert [answers[n].json["end"] for n in (0, 4, 5, 8)] == [2, 3, 3, 3]
    assert stored_in(batching, "anas") == ["first", "one", "two"]
    assert stored_in(batching, "bens") == ["first", "three", "four"]
    assert stored_in(batching, "nobodys") == ["kept"]


def _first(session: str) -> dict[str, Any]:
    return {"session_id": session, "messages": [{"role": "user", "content": "first"}]}


def test_a_revoked_key_is_rejected_within_a_batch(batching: Service) -> None:
    """Wrong: a revoked key is still accepted in a batch, because it was valid a moment ago."""
    token, key = batching.ring.create("short", ["ana"], ["write"])
    other = batching.key("ana")
    assert [one.status for one in ask_all(batching, [append(token, "s", "a")] * 3)] == [200] * 3
    batching.ring.revoke(key.prefix)
    answers = ask_all(batching, [append(token, "s", "b"), append(other, "s", "c")] * 3)
    assert [one.status for one in answers] == [401, 200] * 3
    assert stored_in(batching, "s") == ["a"] * 3 + ["c"] * 3


def test_concurrent_appends_to_a_session_are_numbered_consecutively(batching: Service) -> None:
    """Wrong: a message of a batch is lost, stored twice, or gets another's number."""
    ana = batching.key("ana")
    asked = [append(ana, "s", f"{n}") for n in range(100)]
    ends = [one.json["end"] for one in ask_all(batching, asked)]
    assert sorted(ends) == list(range(1, 101))
    by_end = dict(zip(ends, map(str, range(100)), strict=True))
    assert stored_in(batching, "s") == [by_end[end] for end in range(1, 101)]
