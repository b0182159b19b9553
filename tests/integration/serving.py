"""The service as tests call it: in this process, with the same bytes as over a socket. Two users of
its memory have every kind of data."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import uvicorn

from agent_memory import AgentMemory, AsyncAgentMemory, Block, NoteMemory, SkillMemory, VectorMemory
from agent_memory.listening.serving import listen
from agent_memory.ltm_blocks import ExtractiveMemory, FileMemory, SpatialMemory
from agent_memory.mcp.http import behind
from agent_memory.server.application import Application
from agent_memory.server.calls import OPERATIONS
from agent_memory.server.credentials import Credentials, Limits, Tokens
from agent_memory.server.keys import KeyRing
from agent_memory.server.monitoring import Metrics
from agent_memory.server.operation import Operation
from agent_memory.testing import FakeLLM
from tests.integration.fact_model import Model
from tests.kit import model_at

ANYTHING = Limits(per_second=0)
BY_NAME: Mapping[str, Operation] = {one.name: one for one in OPERATIONS}
USERS = ("ana", "ben")


@dataclass(frozen=True)
class Answer:
    """An answer of the service. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        assert self.headers["content-type"] == "application/problem+json", self.body
        assert self.json["status"] == self.status
        return str(self.json["type"]).removeprefix("urn:agent-memory:problem:")


@dataclass
class Service:
    """A service, its keys, and the memory behind it."""

    memory: AgentMemory
    app: Application
    ring: KeyRing
    ids: dict[str, dict[str, str]] = field(default_factory=dict)

    def key(self, *users: str, rights: str = "read write delete") -> str:
        return self.ring.create("test", users, rights.split())[0]

    def raw(self, *request: Any, leaves: bool = False) -> Answer:
        """Return the response to a request: its method, path, headers and body. With `leaves` the
        client disconnects within it."""
        return asyncio.run(self.answered(*request, leaves=leaves))

    async def answered(
        self,
        method: str,
        path: str,
        headers: list[tuple[str, str]],
        body: bytes = b"",
        *,
        leaves: bool = False,
    ) -> Answer:
        """Like `raw`, but can run concurrently."""
        target, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "raw_path": target.encode("ascii"),
            "query_string": query.encode("ascii"),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
        }
        told: list[dict[str, Any]] = []
        first = {"type": "http.request", "body": body, "more_body": leaves}
        coming = [{"type": "http.disconnect"}, first] if leaves else [first]

        async def receive() -> dict[str, Any]:
            if coming:
                return coming.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(event: Any) -> None:
            told.append(event)

        await self.app(scope, receive, send)
        if not told:
            return Answer(0, {}, b"")
        start, rest = told[0], told[1:]
        names = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], names, b"".join(one["body"] for one in rest))

    def ask(
        self, method: str, path: str, token: str | None, given: Any = None, **headers: str
    ) -> Answer:
        shown = [] if token is None else [("Authorization", f"Bearer {token}")]
        shown += [(name.replace("_", "-"), value) for name, value in headers.items()]
        body = b"" if given is None else json.dumps(given).encode()
        return self.raw(method, path, shown, body)

    def call(
        self,
        name: str,
        token: str | None,
        given: Mapping[str, Any] | None = None,
        *,
        user: str | None = None,
        **headers: str,
    ) -> Answer:
        method, path, body = request_of(BY_NAME[name], given or {}, user)
        return self.ask(method, path, token, body, **headers)


def request_of(
    operation: Operation, given: Mapping[str, Any], user: str | None = None
) -> tuple[str, str, dict[str, Any] | None]:
    """Return a call as a request: its method, its path with the query, and its body."""
    rest, path = dict(given), f"/v1{operation.path}"
    for name in operation.in_path:
        path = path.replace(f"{{{name}}}", quote(str(rest.pop(name)), safe=""))
    query = {} if operation.has_body else {key: _in_query(value) for key, value in rest.items()}
    if user is not None:
        query["user_id"] = user
    path += f"?{urlencode(query, doseq=True)}" if query else ""
    return operation.method, path, rest if operation.has_body else None


def _in_query(value: Any) -> Any:
    return value if isinstance(value, list) else str(value)


def every_block(folder: Path) -> list[Block]:
    """Return a block of every kind for which the service has calls."""
    return [
        VectorMemory(),
        ExtractiveMemory(),
        NoteMemory(),
        FileMemory(),
        SkillMemory(folder=folder / "skills"),
        SpatialMemory(),
    ]


