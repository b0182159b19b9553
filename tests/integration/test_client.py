"""The client of a service: its retries, its secrets, and the user of its calls."""

import asyncio
import inspect
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, AsyncAgentMemory, NoteMemory, WorkingMemory, operations
from agent_memory.client.calls import CALLS
from agent_memory.client.memory import RemoteMemory
from agent_memory.errors import (
    AccessDenied,
    ConfigError,
    InvalidBudget,
    InvalidId,
    InvalidInput,
    MemoryClosed,
    SessionOfAnotherUser,
    StoreUnavailable,
    UnknownStore,
    UnsupportedOperation,
)
from tests.integration.remotely import served, services
from tests.kit import opened
from tests.served import MODULES

ROOT = Path(__file__).parents[2]
HI = {"role": "user", "content": "I moved to Lisbon."}


@pytest.fixture
def inside(url: str) -> Iterator[AgentMemory]:
    with opened(url, NoteMemory(), WorkingMemory()) as memory:
        yield memory


class Home:
    """A service over a memory, and clients of it."""

    def __init__(self, memory: AgentMemory) -> None:
        self.url, self.ring = served(memory, "client")
        self.opened: list[AgentMemory] = []

    def as_(self, *users: str, rights: str = "read write delete", **more: Any) -> AgentMemory:
        key, _ = self.ring.create("test", users, rights.split())
        self.opened.append(AgentMemory(self.url, api_key=key, **more))
        return self.opened[-1]


@pytest.fixture
def home(inside: AgentMemory) -> Iterator[Home]:
    home = Home(inside)
    yield home
    for one in home.opened:
        one.close()


