"""The MCP server in process, called by the official client: tools, resources, and their users."""

import importlib
import importlib.util
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client, MCPError

import agent_memory.mcp
from agent_memory import AgentMemory, FileMemory, VectorMemory, WorkingMemory
from agent_memory.core.records import Scope
from agent_memory.core.tools import Arguments, Tool
from agent_memory.errors import InvalidId, MissingExtra
from agent_memory.mcp.server import build, read
from tests.integration.fact_model import Model, absorbed, dated, remembering
from tests.integration.mcp_calls import Mode, call, refusal, resource
from tests.kit import Silent, at_length

T = TypeVar("T")

OWN = {
    "search_memories": {"query": "nuts"},
    "add_memory": {"text": "Allergic to nuts."},
    "update_memory": {"id": "x", "text": "Allergic to nuts."},
    "delete_memory": {"id": "x"},
    "get_context": {"session_id": "sarahs"},
    "memory_read_message": {"session_id": "sarahs", "seq": 1},
}
"""The tools that every memory has, with valid arguments."""

IN_VAIN: list[tuple[str, dict[str, Any], str]] = [
    ("search_memories", {"since": "in March"}, "since"),
    ("search_memories", {"query": "x", "limit": 51}, "limit"),
    ("search_memories", {"query": 3}, "query"),
    ("add_memory", {"text": " "}, "empty"),
    ("add_memory", {"text": "x" * 4_001}, "4000"),
    ("get_context", {"session_id": "x" * 300}, "255"),
    ("memory_read_message", {"seq": 1}, "session_id: Field required"),
    ("memory_read_message", {"seq": 1, "session_id": "bens"}, "There is no session 'bens'"),
    ("memory_read_message", {"seq": 1, "session_id": "nobodys"}, "There is no session 'nobodys'"),
    ("memory_read_message", {"seq": 2, "session_id": "sarahs"}, "It has 1 to 1"),
    ("forget_everything", {}, "search_memories"),
]
"""Calls that must fail, with a word of their error."""

NOWHERE = [
    *("file:///etc/passwd", "", "memory://users", "memory://sessions?user_id=ben"),
    *(
        f"memory://sessions/{place}"
        for place in ("", "sarahs/", "sarahs?user_id=ben", "sarahs?after=-1", "sarahs#x",
                      "..%2Fsarahs", "x" * 300)
    ),
]  # fmt: skip
"""Invalid addresses."""


class Odd(Silent):
    """Offers a tool that fails or waits, under any name."""

    kind: Literal["odd"] = "odd"
    tool: str = "odd_fail"
    together: Any = None

    def tools(self) -> Sequence[Tool]:
        return [Tool(self.tool, "Fails.", Arguments, self._fail)]

    def _fail(self, scope: Scope, asked: Arguments) -> str:
        if self.together is None:
            raise RuntimeError("canary: the password is swordfish")
        self.together.wait(timeout=60)
        return f"{scope.user_id} was not alone."


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    """Sarah's session, Ben's, and one without a user, each with a canary."""
    blocks = [VectorMemory(), FileMemory(), WorkingMemory()]
    with AgentMemory(store="memory://", max_tokens=2_000, blocks=blocks) as memory:
        for session_id, user in (("sarahs", "sarah"), ("bens", "ben"), ("nobodys", None)):
            memory.update(session_id, dated(f"The canary of {session_id} sings."), user_id=user)
        memory.user("ben").notes().add("Ben's canary is yellow.")
        memory.flush()
        yield memory


def speak(
    memory: AgentMemory,
    talk: Callable[[Client], Awaitable[T]],
    user: str = "sarah",
    mode: Mode = "auto",
) -> T:
    """Run `talk` with a client of the memory's server, as a user, and return its result."""

    async def run() -> T:
        async with Client(build(memory, lambda asked: user), mode=mode) as client:
            return await talk(client)

    return anyio.run(run)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_adds_searches_changes_and_deletes_notes(memory: AgentMemory, mode: Mode) -> None:
    """Wrong: a note that a client adds is not found, changed or deleted."""

    async def talk(client: Client) -> None:
        note = await call(client, "add_memory", text="Allergic to nuts.")
        assert (note["kind"], note["text"]) == ("note", "Allergic to nuts.")
        assert await call(client, "add_memory", text="Allergic to nuts.") == note
        assert await call(client, "search_memories") == {"memories": [note]}
        found = (await call(client, "search_memories", query="nuts", limit=1))["memories"]
        assert found == [note]
        changed = await call(client, "update_memory", id=note["id"], text="Nuts are fine.")
        assert (changed["id"], changed["text"]) == (note["id"], "Nuts are fine.")
        assert note["id"] in await call(client, "delete_memory", id=note["id"])
        assert (await call(client, "search_memories"))["memories"] == []
        assert "search_memories" in await refusal(client, "delete_memory", id=note["id"])
        assert note["id"] in await refusal(client, "update_memory", id=note["id"], text="x")

    speak(memory, talk, mode=mode)
    assert memory.user("sarah").notes().all() == []


