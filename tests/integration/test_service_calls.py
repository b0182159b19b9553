"""The service's calls, compared with their documentation."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agent_memory import AgentMemory, AsyncAgentMemory, Summarize, WorkingMemory
from agent_memory.client.calls import EXACT
from agent_memory.engine.values.items import Put
from agent_memory.server.application import Application
from agent_memory.server.calls import OPERATIONS
from agent_memory.server.credentials import Credentials, Limits
from agent_memory.server.keys import KeyRing
from agent_memory.server.monitoring import Metrics
from agent_memory.server.operation import document
from tests.integration.serving import BY_NAME, Answer, Service, fill, sample, serving
from tests.kit import every_nth

DOCUMENT = document(OPERATIONS, "0")
UNSET = (501, "not-configured")
REFUSED = {
    **{name: UNSET for name in BY_NAME if name.endswith("_working")},
    "read_profile": UNSET,
    "read_shared_profile": UNSET,
    "replace_log": (409, "conflict"),  # the log has changed meanwhile
    "get_value": (404, "not-found"),
}
"""What a service of `serving` answers to calls that are asked for what it has not."""
LAST = (
    *("rename_file", "delete_file", "clear_files", "delete_note", "clear_notes", "delete_skill"),
    *("delete_observation", "clear_places", "delete_value", "clear_values", "pop_shared"),
    *("pop_messages", "forget_fact", "forget", "forget_all", "prune_session", "delete_session"),
    *("revoke_access", "delete_share", "delete_user"),
)
"""Calls that leave less for others, in this order."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path) as service:
        fill(service)
        yield service


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that the tests only read."""
    with serving(tmp_path_factory.mktemp("lasting")) as service:
        yield service


def body_of(content: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content, **more}]}


@pytest.mark.parametrize("accept", ["application/json", EXACT])
def test_each_call_returns_its_documented_response(service: Service, accept: str) -> None:
    """Wrong: a documented call fails, or answers in another form."""
    refused = {}
    for name in sorted(BY_NAME, key=lambda name: LAST.index(name) if name in LAST else -1):
        answer = _answers(service, name, accept)
        if answer.status != 200:
            refused[name] = (answer.status, answer.problem)
    assert refused == REFUSED


def _answers(service: Service, name: str, accept: str) -> Answer:
    """Make a call with sufficient rights, and check the form of its answer."""
    operation, given = BY_NAME[name], sample(service, name, "ana")
    key = service.key("ana") if operation.of_user else service.key("*", rights="admin")
    answer = service.call(name, key, given, Accept=accept)
    if answer.status == 200 and operation.answer is not None:
        if accept == EXACT and operation.exact:
            assert answer.headers["content-type"] == EXACT
            assert answer.json.keys() == {"value"}
        else:
            schema = {"$ref": f"#/components/schemas/{operation.answer.name}"}
            jsonschema.validate(answer.json, {**schema, "components": DOCUMENT["components"]})
            assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    return answer


def test_paging_returns_every_item_once(service: Service) -> None:
    """Wrong: paging skips or repeats an item, or never ends."""
    key = service.key("ana")
    for number in range(7):
        service.call("append_messages", key, {"session_id": "s-ana", **body_of(f"number {number}")})
        service.call("append_messages", key, {"session_id": f"more/{number}", **body_of("hello")})
        service.call("write_note", key, {"text": f"note {number}"})
        service.call("write_file", key, {"path": f"/memories/{number}", "text": "x"})
    lists = {
        "list_sessions": ("sessions", 8, {}),
        "list_messages": ("messages", 8, {"session_id": "s-ana"}),
        "list_notes": ("notes", 8, {}),
        "list_files": ("paths", 8, {}),
        "list_changes": ("changes", 1, {}),
        "list_facts": ("facts", 1, {}),
        "list_skills": ("skills", 1, {}),
        "list_observations": ("observations", 1, {}),
    }
    for name, (field, count, given) in lists.items():
        for limit in (1, 3, 8, 500):
            found: list[Any] = []
            after: dict[str, Any] = {}
            while True:
                page = service.call(name, key, {**given, "limit": limit, **after}).json
                found += page[field]
                assert page.get("total") in (None, count)
                if page["next"] is None:
                    break
                assert len(page[field]) == limit
                after = {"after": page["next"]}
            told = [json.dumps(one) for one in found]
            assert len(told) == len(set(told)) == count, (name, limit)
    admin = service.key("*", rights="read admin")
    whole = service.call("list_messages", admin, {"session_id": "s-ana"})
    assert whole.json["total"] == 8
    assert service.call("list_messages", key, {"session_id": "s-ana", "after": "x"}).status == 422
    assert service.call("list_notes", key, {"after": "gone"}).problem == "invalid-request"
    assert service.call("read_session", key, {"session_id": "more/3"}).json["id"] == "more/3"


def test_a_page_of_messages_has_at_most_4_mib_or_one_message(service: Service) -> None:
    """Wrong: a page of long messages has tens of megabytes, or a message in no page."""
    for mib in (1, 2, 3, 5, 1):
        service.memory.update("long", "x" * (mib * 2**20 - 1_000), user_id="ana")
    key, after, pages = service.key("ana"), {}, []
    while not pages or after["after"]:
        asked = {"session_id": "long", "limit": 10, **after}
        page = service.call("list_messages", key, asked).json
        pages.append([one["seq"] for one in page["messages"]])
        after = {"after": page["next"]}
    assert pages == [[1, 2], [3], [4], [5]]
    service.memory.delete("long")


def test_file_calls_accept_folders(service: Service) -> None:
    """Wrong: a folder is not found, or the beginning of its name is."""
    key = service.key("ana")
    service.call("write_file", key, {"path": "/memories/notes/a.md", "text": "x"})
    assert service.call("view_file", key, {"path": "/memories/note"}).status == 404
    assert "a.md" in str(service.call("view_file", key, {"path": "/memories/notes/"}).json)
    moved = {"old_path": "/memories/notes", "new_path": "/memories/done"}
    assert service.call("rename_file", key, moved).status == 200
    assert service.call("rename_file", key, moved).status == 404
    assert service.call("delete_file", key, {"path": "/memories/done"}).status == 200
    assert service.call("list_files", key, {}).json["paths"] == ["/memories/ana.md"]


def test_a_streamed_turn_ends_with_a_stored_event(service: Service) -> None:
    """Wrong: a streamed turn loses a piece, does not end with `stored`, or accepts no message."""
    key, given = service.key("ana"), {"session_id": "t", "message": "turn: where?"}
    answer = service.call("stream_turn", key, given)
    assert answer.headers["content-type"] == "text/event-stream"
    events = [part.split("\n", 1) for part in answer.body.decode().strip().split("\n\n")]
    names = [name.removeprefix("event: ") for name, _ in events]
    data = [json.loads(rest.removeprefix("data: ")) for _, rest in events]
    assert set(names[:-1]) == {"token"}
    assert "".join(one["text"] for one in data[:-1]) == "Good to know."
    assert (names[-1], data[-1]) == ("stored", {"end": 2})
    empty = service.call("stream_turn", key, {"session_id": "t", "message": []})
    assert empty.status == 422


def test_an_export_contains_all_data_of_the_user_and_an_end(service: Service) -> None:
    """Wrong: an export lacks some of the user's data, or contains another user's."""
    key = service.key("ana")
    answer = service.call("export_user", key)
    lines = [json.loads(line) for line in answer.body.splitlines()]
    kinds = [line["kind"] for line in lines]
    assert set(kinds) == {
        *("session", "message", "note", "fact", "change", "file", "skill", "observation", "end")
    }
    assert lines[-1] == {"kind": "end", "lines": len(lines) - 1}
    assert b"bencanary" not in answer.body
    assert b"nobodycanary" not in answer.body
    receipt = service.call("delete_user", service.key("*"), user="ana").json
    assert {part["state"] for part in receipt["parts"]} <= {"done", "not supported"}
    admin = service.key("*", rights="admin")
    verified = service.call("verify_receipt", admin, {"receipt": receipt})
    assert verified.json["id"] == "ana"
    assert service.call("list_sessions", key).status == 401  # the key belonged to the user
    again = service.call("export_user", service.key("ana")).body.splitlines()
    assert [json.loads(line)["kind"] for line in again] == ["end"]


def test_an_export_has_values_and_scratchpads() -> None:
    """Wrong: an export lacks values, scratchpads, summaries or prompts, or has another user's."""
    fields = {"overflow": Summarize(max_summary_tokens=50), "keep_contexts": True}
    with AgentMemory(store="memory://", blocks=[WorkingMemory()], **fields) as memory:
        ring = KeyRing(memory.components.store)
        credentials = Credentials(ring)
        app = Application(AsyncAgentMemory(memory), credentials, Metrics(), Limits())
        service = Service(memory, app, ring)
        for user in ("ana", "ben"):
            memory.user(user).values().put_many(
                [Put(("plans",), f"{user} {number}", {"number": number}) for number in range(12)]
            )
            for session in ("a", "b"):
                memory.session(f"{user}-{session}", user).working().set("step", user)
            long = {"role": "user", "content": f"{user} said hello there. " * 12}
            memory.update(f"{user}-empty", [long, long], user_id=user)
            memory.get(f"{user}-empty", f"{user}?")
            memory.prune(f"{user}-empty", 80)
        body = service.call("export_user", service.key("ana")).body
        lines = [json.loads(line) for line in body.splitlines()]
        assert [one["context"]["question"] for one in lines if "context" in one] == ["ana?"]
        assert ["hello" in line["summary"]["text"] for line in lines if "summary" in line] == [True]
        values = {line["value"]["key"] for line in lines if line["kind"] == "value"}
        assert values == {f"ana {number}" for number in range(12)}
        assert [line["working"] for line in lines if line["kind"] == "working"] == [
            {"session_id": session, "values": {"step": "ana"}} for session in ("ana-a", "ana-b")
        ]
        assert b"ben" not in body