@contextmanager
def serving(
    folder: Path,
    *,
    tokens: Tokens | None = None,
    limits: Limits = ANYTHING,
    store: str = "memory://",
    **fields: Any,
) -> Iterator[Service]:
    """Start a service over a memory with every kind of block and a scripted model."""
    model = Model()
    for user in USERS:
        model.tell(f"{user}canary lives", f"The {user}canary lives in Lisbon.")

    def answered(body: dict[str, Any]) -> str:
        asked = str(body["messages"][-1]["content"])
        return "Good to know." if "turn:" in asked else model(body)

    with FakeLLM(answered) as fake:
        settings = {**model_at(fake), **fields}
        with AgentMemory(store=store, blocks=every_block(folder), **settings) as memory:
            ring = KeyRing(memory.components.store)
            awaited = AsyncAgentMemory(memory)
            mcp = behind(awaited)
            app = Application(awaited, Credentials(ring, tokens), Metrics(), limits, mcp=mcp)
            yield Service(memory, app, ring)


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Serve an application at a port of this machine, and yield the address."""
    config = uvicorn.Config(app, log_config=None, log_level="error", server_header=False, ws="none")
    server = uvicorn.Server(config)
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), name="uvicorn")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def fill(service: Service) -> None:
    """Store every kind of data for each user, with a word that no other user has."""
    memory = service.memory
    for user in USERS:
        said = {"role": "user", "content": f"The {user}canary lives in Lisbon."}
        memory.update(f"s-{user}", said, user_id=user)
        memory.describe(f"s-{user}", {"title": f"{user}canary"}, user_id=user)
        one = memory.user(user)
        note = one.notes().add(f"{user}canary note")
        one.files().create(f"/memories/{user}.md", f"{user}canary file")
        one.skills().write(f"skill-{user}", f"What the {user}canary does.")
        seen = one.spatial().observe(f"{user}canary tree", [1, 2])
        share = memory.share(f"share-{user}")
        share.grant(user, "write")
        share.agent(user).update(f"t-{user}", {"role": "user", "content": f"{user}canary share"})
        memory.flush(user_id=user)
        (fact,) = one.facts()
        service.ids[user] = {
            "session_id": f"s-{user}",
            "note_id": note.id,
            "fact_id": fact.id,
            "path": f"/memories/{user}.md",
            "name": f"skill-{user}",
            "observation_id": seen.id,
            "share": f"share-{user}",
            "agent_id": user,
        }
    memory.update("s-nobody", {"role": "user", "content": "the nobodycanary"})


def sample(service: Service, name: str, user: str) -> dict[str, Any]:
    """Return arguments for a call, with a user's ids."""
    ids, operation = dict(service.ids[user]), BY_NAME[name]
    fields = operation.form.model_fields
    if "share" in fields:
        ids["session_id"] = f"t-{user}"
    named = {*operation.in_path, "session_id", "path"} & {*fields}
    if "session_id" not in operation.in_path:
        named -= {"session_id"}
    ids = {**_GIVEN, **ids}
    named |= {field for field, one in fields.items() if one.is_required()}
    more = _MORE.get(name, {})
    return {**{field: ids[field] for field in named - more.keys()}, **more}


_SAID = {"role": "user", "content": "turn: hello"}
_GIVEN: dict[str, Any] = {
    **{"message": _SAID, "messages": [_SAID], "turn_messages": [_SAID], "answer": "Hello."},
    **dict.fromkeys(("query", "question"), "Where does the canary live?"),
    **{"text": "Likes tea.", "metadata": {"title": "x"}, "old_str": "canary", "new_str": "bird"},
    **{"insert_line": 0, "insert_text": "new"},
    **{"old_path": "/memories/old.md", "new_path": "/memories/new.md"},
    "skill": {"name": "walk", "description": "Walks.", "steps": [], "tags": [], "body": ""},
    **{"description": "Does it.", "position": [1, 2], "low": [0, 0], "high": [5, 5]},
    **{"observations": [], "namespace": ["a"], "key": "k", "value": 1, "puts": []},
    **{"block": "vector", "digest": "of nothing", "log": [], "max_tokens": 100, "seq": 1},
    "id": "none",
    "found": [{"block": "log", "id": "s-ana#1", "text": "", "sources": [["s-ana", 1]]}],
}
_TURNS = ("before_turn", "begin_shared", "take_turn", "take_shared", "stream_turn")
_RECEIPT = {"kind": "session", "id": "gone", "namespace": "default", "parts": []}
_MORE: dict[str, dict[str, Any]] = {
    "call_tool": {"name": "memory_read"},
    "forget": {"session_id": "s-none"},
    "grant_access": {"access": "write"},
    "read_access": {"access": "write"},
    "create_file": {"path": "/memories/old.md"},
    "replace_in_file": {"old_str": "new"},
    "forget_all": {"messages": True},
    "get_context": {"message": "Where does it live?"},
    **{name: {"message": "turn: where?"} for name in _TURNS},
    "change_note": {"text": "Likes coffee."},
    "write_file": {"text": "new"},
    "observe": {"text": "a house", "position": [3, 4]},
    "put_values": {"puts": []},
    "verify_receipt": {"receipt": {**_RECEIPT, "at": "2026-01-01T00:00:00+00:00"}},
}


@contextmanager
def unanswered(service: Service) -> Iterator[None]:
    """The store reads no session's head before this ends."""
    store, held = service.memory.components.store, threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        read = store.head
        patch.setattr(store, "head", lambda session_id: held.wait(30) and read(session_id))
        try:
            yield
        finally:
            held.set()