def test_a_search_returns_the_users_notes_and_messages(memory: AgentMemory) -> None:
    """Wrong: a search finds only notes, shows a message as a note, or finds another user's data."""

    async def talk(client: Client) -> list[dict[str, Any]]:
        await call(client, "add_memory", text="The canary is called Kiri.")
        return (await call(client, "search_memories", query="canary"))["memories"]

    found = speak(memory, talk)
    assert {(one["kind"], one["text"]) for one in found} == {
        ("note", "The canary is called Kiri."),
        ("message", "user: The canary of sarahs sings."),
    }


def test_search_pages_contain_every_memory_once(memory: AgentMemory) -> None:
    """Wrong: a page omits a memory or repeats one, or the last page names a next one."""
    for number in range(5):
        memory.user("sarah").notes().add(f"Note {number}.")

    async def talk(client: Client) -> list[list[str]]:
        pages, after = [], ""
        while True:
            page = await call(client, "search_memories", limit=2, after=after)
            pages.append([one["text"] for one in page["memories"]])
            after = page.get("next")
            if after is None:
                return pages

    wanted = [["Note 4.", "Note 3."], ["Note 2.", "Note 1."], ["Note 0."]]
    assert speak(memory, talk) == wanted
    assert "gone" in speak(memory, lambda client: refusal(client, "search_memories", after="gone"))


def test_a_client_lists_corrects_and_deletes_facts() -> None:
    """Wrong: facts of the user are not listed, corrected or deleted."""
    model = Model()
    model.tell("I live in Rome", "Lives in Rome.", category="home", since="2024")
    with remembering(model) as memory:
        absorbed(memory, "s1", dated("I live in Rome"))
        absorbed(memory, "s2", dated("I live in Rome"), user_id="ben")

        async def talk(client: Client) -> None:
            [fact] = (await call(client, "search_memories"))["memories"]
            assert (fact["kind"], fact["text"]) == ("fact", "Lives in Rome.")
            [found] = (await call(client, "search_memories", query="Rome"))["memories"]
            assert (found["kind"], found["id"]) == ("fact", fact["id"])
            note = await call(client, "update_memory", id=fact["id"], text="Lives in Bari.")
            assert (await call(client, "search_memories"))["memories"] == [note]
            assert fact["id"] in await refusal(client, "update_memory", id=fact["id"], text="x")
            assert fact["id"] in await refusal(client, "delete_memory", id=fact["id"])
            await call(client, "delete_memory", id=note["id"])
            assert (await call(client, "search_memories"))["memories"] == []

        speak(memory, talk, user="ada")
        assert [fact.text for fact in memory.user("ben").facts()] == ["Lives in Rome."]


def test_the_server_offers_the_file_tools_of_a_block(memory: AgentMemory) -> None:
    """Wrong: a block's tool is missing or reaches another's data, or one needs a session."""
    made = {"command": "create", "path": "/memories/plan.md", "file_text": "Learn Italian."}

    async def talk(client: Client) -> str:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == [*OWN, "files"]
        assert "no tool 'working_get'" in await refusal(client, "working_get")
        await call(client, "files", **made)
        return str(await call(client, "files", command="view", path="/memories"))

    assert "plan.md" in speak(memory, talk)
    look = speak(memory, lambda one: call(one, "files", command="view", path="/memories"), "ben")
    assert "plan.md" not in look


def test_get_context_returns_recalls_within_the_budget(memory: AgentMemory) -> None:
    """Wrong: a context lacks the session's messages or recalls, or exceeds its budget."""
    said_more = [dated(f"Word {n} " * 40, role=("user", "assistant")[n % 2]) for n in range(24)]
    memory.update("sarahs", said_more, user_id="sarah")
    memory.flush()

    async def talk(client: Client) -> Any:
        await call(client, "get_context", session_id="sarahs")
        return await call(client, "get_context", session_id="sarahs", query="What does it sing?")

    context = speak(memory, talk)
    assert context["tokens"] <= context["max_tokens"] == 2_000
    assert context["warnings"] == []
    *_, newest, recalled, question = context["messages"]
    assert newest["content"] == said_more[-1]["content"]
    assert "<memory>" in recalled["content"]
    assert question == {"role": "user", "content": "What does it sing?"}
    assert "The canary of sarahs sings." in json.dumps(context["messages"])


