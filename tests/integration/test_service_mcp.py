"""The service at `/mcp` has the credentials, rights and limits of `/v1`. A real client calls it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import MCPError

from agent_memory.server.credentials import RIGHTS, Limits
from tests.integration.mcp_calls import Mode, call, connected, refusal, resource
from tests.integration.serving import Service, fill, listening, serving, unanswered
from tests.integration.tracing import traced

MODES: tuple[Mode, ...] = ("legacy", "auto")
JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
READING = {
    *("search_memories", "get_context", "memory_read_message"),
    *("skills_find", "skills_load", "spatial_near", "spatial_within"),
}
WRITING = {"add_memory", "skills_save", "spatial_observe"}
OFFERED = {
    "read": READING,
    "write": WRITING,
    "read write": READING | WRITING,
    "delete": {"delete_memory"},
    "write delete": WRITING | {"update_memory", "delete_memory"},
    "read write delete": READING | WRITING | {"update_memory", "delete_memory", "files"},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service")) as service:
        fill(service)
        yield service


@pytest.fixture(scope="module")
def url(service: Service) -> Iterator[str]:
    with listening(service.app) as address:
        yield f"{address}/mcp"


def post(url: str, headers: Any, body: Any = LIST) -> httpx2.Response:
    return httpx2.post(url, json=body, headers=[*JSON.items(), *headers], timeout=60)


def bearer(key: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {key}")]


@pytest.mark.parametrize("mode", MODES)
def test_the_credential_determines_the_user(service: Service, url: str, mode: Mode) -> None:
    """Wrong: a tool or resource returns another user's data, or shows that it exists."""

    async def talk() -> None:
        ana, theirs = service.key("ana"), service.ids["ana"]
        async with connected(url, service.key("ben"), mode) as ben:
            seen = [
                await call(ben, "search_memories", query="canary", limit=50),
                await call(ben, "search_memories"),
                await call(ben, "get_context", session_id="s-ben", query="canary"),
                await call(ben, "skills_find", query="what the canary does"),
                await call(ben, "spatial_near", position=[1, 2]),
                await call(ben, "files", command="view", path="/memories"),
                await resource(ben, "memory://sessions"),
                await resource(ben, "memory://sessions/s-ben"),
            ]
            assert "bencanary" in str(seen)
            assert "anacanary" not in str(seen)
            assert "s-ana" not in str(seen)
            asked = {
                "delete_memory": ("id", {}),
                "update_memory": ("id", {"text": "x"}),
                "get_context": ("session_id", {}),
                "memory_read_message": ("session_id", {"seq": 1}),
            }
            for name, (field, more) in asked.items():
                for id in (theirs["note_id"], theirs["fact_id"], theirs["session_id"]):
                    none = "x" * len(id)
                    absent = await refusal(ben, name, **{field: none}, **more)
                    foreign = await refusal(ben, name, **{field: id}, **more)
                    assert foreign.replace(id, none) == absent
            for wrong in ("s-ana", "s-nobody", "s-none"):
                with pytest.raises(MCPError, match="There is no session"):
                    await resource(ben, f"memory://sessions/{wrong}")
            assert "user_id" in await refusal(ben, "search_memories", query="x", user_id="ana")
        async with connected(url, ana, mode) as client:
            assert "anacanary note" in str(await call(client, "search_memories"))

    anyio.run(talk)


def test_a_credential_for_several_users_selects_one_by_query(service: Service, url: str) -> None:
    """Wrong: the query names a user whom the credential excludes, or shows who exists."""

    async def talk() -> None:
        async with connected(f"{url}?user_id=ana", service.key("an*", "ben")) as client:
            assert "anacanary" in str(await call(client, "search_memories"))

    anyio.run(talk)
    key = bearer(service.key("be*", "cleo"))
    refused = [post(f"{url}?user_id={user}", key) for user in ("ana", "nobody")]
    assert [one.status_code for one in refused] == [404, 404]
    assert refused[0].content == refused[1].content
    for query in ("", "?user_id=ben&user_id=ana", "?user_id=ben&more=1"):
        assert post(f"{url}{query}", key).status_code == 422
    assert post(f"{url}?user_id=ana", bearer(service.key("ben"))).status_code == 404


@pytest.mark.parametrize("rights", [*OFFERED, *RIGHTS])
def test_only_keys_with_the_right_list_a_tool(service: Service, url: str, rights: str) -> None:
    """Wrong: a key without write access lists or calls tools that write."""
    has = frozenset(rights.split())
    wanted = OFFERED.get(rights, set())

    async def talk() -> None:
        key = service.key("*", rights=rights)
        async with connected(f"{url}?user_id=ana", key) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == wanted
            for name in OFFERED["read write delete"] - wanted:
                words = await refusal(client, name, text="x", id="x")
                assert words.startswith(f"There is no tool {name!r}")
            uri = "memory://sessions"
            if "read" in has:
                assert "s-ana" in str(await resource(client, uri))
            else:
                with pytest.raises(MCPError, match='right "read"'):
                    await resource(client, uri)

    anyio.run(talk)
    notes = [note.text for note in service.memory.user("ana").notes().all()]
    assert notes == ["anacanary note"]


def test_mcp_has_limits_and_headers_of_v1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `/mcp` has other limits than `/v1`, or its metrics, headers or traces lack calls."""
    spans = traced(monkeypatch)
    limits = Limits(body_bytes=2_000, per_second=0.001, burst=6, call_seconds=0.5)
    with serving(tmp_path, limits=limits) as service, listening(service.app) as address:
        url, key = f"{address}/mcp", service.key("ana")
        trace = "0af7651916cd43dd8448eb211c80319c"
        parent = ("traceparent", f"00-{trace}-b7ad6b7169203331-01")
        asked = {"name": "search_memories", "arguments": {"query": "x"}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
        answer = post(url, [*bearer(key), parent], body)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-request-id"]
        (looked,) = spans.all("search_memory")
        assert looked.context.trace_id == int(trace, 16)
        assert post(url, bearer(key), {"x": "y" * 3_000}).status_code == 413
        got = httpx2.get(url, headers=bearer(key))
        assert (got.status_code, got.headers["allow"]) == (405, "POST")

        asked = {"name": "get_context", "arguments": {"session_id": "s"}}
        with unanswered(service):
            for version in ({}, {"MCP-Protocol-Version": "2025-06-18"}):
                slow = post(url, [*bearer(key), *version.items()], {**body, "params": asked})
                assert slow.status_code == 504
        assert httpx2.get(f"{address}/v1/sessions", headers=bearer(key)).status_code == 200
        assert post(url, bearer(key)).status_code == 200
        refused = post(url, bearer(key))
        assert (refused.status_code, int(refused.headers["retry-after"]) > 1) == (429, True)
        admin = service.key("*", rights="admin")
        figures = httpx2.get(f"{address}/metrics", headers=bearer(admin)).text
        assert 'agent_memory_requests_total{method="POST",route="/mcp",status="200"} 2.0' in figures
        assert 'route="/mcp",status="429"} 1.0' in figures
        assert 'method="GET",route="/mcp",status="405"} 1.0' in figures
