"""Any log under any chain: within the budget, valid, and no message left out silently."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_memory import (
    AgentMemory,
    Chain,
    ClearTools,
    Entry,
    FlushToLTM,
    MemoryContext,
    Strategy,
    Summarize,
    Trim,
)
from agent_memory.testing import FakeLLM, check_context
from tests.kit import Silent, at_length, with_model

Json = dict[str, Any]

FORMATS = ("openai.chat", "openai.responses", "anthropic.messages", "google.contents")
SAID = re.compile(r"\b(left out|shortened)\b")
REFUSAL = "I'm sorry, but I can't help with that request."
SUMMARY = "Open:\n- Ana waits for the report.\nEarlier:\n- They looked at parts."


def strategies() -> st.SearchStrategy[Strategy]:
    some = st.sampled_from
    clear = st.builds(ClearTools, keep_tokens=some([None, 0, 200]), at_least=some([None, 1, 5000]))
    summarize = st.builds(
        Summarize,
        max_summary_tokens=some([60, 120]),
        keep_user_tokens=some([None, 0, 80]),
        max_messages=some([None, 6]),
    )
    trim = st.builds(Trim, max_turns=some([None, 3]), by=some(["age", "importance"]))
    flush = st.builds(FlushToLTM, blocks=st.just([Silent()]), max_stm_ratio=some([0.5, 1.0]))
    return st.permutations([clear, summarize, st.one_of(trim, flush)]).flatmap(
        lambda parts: st.integers(1, 3).flatmap(
            lambda count: st.tuples(*parts[:count]).map(lambda members: Chain(members))
        )
    )


def turns() -> st.SearchStrategy[list[tuple[int, list[list[int]], int]]]:
    """Word counts of the question, of each step's results, and of the answer; 0 for none."""
    words = st.sampled_from([0, 1, 5, 40, 400])
    steps = st.lists(
        st.lists(st.sampled_from([1, 10, 100, 900]), min_size=1, max_size=3), max_size=4
    )
    return st.lists(st.tuples(words, steps, words), min_size=4, max_size=14)


def logged(turns: Sequence[tuple[int, list[list[int]], int]]) -> Iterator[list[Json]]:
    """Yield the messages of each step; each has a text with its number, such as `m7x`."""
    seq = 0

    def text(words: int) -> str:
        return f"m{seq}x " + "word " * words

    for question, steps, answer in turns:
        if question:
            seq += 1
            yield [{"role": "user", "content": text(question)}]
        for results in steps:
            seq += 1
            ids = [f"c{seq}-{place}" for place in range(len(results))]
            function = {"name": "look", "arguments": f'{{"at": "m{seq}x"}}'}
            calls = [{"id": one, "type": "function", "function": function} for one in ids]
            said = f"m{seq}x" if seq % 3 else None  # text next to the calls
            messages: list[Json] = [{"role": "assistant", "content": said, "tool_calls": calls}]
            for one, words in zip(ids, results, strict=True):
                seq += 1
                messages.append({"role": "tool", "tool_call_id": one, "content": text(words)})
            yield messages
        if answer:
            seq += 1
            yield [{"role": "assistant", "content": text(answer)}]


def missing(context: MemoryContext, entries: Sequence[Entry]) -> list[int]:
    """Return the seqs of a log that a context neither shows nor names in a stub."""
    shown = str(context.to_messages())
    stubs = re.findall(r"\[Old results? of.*?\]", shown)
    named = {int(seq) for stub in stubs for seq in re.findall(r"\d+", stub)}
    named |= {seq - 1 for seq in named if f"m{seq - 1}x" not in shown}  # the call before a result
    return [one.seq for one in entries if f"m{one.seq}x" not in shown and one.seq not in named]


def covered(context: MemoryContext, strategy: Strategy) -> int:
    """Return the seq up to which a summary, a block or a warning covers the cut messages."""
    head = context.head
    upto = [head.summary.upto if head.summary else 0, *head.cursors.values()]
    ends = re.findall(r"messages \d+ to (\d+) that left", str(context.warnings))
    upto += map(int, ends)
    summarizes = any(isinstance(one, Summarize) for one in strategy.parts)
    return max(upto) if summarizes or strategy.ltm_blocks else head.start


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeLLM]:
    with FakeLLM() as fake:
        yield fake


@given(
    turns=turns(),
    strategy=strategies(),
    budget=st.sampled_from([400, 1000, 3000]),
    answer=st.sampled_from([SUMMARY, REFUSAL, "none", "word " * 3000]),
)
@settings(max_examples=at_length(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_log_under_any_chain(
    fake: FakeLLM,
    turns: list[tuple[int, list[list[int]], int]],
    strategy: Strategy,
    budget: int,
    answer: str,
) -> None:
    """Wrong: a context is too long or invalid, or a message is missing without a warning."""
    fake.default = answer
    with with_model(fake, max_tokens=budget, overflow=strategy) as memory:
        for messages in logged(turns):
            memory.update("s", messages)
            context = memory.get("s")
            assert context.tokens <= budget
            head = context.head
            assert head is not None
            left = missing(context, memory.history("s"))
            gone = [seq for seq in left if seq <= head.start]
            assert all(seq <= covered(context, strategy) for seq in gone)
            assert left == gone or any(SAID.search(one) for one in context.warnings)
        for form in FORMATS:
            check_context(form, memory.get("s", format=form).to_arguments())


def test_steps_before_the_first_user_message_are_named() -> None:
    """Wrong: an agent's steps before the first user message are cut without a warning."""
    with AgentMemory("memory://", max_tokens=400, overflow=Trim(), blocks=[]) as memory:
        for messages in logged([(0, [[100], [100], [100], [100]], 0)]):
            memory.update("s", messages)
        memory.update("s", {"role": "user", "content": "m9x"})
        context = memory.get("s")
    assert [one["content"] for one in context.to_messages()] == ["m9x"]
    assert context.warnings == ["Before the user's first message, 4 messages are left out."]