async def of_session(client: Client, session_id: str) -> set[str]:
    """Return the errors of a tool and a resource for a session, without its id."""
    told = await refusal(client, "get_context", session_id=session_id, query="canary")
    with pytest.raises(MCPError) as caught:
        await client.read_resource(f"memory://sessions/{session_id}")
    assert caught.value.error.code == -32602
    return {told.replace(session_id, "?"), caught.value.error.message.replace(session_id, "?")}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_cannot_read_sessions_of_another_user(memory: AgentMemory, mode: Mode) -> None:
    """Wrong: a client can read a session of another user or of none, or sees that it exists."""
    wanted = "There is no session '?'. memory://sessions lists the sessions."
    for session_id in ("bens", "nobodys", "nowhere"):
        ask = partial(of_session, session_id=session_id)
        assert speak(memory, ask, mode=mode) == {wanted}
    listed = speak(memory, lambda client: resource(client, "memory://sessions"), mode=mode)
    assert [one["session_id"] for one in listed["sessions"]] == ["sarahs"]
    log = speak(memory, lambda client: resource(client, "memory://sessions/sarahs"), mode=mode)
    said = [(one["seq"], one["content"]) for one in log["messages"]]
    assert said == [(1, "The canary of sarahs sings.")]
    assert (log["session_id"], log["next"]) == ("sarahs", None)


@settings(max_examples=at_length(25))
@given(st.text("/?#%+&=. aü", min_size=1) | st.text(min_size=1, max_size=20))
def test_any_id_can_be_part_of_an_address(session_id: str) -> None:
    """Wrong: the address of a session with an unusual id leads nowhere, or to another session."""
    with AgentMemory(store="memory://") as memory:
        try:
            memory.update(session_id, dated("here"), user_id="sarah")
        except InvalidId:
            return
        scope = Scope("sarah")
        [listed] = json.loads(read(memory, scope, "memory://sessions"))["sessions"]
        log = json.loads(read(memory, scope, listed["uri"]))
        assert (listed["session_id"], log["session_id"]) == (session_id, session_id)
        assert [one["content"] for one in log["messages"]] == ["here"]


def test_an_invalid_resource_uri_returns_an_error(memory: AgentMemory) -> None:
    """Wrong: an invalid address is served, or ends in an internal error."""

    async def talk(client: Client) -> set[int]:
        codes = set()
        for uri in NOWHERE:
            with pytest.raises(MCPError) as caught:
                await client.read_resource(uri)
            codes.add(caught.value.error.code)
        return codes

    assert speak(memory, talk) == {-32602}


def test_tools_take_no_user_and_have_read_and_write_hints(memory: AgentMemory) -> None:
    """Wrong: a tool takes a user's name, or its hint of reading or writing is wrong."""
    tools = speak(memory, lambda client: client.list_tools()).tools
    for tool in tools:
        assert tool.description
        assert tool.input_schema["additionalProperties"] is False, tool.name
        takes = set(tool.input_schema["properties"])
        assert not {name for name in takes if "user" in name or "owner" in name}, tool.name
        of_session = tool.name in ("get_context", "memory_read_message")
        assert ("session_id" in takes) == of_session, tool.name
    reads = {tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint}
    assert reads == {"search_memories", "get_context", "memory_read_message"}
    mild = {t.name for t in tools if t.annotations and t.annotations.destructive_hint is False}
    assert mild == {"add_memory"}


@pytest.mark.parametrize("more", [{"user_id": "ben"}, {"scope": {"user_id": "ben"}}])
def test_a_tool_rejects_arguments_naming_a_user(memory: AgentMemory, more: dict[str, Any]) -> None:
    """Wrong: an extra argument that names a user is used, or silently ignored."""

    async def talk(client: Client) -> None:
        for name, arguments in OWN.items():
            told = await refusal(client, name, **arguments, **more)
            assert told.startswith(f"{name} was called with bad arguments: {next(iter(more))}: ")
            assert "canary" not in told

    speak(memory, talk)
    assert memory.user("sarah").notes().all() == []


def test_a_tool_error_says_how_to_correct_the_call(memory: AgentMemory) -> None:
    """Wrong: the error of a tool call does not say what to do instead."""

    async def talk(client: Client) -> None:
        for name, arguments, told in IN_VAIN:
            assert told in await refusal(client, name, **arguments)

    speak(memory, talk)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_internal_errors_reach_only_the_log(mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: a client reads an exception's text, or the server's log lacks it."""
    memory = AgentMemory(store="memory://", blocks=[Odd()])

    async def talk(client: Client) -> str:
        told = await refusal(client, "odd_fail")
        memory.close()
        told += await refusal(client, "search_memories")
        with pytest.raises(MCPError) as caught:
            await client.read_resource("memory://sessions")
        assert caught.value.error.code == -32603
        return told + str(caught.value.error.message)

    with caplog.at_level(logging.ERROR):
        told = speak(memory, talk, mode=mode)
    down = "The memory is temporarily unavailable. Go on without it, and try again later."
    assert told == down * 3
    assert "swordfish" in caplog.text
    assert "MemoryClosed" in caplog.text


def test_a_missing_mcp_extra_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: without the SDK the import does not say which extra to install."""
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(MissingExtra, match=r"agent-memory-log\[mcp\]"):
            importlib.reload(agent_memory.mcp)