class Failing:
    """A service that loses or refuses its first answers."""

    def __init__(self, app: Any, *answers: int) -> None:
        self.app = app
        self.answers = [*answers]
        self.asked = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        status = self.answers.pop(0) if self.answers else None
        if status is None:
            await self.app(scope, receive, send)
        elif status:
            headers = [(b"retry-after", b"0"), (b"location", b"http://127.0.0.1:9/")]
            body = b'{"error": "StoreUnavailable", "detail": "Not now."}'
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        else:  # the call is done, but its answer is lost

            async def drop(event: Any) -> None: ...

            await self.app(scope, receive, drop)
            headers = [(b"content-length", b"100")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            raise ConnectionError("lost")  # the connection is closed before the body


def failing(*answers: int) -> Failing:
    """Have the service give these answers next, where 0 does the call and loses its answer."""
    app = services().apps[b"client"]
    found = services().apps[b"client"] = Failing(app, *answers)
    return found


def test_the_client_implements_every_call_of_the_library() -> None:
    """Wrong: a call is missing in the client, which then runs the engine without a store."""
    tabled = {one.function_name for one in CALLS if one.subject == "memory"}
    kept = {"session", "user", "share", "values", "open", "replay", "edit", "close", "warm_up"}
    kept |= {"remember", "delete_user"}
    for name, _ in inspect.getmembers(AgentMemory):
        if not name.startswith("_"):
            assert name in vars(RemoteMemory), name
            assert name in tabled | kept or name in ("turns",), name


@pytest.mark.parametrize("answers", [(0,), (503,), (429, 0, 503)])
def test_a_retried_write_is_stored_once(home: Home, answers: tuple[int, ...]) -> None:
    """Wrong: a write is not retried after a lost answer, or its retry is stored twice."""
    memory = home.as_("ana")
    service = failing(*answers)
    assert memory.update("s", HI).end == 1
    assert service.asked == len(answers) + 1
    service = failing(*answers)
    note = memory.user("ana").notes().add("Likes tea.")
    assert service.asked == len(answers) + 1
    assert [one.id for one in memory.user("ana").notes().all()] == [note.id]
    assert [one.message.to_dict() for one in memory.history("s")] == [HI]


def test_calls_that_are_not_idempotent_are_not_retried(home: Home) -> None:
    """Wrong: `pop` or a tool call is retried after a lost answer, and takes effect twice."""
    memory = home.as_("ana")
    memory.update("s", [HI, HI, HI])
    edit = {"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": "X"}
    for call in (lambda: memory.pop("s"), lambda: memory.call_tool("s", "files", edit)):
        service = failing(0)
        with pytest.raises(StoreUnavailable, match="read the data before you repeat it"):
            call()
        assert service.asked == 1
    assert len(memory.history("s")) == 2
    service = failing(0)
    assert "Noted" in memory.call_tool("s", "memory_write", {"text": "Likes tea."})
    assert service.asked == 2


def test_the_client_stops_after_its_last_attempt(home: Home) -> None:
    """Wrong: a service that is down is called for ever, or a foreign error is raised."""
    service = failing(503, 503, 503)
    with pytest.raises(StoreUnavailable, match="Not now"):
        home.as_("ana", attempts=2).get("s")
    assert service.asked == 2
    failing(200)
    with pytest.raises(StoreUnavailable, match="not an agent-memory service"):
        home.as_("ana").get("s")


def test_no_key_is_shown_or_sent_unencrypted(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: the key shows in a repr, an error or a log, or is sent unencrypted."""
    key, _ = home.ring.create("test", ["ana"], ["read", "write"])
    with caplog.at_level(logging.DEBUG), AgentMemory(home.url, api_key=key) as memory:
        assert key not in repr(memory) + repr(memory.session("s")) + repr(vars(memory))
        service = failing(302)
        with pytest.raises(ConfigError, match="redirects") as found:
            memory.update("s", HI)
        assert service.asked == 1
    told = caplog.text + str(found.value) + repr(found.value)
    assert key not in told
    assert key[-12:] not in told
    for wrong in ("sk-1234", "", "am\n"):
        with pytest.raises(ConfigError, match="keys create"):
            AgentMemory(home.url, api_key=wrong)
    for url in ("http://memory.example.com", "http://10.0.0.1:8766"):
        with pytest.raises(ConfigError, match="unencrypted"):
            AgentMemory(url, api_key=key)
    AgentMemory("http://memory.example.com", api_key=key, plain_http=True).close()
    for wrong_option in ({"timeout": 0}, {"timeout": "5"}, {"attempts": 0}):
        with pytest.raises((ConfigError, InvalidInput), match=next(iter(wrong_option))):
            AgentMemory(home.url, api_key=key, **wrong_option)
    with pytest.raises(ConfigError, match="must have no user"):
        AgentMemory("https://user:secret@memory.example.com", api_key=key)
    with pytest.raises(ConfigError, match="configured on the service"):
        AgentMemory(home.url, api_key=key, max_tokens=8000)


def test_the_environment_sets_the_service_key(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the client sends the model's key to the service."""
    key, _ = home.ring.create("test", ["ana"], ["read", "write"])
    monkeypatch.setenv("AGENT_MEMORY_API_KEY", key)
    with pytest.raises(ConfigError, match="AGENT_MEMORY_SERVICE_KEY"):
        AgentMemory(home.url)
    monkeypatch.setenv("AGENT_MEMORY_SERVICE_KEY", key)
    with AgentMemory(home.url) as memory:
        assert memory.update("s", HI).user_id == "ana"


def test_a_service_as_a_store_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a service's address as `store` is refused without a word on how to pass it."""
    for options in ({"store": "https://memory.example.com", "api_key": "am_x"}, {}):
        with pytest.raises(UnknownStore, match=r'AgentMemory\("https://\.\.\."\)'):
            AgentMemory(**options)
        monkeypatch.setenv("AGENT_MEMORY_STORE", "https://memory.example.com")


def test_the_key_determines_the_user(home: Home, inside: AgentMemory) -> None:
    """Wrong: a key for one user needs a user id, a key for several needs none, or a user reads or
    changes another user's session."""
    ana, ben, both = home.as_("ana"), home.as_("ben"), home.as_("ana", "ben")
    assert ana.update("s", HI).user_id == "ana"
    assert both.history("s", user_id="ana")[0].message.to_dict() == HI
    with pytest.raises(InvalidInput, match="for several users"):
        both.history("s")
    with pytest.raises(AccessDenied):
        ben.history("s", user_id="ana")
    with pytest.raises(SessionOfAnotherUser):
        ben.update("s", HI)
    turn = ben.before_turn("mine", "Where does she live?")
    with pytest.raises(SessionOfAnotherUser):
        ben.after_turn(ana.before_turn("s", "and?"), "Nowhere.")
    forged = ana.regenerate("s")
    taken = forged.regenerates._replace(session_id="s")
    with pytest.raises((InvalidInput, SessionOfAnotherUser)):
        ben.after_turn(replace(turn, regenerates=taken), "Nowhere.")
    assert (ben.history("s"), ben.head("s"), ben.pop("s")) == ([], None, [])
    assert ben.delete("s").signature is None
    with pytest.raises(SessionOfAnotherUser):
        ben.checkpoint("s")
    assert [one.message.to_dict() for one in inside.history("s")] == [HI]


def test_a_bad_budget_raises_the_same_error_over_http(home: Home, inside: AgentMemory) -> None:
    """Wrong: over HTTP an invalid `max_tokens` raises another error, or has another text."""
    memory = home.as_("ana")
    memory.update("s", HI)
    texts = []
    for call in (memory.get, inside.get, memory.prune, inside.prune):
        with pytest.raises(InvalidBudget) as caught:
            call("s", max_tokens=-5)  # type: ignore[operator]
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert texts[2] == texts[3]


def test_an_empty_user_id_is_refused_over_http(home: Home, inside: AgentMemory) -> None:
    """Wrong: over HTTP an empty user id counts as no user. An admin's key then reads another user's
    session, and stores messages without a user."""
    inside.update("s", HI, user_id="ana")
    admin = home.as_("*", rights="read write delete admin")
    calls = {"history": ["s"], "get": ["s", "Where?"], "update": ["new", HI], "delete": ["s"]}
    for name, arguments in {**calls, "search": ["Lisbon"]}.items():
        with pytest.raises(InvalidId, match="user_id is empty"):
            getattr(admin, name)(*arguments, user_id="")
    assert inside.head("new") is None
    assert inside.history("s") != []


def test_a_history_of_many_pages_is_complete(home: Home) -> None:
    """Wrong: a log of several pages is cut, or `last` returns other messages."""
    memory = home.as_("ana")
    for start in (0, 600):
        said = [{"role": "user", "content": str(n)} for n in range(start, start + 600)]
        memory.update("s", said)
    seqs = [one.seq for one in memory.history("s")]
    assert seqs == list(range(1, 1201))
    assert [one.seq for one in memory.history("s", last=700)] == seqs[-700:]
    assert [one.seq for one in memory.history("s", after=100, limit=600)] == seqs[100:700]
    assert memory.history("s", last=0) == []
    with pytest.raises(InvalidInput, match="limit is -1"):
        memory.history("s", limit=-1)
    assert memory.edit("s", lambda log: log[-2:]).end == 2


def test_an_edit_is_repeated_if_the_log_has_changed(home: Home, inside: AgentMemory) -> None:
    """Wrong: an edit overwrites a message that was stored while its function ran."""
    memory = home.as_("ana")
    memory.update("s", [HI, {"role": "assistant", "content": "Noted."}])
    asked = 0

    def change(log: list[Any]) -> list[Any]:
        nonlocal asked
        asked += 1
        if asked == 1:
            inside.update("s", {"role": "user", "content": "And?"}, user_id="ana")
        return log[1:]

    assert memory.edit("s", change).end == 2
    assert asked == 2
    assert [one.message.text() for one in memory.history("s")] == ["Noted.", "And?"]


def test_arguments_that_cannot_be_sent_are_refused(home: Home) -> None:
    """Wrong: the client silently ignores an argument that it cannot send."""
    memory = home.as_("ana")
    for call in (
        lambda: memory.completion("s", "hi", model="openai/gpt-4o"),
        lambda: memory.completion("s", "hi", temperature=0.0),
        lambda: memory.flush("s", progress=print),
        lambda: memory.values(embedder=object()),  # type: ignore[arg-type]
        lambda: memory.user("ana").open("mine"),
        lambda: memory.config,
        lambda: memory.turns,
    ):
        with pytest.raises(UnsupportedOperation):
            call()
    with pytest.raises(InvalidInput, match="cannot be sent"):
        memory.completion("s", "hi", tools=[print])
    assert memory.history("s") == []


def test_an_exported_session_can_be_restored(home: Home, tmp_path: Path) -> None:
    """Wrong: a snapshot that a client exported cannot be restored."""
    memory = home.as_("ana")
    memory.update("s", HI)
    memory.session("s").working().set("plan", ["book a table"])
    assert memory.session("s").export(tmp_path / "s.jsonl").entries == 1
    with AgentMemory(store="memory://", blocks=[WorkingMemory()]) as other:
        operations.import_session(other, tmp_path / "s.jsonl")
        assert other.session("s").working().all() == {"plan": ["book a table"]}


async def _ask(url: str, key: str) -> list[str]:
    async with AsyncAgentMemory(url, api_key=key) as memory:
        await memory.update("s", HI)
        return [recall.text for recall in await memory.search("Lisbon")]


def test_the_async_client_works_and_a_closed_client_raises(home: Home) -> None:
    """Wrong: the async client does not call the service, or a closed client still works."""
    key, _ = home.ring.create("test", ["ana"], ["read", "write"])
    assert "Lisbon" in asyncio.run(_ask(home.url, key))[0]
    memory = home.as_("ana")
    memory.close()
    memory.close()
    with pytest.raises(MemoryClosed):
        memory.update("s", HI)


@pytest.mark.timeout(1_800)
def test_the_tests_of_the_engine_pass_over_a_service() -> None:
    """Wrong: a call behaves differently over a service."""
    files = [f"tests/integration/test_{name}.py" for name in MODULES]
    command = [sys.executable, "-m", "pytest", "--service", "-q", "-n", "2", *files]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    print(done.stdout[-2000:])
    assert done.returncode == 0, done.stdout[-20_000:]
    assert "passed" in done.stdout
