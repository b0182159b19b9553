"""Hermes Agent's memory provider over a memory, under Hermes' own manager of providers."""

import json
from pathlib import Path
from typing import Any

import pytest
from agent.memory_manager import MemoryManager
from plugins.memory import load_memory_provider

from agent_memory import AgentMemory
from agent_memory.integrations.hermes import AgentMemoryProvider
from tests.kit import texts

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}


def managed(memory: AgentMemory, session: str, **told: Any) -> MemoryManager:
    manager = MemoryManager()
    manager.add_provider(AgentMemoryProvider(memory))
    manager.initialize_all(session_id=session, **{"platform": "cli", **told})
    return manager


def chat_of(*texts: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": one} for at, one in enumerate(texts)]


def synced(manager: MemoryManager, session: str, messages: list[dict[str, Any]]) -> None:
    user, answer = messages[-2]["content"], messages[-1]["content"]
    manager.sync_all(user, answer, session_id=session, messages=messages)
    assert manager.flush_pending(60)


def test_turns_are_stored_once_and_recalled(memory: AgentMemory) -> None:
    """Wrong: a turn is lost or doubled, a second "yes" dropped, or another user sees a session."""
    manager = managed(memory, "s1")
    talk = chat_of("My boat is called Esperanza.", "Shall I note it?", "Yes.", "Done.")
    synced(manager, "s1", talk[:2])
    synced(manager, "s1", talk)
    synced(manager, "s1", [*talk, *chat_of("Yes.", "Done.")])
    manager.on_session_end([*talk, *chat_of("Yes.", "Done.")])
    assert texts(memory, "hermes/s1") == [one["content"] for one in talk] + ["Yes.", "Done."]
    manager.on_session_switch("s2", parent_session_id="s1", reset=True)
    assert "Esperanza" in manager.prefetch_all("What is my boat called?", session_id="s2")
    found = json.loads(manager.handle_tool_call("memory_read", {"query": "boat"}))
    assert "Esperanza" in found["result"]
    other = managed(memory, "s3", platform="telegram", user_id="7")
    assert other.prefetch_all("What is my boat called?", session_id="s3") == ""
    synced(other, "s3", chat_of("Hello.", "Hello!"))
    assert [one.session_id for one in memory.sessions(user_id="telegram:7")] == ["telegram:7/s3"]


def test_only_stored_messages_are_compressed(memory: AgentMemory, tmp_path: Path) -> None:
    """Wrong: a compression drops messages that are not stored, doubles them, or hides a failure."""
    manager = managed(memory, "s1")
    (provider,) = manager.providers
    turn = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "What is there?", "timestamp": 1.5},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning": "hm"},
        {"role": "tool", "tool_call_id": "c1", "content": "a b c"},
    ]
    assert "memory_read" in manager.on_pre_compress(turn)
    assert texts(memory, "hermes/s1")[0] == "What is there?"
    assert memory.checkpoint("hermes/s1").end == 3
    manager.on_session_switch("s2", parent_session_id="s1", reason="compression")
    shorter = [{"role": "user", "content": "[SUMMARY]"}, *turn[2:]]
    synced(manager, "s2", [*shorter, {"role": "assistant", "content": "Three files."}])
    assert len(texts(memory, "hermes/s1")) == 4
    assert memory.head("hermes/s2") is None
    resumed = managed(memory, "s2")
    synced(resumed, "s2", [*shorter, *chat_of("Which?", "Three files.", "Yes.", "Good.")])
    assert texts(memory, "hermes/s1")[-2:] == ["Yes.", "Good."]
    assert provider.pre_compress_checkpoint_api_version == 2
    memory.close()
    with pytest.raises(Exception, match=r"closed|Open"):
        provider.on_pre_compress(chat_of("More.", "Yes?"))


def test_undone_turns_are_not_restored_and_jobs_have_no_user(memory: AgentMemory) -> None:
    """Wrong: after /undo the transcript is stored again, or a scheduled job as the user's."""
    manager = managed(memory, "s1")
    talk = chat_of("One?", "Yes.", "Two?", "No.")
    synced(manager, "s1", talk)
    manager.on_session_switch("s1", rewound=True)
    synced(manager, "s1", [*talk[:2], *chat_of("Three?", "Perhaps.")])
    assert texts(memory, "hermes/s1") == ["One?", "Yes.", "Two?", "No.", "Three?", "Perhaps."]
    job = managed(memory, "j1", agent_context="cron")
    synced(job, "j1", chat_of("Run the report.", "Done."))
    assert memory.head("cron/j1") is None
    job.on_pre_compress(chat_of("Run the report.", "Done."))
    head = memory.head("cron/j1")
    assert (head.end, head.user_id) == (2, None)


def test_hermes_loads_a_provider_from_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the documented lines load no provider, or use another database."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    monkeypatch.delenv("AGENT_MEMORY_STORE", raising=False)
    plugin = tmp_path / "plugins" / "agent_memory"
    plugin.mkdir(parents=True)
    (plugin / "__init__.py").write_text(
        "from agent_memory.integrations.hermes import AgentMemoryProvider\n\n\n"
        "def register(ctx):\n    ctx.register_memory_provider(AgentMemoryProvider())\n"
    )
    provider = load_memory_provider("agent_memory")
    assert provider.is_available()
    manager = MemoryManager()
    manager.add_provider(provider)
    manager.initialize_all(session_id="s1")
    assert {"memory_read", "memory_write"} <= manager.get_all_tool_names()
    manager.shutdown_all()
    assert (tmp_path / "agent_memory.db").exists()