BAD: list[tuple[str, str, bytes, int]] = [
    ("POST", "/v1/search", b"{", 400), ("POST", "/v1/search", b"[]", 400),
    ("POST", "/v1/search", b'"x"', 400), ("POST", "/v1/search", b"[" * 50_000, 400),
    ("POST", "/v1/search", b'{"query": NaN}', 400), ("POST", "/v1/search", b"\xff", 400),
    ("POST", "/v1/search", b"", 422), ("POST", "/v1/search", b'{"query": ""}', 422),
    ("POST", "/v1/search", b'{"query": "x", "limit": 0}', 422),
    ("POST", "/v1/search", b'{"query": "x", "limit": "swordfish"}', 422),
    ("POST", "/v1/search?limit=1", b'{"query": "x"}', 422),
    ("POST", "/v1/search", b'{"query": "x", "since": "2026-01-01T00:00:00"}', 422),
    ("GET", "/v1/facts?limit=1&limit=2", b"", 422), ("GET", "/v1/facts?as_of=yesterday", b"", 422),
    ("GET", "/v1/facts?limit=%ff", b"", 422),
    ("GET", "/v1/facts?" + "&".join(f"a{n}=1" for n in range(200)), b"", 422),
    ("GET", f"/v1/sessions/{'x' * 256}", b"", 422), ("GET", "/v1/sessions/%00", b"", 422),
    ("GET", "/v1/sessions/%1eshare", b"", 422), ("GET", "/v1/sessions/%ff", b"", 404),
    ("GET", "/v1/sessions/", b"", 404), ("GET", "/v1//sessions", b"", 404),
    ("GET", "/v2/sessions", b"", 404), ("GET", "/page/none.js", b"", 404),
    ("PATCH", "/v1/sessions", b"", 405), ("HEAD", "/v1/sessions", b"", 405),
    ("POST", "/v1/sessions/s/messages", b'{"messages": []}', 422),
    ("POST", "/v1/sessions/s/messages", b'{"messages": [{"role": "swordfish"}]}', 422),
    ("POST", "/v1/sessions/s/messages", b'{"session_id": "t", "messages": [{}]}', 422),
    ("POST", "/v1/sessions/s/context", b'{"max_tokens": 0}', 422),
    ("POST", "/v1/sessions/s/context", b'{"max_tokens": 1}', 200),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "status"), BAD)
