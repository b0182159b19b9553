"""Claude's memory tool over our files, driven by Anthropic's SDK."""

import asyncio
import importlib
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anthropic import Anthropic
from anthropic.lib.tools import ToolError
from anthropic.types.beta import BetaMemoryTool20250818ViewCommand

from agent_memory import AgentMemory, FileMemory, MissingExtra
from agent_memory.integrations.anthropic import AsyncMemoryTool, MemoryTool
from agent_memory.stores import MemoryStore
from agent_memory.testing import watched
from tests.servers.anthropic import FakeClaude

PLAN = "/memories/plan.md"
BETA = "context-management-2025-06-27"


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    with AgentMemory(store="memory://", blocks=[FileMemory()]) as memory:
        yield memory


@pytest.fixture
def claude() -> Iterator[FakeClaude]:
    with FakeClaude() as claude:
        yield claude


SCRIPT = [
    [{"command": "create", "path": PLAN, "file_text": "one\ntwo\n"}],
    [
        {"command": "create", "path": PLAN, "file_text": "again"},
        {"command": "str_replace", "path": PLAN, "old_str": "two", "new_str": "three"},
        {"command": "view"},
        {"command": "format", "path": "/memories"},
        {"command": "rename", "old_path": PLAN, "new_path": "/memories/trip/plan.md"},
    ],
]
RESULTS = [
    (False, f"File created successfully at: {PLAN}"),
    (True, f"File {PLAN} already exists"),
    (
        False,
        "The memory file has been edited. Here is the snippet showing the change (with line "
        "numbers):\n     1\tone\n     2\tthree\n     3\t",
    ),
    (True, "The command view also needs path."),
    (
        True,
        "memory was called with bad arguments: command: Input should be 'view', 'create', "
        "'str_replace', 'insert', 'delete' or 'rename'.",
    ),
    (False, f"Successfully renamed {PLAN} to /memories/trip/plan.md"),
]
ASKED: dict[str, Any] = {
    "model": "claude-test",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Plan my trip."}],
    "betas": [BETA],
}


def test_a_scripted_conversation_succeeds(claude: FakeClaude, memory: AgentMemory) -> None:
    """Wrong: the SDK cannot run the tool, a reply is worded otherwise, or an error is unmarked."""
    for commands in SCRIPT:
        claude.ask(*commands)
    claude.say("Done.")
    with Anthropic(base_url=claude.url, api_key="none", max_retries=0) as client:
        tool = MemoryTool(memory, user_id="ana")
        answer = client.beta.messages.tool_runner(tools=[tool], **ASKED).until_done()
        assert [block.text for block in answer.content if block.type == "text"] == ["Done."]
    assert claude.results() == RESULTS
    assert memory.user("ana").files().read("/memories/trip/plan.md") == "one\nthree\n"
    assert memory.user("ben").files().paths() == []
    assert claude.requests[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    for request in claude.requests:
        assert request["path"].startswith("/v1/messages")
        assert BETA in request["headers"]["anthropic-beta"].split(",")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_commands_do_not_block_the_event_loop(backend: str) -> None:
    """Wrong: a command runs in the event loop's thread and blocks all other tasks."""
    threads: set[int] = set()
    store = watched(MemoryStore(), lambda _: threads.add(threading.get_ident()))

    async def run() -> None:
        with AgentMemory(store=store, blocks=[FileMemory()]) as memory:
            tool = AsyncMemoryTool(memory, user_id="ana")
            threads.clear()
            await tool.call({"command": "create", "path": PLAN, "file_text": "one"})
            await tool.clear_all_memory()
            assert threads
            assert threading.get_ident() not in threads

    anyio.run(run, backend=backend)


def test_parsed_commands_are_executed(memory: AgentMemory) -> None:
    """Wrong: a command that the SDK has already parsed is not run."""
    memory.user("ana").files().create(PLAN, "one\ntwo")
    command = BetaMemoryTool20250818ViewCommand(command="view", path=PLAN, view_range=[2, 2])
    reply = f"Here's the content of {PLAN} with line numbers:\n     2\ttwo"
    tool = MemoryTool(memory, user_id="ana")
    assert tool.view(command) == tool.execute(command) == reply
    later = AsyncMemoryTool(memory, user_id="ana")
    assert asyncio.run(later.view(command)) == asyncio.run(later.execute(command)) == reply


def test_clear_all_memory_deletes_only_files_of_its_user(memory: AgentMemory) -> None:
    """Wrong: clearing leaves files of the user, or deletes files of another user."""
    for user in ("ana", "ben", "eva"):
        memory.user(user).files().create(PLAN, "one")
    assert MemoryTool(memory, user_id="ana").clear_all_memory() == "All memory cleared"
    cleared = asyncio.run(AsyncMemoryTool(memory, user_id="ben").clear_all_memory())
    assert cleared == "All memory cleared"
    assert [memory.user(user).files().paths() for user in ("ana", "ben", "eva")] == [[], [], [PLAN]]


def test_an_outage_raises_a_tool_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: an outage is no `ToolError`, its error names the database, or no log reports it."""
    memory = AgentMemory(store=f"sqlite:///{tmp_path}/secret-name.db", blocks=[FileMemory()])
    tool = MemoryTool(memory, user_id="ana")
    memory.close()
    with caplog.at_level(logging.ERROR), pytest.raises(ToolError, match="be reached") as told:
        tool.call({"command": "view", "path": "/memories"})
    assert "secret-name" not in str(told.value)
    assert "the memory tool failed" in caplog.text


def test_a_missing_sdk_raises_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: without the extra the error does not say what to install."""
    monkeypatch.setitem(sys.modules, "anthropic", None)
    monkeypatch.delitem(sys.modules, "agent_memory.integrations.anthropic")
    with pytest.raises(MissingExtra, match=r'pip install "agent-memory-log\[anthropic\]"'):
        importlib.import_module("agent_memory.integrations.anthropic")
