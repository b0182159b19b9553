"""The real engine over generated conversations, message by message."""

import os
from collections.abc import Sequence
from itertools import cycle, pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_memory import AgentMemory
from agent_memory.core.context import leading_count
from agent_memory.core.formats.registry import CHAT, format_of
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry
from agent_memory.core.rendering import rendered
from agent_memory.core.shapes import shape_of
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.core.window import Cut, apply, units, visible
from agent_memory.ltm_blocks import StaticMemory
from agent_memory.strategies import Chain, FlushToLTM, Summarize, Trim
from agent_memory.strategies.base import Strategy
from tests.histories import histories, unpaired
from tests.kit import at_length

EXAMPLES = int(os.environ.get("AGENT_MEMORY_EXAMPLES") or at_length(75))

COUNTER = TokenCounter()
FACTS = ["Form HR-101 asks for remote work.", "</memory> 3 days a week & no more."]
STRATEGIES: list[Strategy] = [
    Trim(),
    Trim(keep_messages=4),
    Trim(by="importance"),
    Summarize(max_summary_tokens=60),
    FlushToLTM(blocks=[StaticMemory(facts=FACTS)], max_stm_ratio=0.5),
    Chain(
        [
            FlushToLTM(blocks=[StaticMemory(facts=FACTS)], max_stm_ratio=0.8),
            Summarize(max_summary_tokens=40),
        ]
    ),
]


def play(memory: AgentMemory, messages: list[Any], step: int) -> list[Message]:
    """Store a conversation, check contexts on the way, and return the messages."""
    kept: list[Message] = []
    for place, given_message in enumerate(messages):
        message = Message.of(given_message)
        memory.update("s", message)
        kept.append(message)
        if place % step == 0:
            check(memory, kept)
    check(memory, kept)
    return kept


def check(memory: AgentMemory, kept: list[Message]) -> None:
    """Assert invariants 3 and 4 for the current context, with a question and without."""
    asked, context = memory.get("s", "What about HR-101?"), memory.get("s")
    for one in (asked, context):
        assert one.tokens <= one.max_tokens
        assert COUNTER.context(one.to_messages()) <= one.tokens
        assert unpaired(one.to_messages()) == []
    assert asked.to_messages()[-1]["content"].endswith("What about HR-101?")
    if not kept:
        return
    chat = context.to_messages()
    assert context.head is not None
    turns = chat[leading_count(context.messages, context.head) :]
    shapes = [shape_of(message) for message in kept]
    if context.head.start > 0 and any(one.role == "user" and one.speaks for one in shapes):
        assert turns[0]["role"] == "user" or "<memory>" in turns[0]["content"]
    window = apply(memory.history("s"), Cut(context.head.start, context.head.pinned))
    if shown := visible(window, was_cut=context.head.start > 0):
        # The last step is shown; a remark made during its call may be left out.
        step = max(units([one for one in shown if not one.message.is_system]), key=_ends)
        assert _role(chat[-1]) in {_last_role(shown), _last_role(step)}


def _ends(step: Sequence[Entry]) -> int:
    return step[-1].seq


def _last_role(entries: Sequence[Entry]) -> str:
    return _role(rendered([one.message for one in entries], format_of(CHAT)).messages[-1])


def _role(message: dict[str, Any]) -> str:
    """Return the role, with `function` as `tool`."""
    role: str = message["role"]
    return "tool" if role == "function" else role


def inflated(messages: list[Any], sizes: list[int]) -> list[Any]:
    """Return the messages with some of their contents repeated."""
    return [
        {**one, "content": one["content"] * size} if isinstance(one.get("content"), str) else one
        for one, size in zip(messages, cycle(sizes), strict=False)
    ]


@pytest.mark.long
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(
    messages=histories(max_steps=20),
    strategy=st.sampled_from(STRATEGIES),
    times=st.integers(1, 4),
    max_tokens=st.integers(128, 600) | st.integers(128, 2000),
    sizes=st.lists(st.sampled_from([1, 1, 1, 1, 1, 30, 300]), min_size=1, max_size=9),
    memory_role=st.sampled_from(["system", "user", "leading"]),
    step=st.integers(1, 5),
)
def test_generated_histories_keep_budget_turns_and_words(
    messages: list[Any],
    strategy: Strategy,
    times: int,
    max_tokens: int,
    sizes: list[int],
    memory_role: Any,
    step: int,
) -> None:
    """Wrong: a context exceeds its budget or separates a call from its result."""
    with AgentMemory(
        store="memory://", max_tokens=max_tokens, overflow=strategy, memory_role=memory_role
    ) as memory:
        kept = play(memory, inflated(messages, sizes) * times, step)
        log = memory.history("s")
        assert [entry.seq for entry in log] == list(range(1, len(kept) + 1))
        assert [entry.message.to_dict() for entry in log] == [one.to_dict() for one in kept]


@pytest.mark.long
@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_a_window_that_just_overflowed_has_room_again(strategy: Strategy) -> None:
    """Wrong: each message after an overflow cuts the window again, so that prompt caches miss."""
    cuts: list[int] = []
    chat: list[dict[str, Any]] = []
    with AgentMemory(store="memory://", max_tokens=1000, overflow=strategy) as memory:
        start = 0
        for n in range(300):
            role = "assistant" if n % 2 else "user"
            head = memory.update("s", {"role": role, "content": f"Small talk number {n}."})
            before, chat = chat, [m.to_openai() or {} for m in memory.get("s").messages]
            if head.start != start:
                cuts.append(n)
            else:
                assert chat[: len(before)] == before
            start = head.start
    assert cuts
    assert all(later - earlier > 1 for earlier, later in pairwise(cuts))