def test_bad_requests(lasting: Service, method: str, path: str, body: bytes, status: int) -> None:
    """Wrong: an invalid request is accepted, fails with 500, or is repeated in the error."""
    headers = [("Authorization", f"Bearer {lasting.key('ana')}")]
    answer = lasting.raw(method, path, headers, body)
    assert answer.status == status, answer.body
    if status != 200:
        assert answer.problem
        assert "swordfish" not in answer.json["detail"] or "role" in path + answer.json["detail"]
    if status == 405:
        assert answer.headers["allow"]


@pytest.mark.parametrize("time", ["2026-01-01T00:00:00", "yesterday", "0001-01-01T00:00+14:00"])
def test_an_invalid_created_at_is_named_in_the_error(lasting: Service, time: str) -> None:
    """Wrong: the answer is a 500, or its sentence does not name the field."""
    timed = {"message": {"role": "user", "content": "Hello"}, "created_at": time}
    given = {"session_id": "timed", "messages": [timed]}
    answer = lasting.call("append_messages", lasting.key("ana"), given)
    assert answer.status == 422, answer.body
    assert "created_at" in answer.json["detail"]


def test_a_call_without_a_user_names_the_missing_parameter(lasting: Service) -> None:
    """Wrong: the sentence is about an empty id, which the request does not contain."""
    for name in ("list_facts", "delete_user"):
        answer = lasting.call(name, lasting.key("*", rights="read delete admin"))
        assert answer.status == 422
        assert "?user_id=" in answer.json["detail"]


