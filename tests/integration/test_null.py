"""`NullMemory`: memory switched off."""

from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, NullMemory, VectorMemory, WorkingMemory
from agent_memory.errors import ConfigError, InvalidId, InvalidMessage
from agent_memory.testing import FakeLLM

HELLO = {"role": "user", "content": "I like tea."}


def test_nothing_is_remembered(tmp_path: Path) -> None:
    """Wrong: a message, a note or a value comes back, or a file is made."""
    url = f"sqlite:///{tmp_path}/memory.db"
    config = AgentMemoryConfig(store=url, blocks=[VectorMemory(), WorkingMemory()], max_tokens=900)
    with NullMemory(config) as memory:
        memory.update("s", HELLO, user_id="ada")
        memory.user("ada").notes().add("Likes tea.")
        memory.session("s").working().set("plan", 1)
        memory.user("ada").files().create("/memories/a.txt", "tea")
        memory.user("ada").spatial().observe("tea", (1, 2))
        assert memory.call_tool("s", "memory_write", {"text": "tea"}).startswith("Noted")
        memory.flush()
        context = memory.get("s", "tea")
        assert (context.messages, context.recalls, context.max_tokens) == ([], [], 900)
        assert memory.history("s") == memory.sessions() == memory.search("tea", user_id="ada") == []
        assert memory.user("ada").notes().all() == memory.user("ada").files().paths() == []
        assert memory.session("s").working().all() == {}
        assert memory.user("ada").spatial().all() == []
        assert "Nothing" in memory.call_tool("s", "memory_read", {"query": "tea"})
        assert memory.pop("s") == memory.user("ada").facts() == memory.end("s") == []
        memory.delete("s")
        memory.delete_user("ada")
        assert memory.stats().sessions == 0
    assert isinstance(memory, AgentMemory)
    assert list(tmp_path.iterdir()) == []


def test_what_memory_refuses_is_refused_and_the_model_asked() -> None:
    """Wrong: a call that succeeds with memory switched off fails when it is switched on."""
    with NullMemory() as memory:
        with pytest.raises(InvalidMessage):
            memory.update("s", {"role": "nobody", "content": "x"})
        with pytest.raises(InvalidId):
            memory.update("", HELLO)
        with pytest.raises(ConfigError, match="skills"):
            memory.open("skills")
    with (
        FakeLLM("Hello!") as fake,
        NullMemory(model="openai/any", api_base=fake.api_base, api_key="k") as memory,
    ):
        for _ in range(2):
            answer = memory.completion("s", "I like tea.")
            assert answer.choices[0].message.content == "Hello!"
            assert fake.requests[-1]["messages"] == [HELLO]
        assert memory.history("s") == []
