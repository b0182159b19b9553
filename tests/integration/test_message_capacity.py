"""`max_messages`, the capacity of a window in messages, with every strategy."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_memory import AgentMemory, AgentMemoryConfig, MemoryContext, Strategy, Summarize, Trim
from agent_memory.core.context import leading_count
from agent_memory.core.messages import Message
from agent_memory.core.transcript import full_text
from agent_memory.core.window import choose_cut, late_results, visible
from agent_memory.errors import InvalidSetting
from agent_memory.strategies import Chain, Cut, FlushToLTM, Window
from tests.histories import PLENTY, call, histories, least, result, unpaired
from tests.kit import at_length


class Never(Strategy):
    """A custom strategy that cuts nothing."""

    kind: str = "never"

    def cut(self, window: Window) -> Cut | None:
        return None


class ByTokens(Strategy):
    """A custom strategy that considers only tokens."""

    kind: str = "by_tokens"

    def cut(self, window: Window) -> Cut | None:
        return choose_cut(window.entries, window.limit)


class PinsAll(Strategy):
    """A custom strategy that pins all that it cuts."""

    kind: str = "pins_all"

    def cut(self, window: Window) -> Cut | None:
        seqs = [entry.seq for entry in window.entries]
        return Cut(seqs[-2], tuple(seqs[:-2]))


STRATEGIES: list[Strategy] = [
    Trim(), Trim(keep_messages=3), Trim(keep_messages=500), Trim(by="importance"),
    Trim(by="importance", keep_messages=500), Summarize(), Summarize(keep_messages=500),
    FlushToLTM(), Chain([FlushToLTM(max_stm_ratio=0.8), Summarize()]), Chain([Never(), Trim()]),
    Never(), ByTokens(), PinsAll(),
]  # fmt: skip
OF_ITS_OWN = {"never", "by_tokens", "pins_all"}


def named(strategy: Strategy) -> str:
    return f"{strategy.kind}-{STRATEGIES.index(strategy)}"


def opened(**fields: Any) -> AgentMemory:
    return AgentMemory(
        **{"store": "memory://", "max_tokens": PLENTY, "blocks": [], "recall_timeout": 60, **fields}
    )


def user(i: int) -> dict[str, Any]:
    return {"role": "user", "content": f"Question {i}: what is the code QX-{i}?"}


def answer(i: int) -> dict[str, Any]:
    return {"role": "assistant", "content": f"The code is QX-{i}."}


def shown(context: MemoryContext) -> list[Message]:
    return context.messages[leading_count(context.messages) :]


def held(memory: AgentMemory) -> int:
    """Return the number of messages in the window, from the head."""
    head = memory.get("s").head
    return head.end - head.start + len(head.pinned)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=named)
def test_no_context_exceeds_the_message_capacity(strategy: Strategy) -> None:
    """Wrong: with some strategy a context shows more messages than the capacity."""
    starts: list[int] = []
    with opened(max_messages=10, overflow=strategy) as memory:
        for i in range(40):
            for message in (user(i), answer(i)):
                head = memory.update("s", message)
                starts.append(head.start)
                turns = shown(memory.get("s"))
                assert 0 < len(turns) <= 10
                assert head.end - head.start + len(head.pinned) <= 10
                assert turns[0].role == "user"
                assert turns[-1].content == message["content"]
    cuts = len(set(starts)) - 1
    assert cuts >= 1
    if strategy.kind not in OF_ITS_OWN and "importance" not in repr(strategy):
        assert cuts <= 80 // 3


@settings(max_examples=at_length(30), suppress_health_check=list(HealthCheck))
@given(
    messages=histories(max_steps=20),
    strategy=st.sampled_from(STRATEGIES),
    most=st.integers(2, 12),
    mode=st.sampled_from(["one", "all"]),
)
def test_awkward_conversations(
    messages: list[Any], strategy: Strategy, most: int, mode: str
) -> None:
    """Wrong: a context exceeds the capacity, parts a call and its result, or lacks the newest."""
    with opened(max_messages=most, overflow=strategy) as memory:
        if mode == "all":
            memory.update("s", messages)
            within(memory, most)
            return
        for message in messages:
            memory.update("s", message)
            within(memory, most)


def within(memory: AgentMemory, most: int) -> None:
    context, log = memory.get("s"), memory.history("s")
    turns, head = shown(context), context.head
    assert unpaired(context.to_messages()) == []
    entries = visible(log, was_cut=False)
    assert len(turns) <= max(most, least(entries))
    window = [entry for entry in log if entry.seq > head.start or entry.seq in head.pinned]
    late = late_results(window) if head.start else ()  # shown as text
    if len(entries) <= most and not late:
        assert turns == [entry.message for entry in entries]
    paired = visible(window, was_cut=False)
    for entry in [entry for entry in window if entry in paired or entry.seq in late][-1:]:
        as_text = entry.seq in late and full_text(entry.message) in turns[-1].text()
        assert as_text or turns[-1] == entry.message


def test_a_tool_call_and_its_results_are_never_split() -> None:
    """Wrong: a call with more results than the capacity loses some of them, or its question."""
    ids = [f"c{i}" for i in range(6)]
    with opened(max_messages=4, overflow=Trim()) as memory:
        for i in range(3):
            memory.update("s", [user(i), answer(i)])
        memory.update("s", user(3))
        memory.update("s", call(ids))
        memory.update("s", [result(one) for one in ids])
        turns = shown(memory.get("s"))
        assert [turn.role for turn in turns] == ["user", "assistant", *["tool"] * 6]
        assert turns[0].content == user(3)["content"]
        memory.update("s", answer(3))
        assert [turn.role for turn in shown(memory.get("s"))] == ["user", "assistant"]


def test_the_system_message_does_not_count() -> None:
    """Wrong: a system message counts toward the capacity."""
    with opened(max_messages=4, overflow=Trim()) as memory:
        for i in range(2):
            memory.update("s", {"role": "system", "content": f"Rules {i}."})
            memory.update("s", [user(i), answer(i)])
        head = memory.update("s", {"role": "system", "content": "Rules 2."})
        assert head.start == 0
        context = memory.get("s")
        assert len(shown(context)) == 4
        assert context.messages[0].content == "Rules 2."
        assert memory.update("s", user(3)).start > 0


def test_a_lowered_capacity_applies_immediately(tmp_path: Any) -> None:
    """Wrong: a context exceeds a capacity that was lowered after the window was filled."""
    store = f"sqlite:///{tmp_path}/m.db"
    with opened(store=store) as memory:
        for i in range(20):
            memory.update("s", [user(i), answer(i)])
        assert len(shown(memory.get("s"))) == 40
    with opened(store=store, max_messages=8, overflow=Trim()) as memory:
        assert len(shown(memory.get("s"))) == 8
        memory.update("s", user(20))
        assert held(memory) <= 8


@pytest.mark.parametrize("bad", [1, 0, -3, 2.5])
def test_a_capacity_for_less_than_a_turn_is_refused(bad: float) -> None:
    """Wrong: a capacity too small for a question and its answer is accepted."""
    with pytest.raises(InvalidSetting, match="max_messages"):
        AgentMemoryConfig(max_messages=bad)
