"""The service within an application of somebody's own, with its own sign-in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.testclient import TestClient

from agent_memory import AgentMemory, AsyncAgentMemory
from agent_memory.server.application import Application
from agent_memory.server.credentials import unauthenticated
from agent_memory.server.rights import Principal

RIGHTS: Any = frozenset({"read", "write"})
HI = {"messages": [{"role": "user", "content": "I moved to Lisbon."}]}


async def signed_in(request: Request) -> Principal:
    """The user who has signed in to the application."""
    user = request.headers.get("x-user")
    if user is None:
        raise unauthenticated()
    return Principal("session", (user,), RIGHTS)


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A FastAPI application with a route of its own and the memory below /memory."""
    with AgentMemory(store="memory://") as memory:
        app = FastAPI()
        app.mount("/memory", Application(AsyncAgentMemory(memory), signed_in))

        @app.get("/")
        def home() -> str:
            return "home"

        with TestClient(app) as client:
            yield client


def test_it_is_mounted_with_a_sign_in_of_ones_own(client: TestClient) -> None:
    """Wrong: a path, a right or a user is another below a mount; or a key opens it."""
    ana, ben = {"x-user": "ana"}, {"x-user": "ben"}
    assert client.get("/").json() == "home"
    path = "/memory/v1/sessions/a%2Fb/messages"
    assert client.post(path, json=HI).status_code == 401
    assert client.post(path, json=HI, headers={"X-API-Key": "am_1"}).status_code == 401
    assert client.post(path, json=HI, headers=ana).json()["end"] == 1
    assert client.get("/memory/v1/sessions", headers=ana).json()["sessions"][0]["id"] == "a/b"
    assert client.get(path, headers=ben).status_code == 404
    assert client.get(f"{path}?user_id=ana", headers=ben).status_code == 404
    assert client.delete("/memory/v1/sessions/a%2Fb", headers=ana).status_code == 403
    assert client.get("/memory/v1/nothing", headers=ana).json()["type"].endswith("no-such-call")
    assert client.patch("/memory/v1/sessions", headers=ana).status_code == 405
    assert client.get("/memory/").headers["content-type"].startswith("text/html")
    assert client.get("/memory/v1/openapi.json").json()["openapi"] == "3.1.0"
    assert client.get("/memory/metrics", headers=ana).status_code == 404
