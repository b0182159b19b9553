"""`prune`: a window is cut down on demand, and nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_memory import AgentMemory, Chain, FlushToLTM, Strategy, Summarize, Trim, VectorMemory
from agent_memory.errors import InvalidBudget, InvalidInput, SessionOfAnotherUser
from agent_memory.strategies import Cut, Window


class Keeps(Strategy):
    """Never cuts of its own accord."""

    kind: str = "keeps"

    def cut(self, window: Window) -> Cut | None:
        return None


STRATEGIES = [
    Trim(),
    Trim(by="importance"),
    Trim(take_messages=2),
    Summarize(max_summary_tokens=60),
    FlushToLTM(blocks=[VectorMemory(embedding=None)]),
    Chain([FlushToLTM(blocks=[VectorMemory(embedding=None)]), Summarize(max_summary_tokens=60)]),
    Keeps(),
]


@pytest.fixture(params=STRATEGIES, ids=repr)
def memory(request: pytest.FixtureRequest) -> Iterator[AgentMemory]:
    with AgentMemory("memory://", max_tokens=4000, overflow=request.param, blocks=[]) as memory:
        memory.update("s", {"role": "system", "content": "Be short."}, user_id="ana")
        for i in range(20):
            said = f"Item {i} is coded QX-{i}: " + "so it is " * 6
            memory.update("s", {"role": "user", "content": said}, user_id="ana")
            memory.update("s", {"role": "assistant", "content": "Noted."}, user_id="ana")
        yield memory


def test_a_window_is_cut_to_a_number_of_tokens(memory: AgentMemory) -> None:
    """Fails if more stays than was asked for, or the window begins within a turn; or much less
    stays than has room."""
    log = memory.history("s")
    before = memory.head("s")
    assert before is not None
    for tokens in (600, 300, 100):
        head = memory.prune("s", tokens, user_id="ana")
        assert tokens / 2 < head.window_tokens <= tokens
        shown = [one for one in memory.get("s").to_messages() if one["role"] != "system"]
        assert shown[0]["role"] == "user"
        assert shown[-1]["content"] == "Noted."
    assert head.version > before.version
    again = memory.prune("s", 100)
    assert (again.start, again.version) == (head.start, head.version)
    assert memory.history("s") == log  # the log is whole


def test_the_newest_step_stays(memory: AgentMemory) -> None:
    """Fails if a small number empties the window."""
    memory.prune("s", 1)
    assert [m.content for m in memory.get("s").messages][-1] == "Noted."


def test_what_leaves_goes_on_as_ever() -> None:
    """Fails if what is pruned is in no summary, and no block has it."""
    chain = Chain([FlushToLTM(blocks=[VectorMemory(embedding=None)]), Summarize()])
    with AgentMemory("memory://", max_tokens=4000, overflow=chain) as memory:
        for i in range(10):
            said = f"Item {i} is coded QX-{i}: " + "so it is " * 20
            memory.update("s", {"role": "user", "content": said})
        head = memory.prune("s", 200)
        assert head.summary is not None
        assert head.summary.upto == head.start == head.cursors["vector"]
        assert "QX-0" in head.summary.text


def test_what_cannot_be_pruned_is_said() -> None:
    """Fails if a mistake passes for a pruned window."""
    with AgentMemory("memory://", blocks=[]) as memory:
        memory.update("s", {"role": "user", "content": "Hi"}, user_id="ana")
        with pytest.raises(InvalidBudget):
            memory.prune("s", 0)
        with pytest.raises(InvalidInput):
            memory.prune("nowhere", 100)
        with pytest.raises(SessionOfAnotherUser):
            memory.session("s", "ben").prune(100)