_RECEIPT = {"kind": "session", "id": "s-ana", "namespace": "default", "parts": []}


@pytest.mark.parametrize(
    "more",
    [
        {"at": "2026-01-01T00:00:00"},
        {"at": "2026-01-01T00:00:00+00:00", "more": 1},
        {"at": "2026-01-01T00:00:00+00:00", "id": "\ud800"},
    ],
)
def test_an_invalid_receipt_is_refused(lasting: Service, more: dict[str, Any]) -> None:
    """Wrong: a receipt without a time zone causes a 500, or an unknown field is ignored."""
    given = {**_RECEIPT, **more}
    answer = lasting.call("verify_receipt", lasting.key("*", rights="admin"), {"receipt": given})
    assert answer.status == 422, answer.body


def test_errors_have_stable_types_and_sentences(service: Service) -> None:
    """Wrong: an error lacks a stable type for programs or a sentence for people."""
    key = service.key("ana")
    answer = service.call("search", key, {"query": "x", "limit": 10_000})
    assert answer.json["type"] == "urn:agent-memory:problem:invalid-request"
    assert answer.json["errors"][0]["field"] == "limit"
    assert answer.json["detail"].endswith(".")
    jsonschema.validate(answer.json, DOCUMENT["components"]["schemas"]["Problem"])


def test_health_and_metrics_report_an_outage(
    service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a health probe needs a key, the metrics need none, or they name a user or session. Or
    neither the log nor the metrics show that the store does not answer."""
    assert service.ask("GET", "/health/live", None).json == {"status": "live"}
    assert service.ask("GET", "/health/ready", None).json == {"status": "ready"}
    assert service.ask("GET", "/metrics", None).status == 401
    assert service.ask("GET", "/metrics", service.key("ana")).problem == "forbidden"
    service.call("list_messages", service.key("ana"), {"session_id": "s-ana"})
    service.ask("GET", "/v1/s-ana/what", None)
    admin = service.key("*", rights="admin")
    figures = service.ask("GET", "/metrics", admin).body.decode()
    for wanted in (
        'route="/v1/sessions/{session_id}/messages",status="200"} 1.0',
        'agent_memory_lag_messages{block="vector"}',
        "agent_memory_dead_letters",
        'agent_memory_model_tokens_total{kind="prompt",purpose="extraction"}',
        "agent_memory_recalls_total",
        "agent_memory_up 1.0",
    ):
        assert wanted in figures
    for secret in ("ana", "ben", "s-ana"):
        assert f'"{secret}"' not in figures
    service.memory.close()
    assert service.app._ready[0]
    service.app._ready = (True, -10.0)
    assert service.ask("GET", "/health/ready", None).status == 503
    assert "This memory was closed." in caplog.text
    monkeypatch.delattr(service.ring, "_store")
    assert b"agent_memory_up 0.0" in service.ask("GET", "/metrics", admin).body
    assert service.ask("GET", "/health/live", None).status == 200


VALUES: list[Any] = [None, True, 5, -1, 1.5, 10**30, "text", "", [], [[1]], {}, {"a": {"b": []}}]
ALL = [one.name for one in OPERATIONS]
GROUPS = [ALL[at::2] for at in range(2)]


def edited(value: Any) -> Iterator[Any]:
    """Yield the value with each of its parts replaced by values of other types."""
    yield from (one for one in VALUES if type(one) is not type(value) or one in ([], {}, ""))
    inner = value.items() if isinstance(value, dict) else ()
    for key, one in enumerate(value) if isinstance(value, list) else inner:
        for changed in edited(one):
            copy = deepcopy(value)
            copy[key] = changed
            yield copy


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_a_field_of_another_type_is_refused(tmp_path: Path, names: list[str]) -> None:
    """Wrong: a field of another type causes a 500."""
    failed: list[Any] = []
    with serving(tmp_path) as service:
        fill(service)
        own = service.key("ana"), service.key("*", rights="admin")
        for name in names:
            for field in BY_NAME[name].form.model_fields:
                given = sample(service, name, "ana")
                for value in every_nth(edited(given.get(field)), 7):
                    if field in BY_NAME[name].in_path and not isinstance(value, str | int):
                        continue
                    key = own[not BY_NAME[name].of_user]
                    status = service.call(name, key, {**given, field: value}).status
                    if status >= 500 and status not in (501, 502):  # not configured, or no model
                        failed.append((name, field, value, status))
    assert failed == []
