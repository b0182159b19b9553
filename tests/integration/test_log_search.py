"""Search in the log of a session when no block absorbs it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_memory import AgentMemory, StaticMemory, Trim, VectorMemory

SAID = [
    {"role": "system", "content": "You know all about Figaro."},
    {"role": "user", "content": "My parrot is called Figaro, and he is green and very loud."},
    {"role": "assistant", "content": "What a fine name for a parrot! Does he talk, too?"},
    {"role": "user", "content": "He does. I bought him in Lisbon, from a sailor, years ago."},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function",
     "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "Figaro Figaro Figaro"},
    {"role": "assistant", "content": "Lisbon is a city of ships, and of sailors who sell birds."},
]  # fmt: skip


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    url = f"sqlite:///{tmp_path / 'm.db'}"
    with AgentMemory(store=url, max_tokens=400, overflow=Trim(), blocks=[]) as memory:
        yield memory


def test_a_session_is_searched_without_any_block(memory: AgentMemory) -> None:
    """Wrong: without blocks, a search of a session finds nothing."""
    memory.update("s", SAID, user_id="u")
    for number in range(40):
        memory.update("s", {"role": "user", "content": f"Something else, {number}, at length."})
    found = memory.search("What is the parrot called?", session_id="s")
    assert found[0].text == f"user: {SAID[1]['content']}"
    assert found[0].sources == (("s", 2),)
    assert (found[0].block, found[0].tokens > 5, found[0].score > 0) == ("log", True, True)
    assert max(source[1] for one in found for source in one.sources) <= 7 + 4
    assert memory.search("Where was he bought?", session_id="s", limit=1)[0].sources == (("s", 4),)


def test_what_bears_on_nothing_is_not_found(memory: AgentMemory) -> None:
    """Wrong: a search returns messages that are not relevant."""
    memory.update("s", SAID, user_id="u")
    assert memory.search("quantum chromodynamics", session_id="s") == []
    assert memory.search("parrot", session_id="nobody") == []
    assert memory.search("parrot", user_id="nobody") == []


def test_blocks_that_absorb_answer_alone(tmp_path: Path) -> None:
    """Wrong: a search returns a message twice, from a block and from the log."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    with AgentMemory(store=url, blocks=[StaticMemory(facts=["Parrots are birds."])]) as memory:
        memory.update("s", SAID, user_id="u")
        found = memory.search("What is a parrot?", session_id="s")
        assert {one.block for one in found} == {"static", "log"}
    with AgentMemory(store=url, blocks=[VectorMemory()]) as memory:
        memory.flush()
        assert {one.block for one in memory.search("parrot", session_id="s")} == {"vector"}
