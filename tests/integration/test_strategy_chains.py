"""Chains of strategies under any log, and the clearing of old tool results."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_memory import AgentMemory, Entry, MemoryContext, Message, TokenCounter
from agent_memory.core.clearing import Clearing
from agent_memory.core.packing import Shown
from agent_memory.core.window import visible
from agent_memory.strategies import Chain, ClearTools, FlushToLTM, Strategy, Summarize, Trim
from agent_memory.testing import FakeLLM, check_context
from tests import histories
from tests.kit import Silent, assistant, at_length, user, with_model

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
            calls = histories.call(ids, "look", f'{{"at": "m{seq}x"}}')
            said = f"m{seq}x" if seq % 3 else None  # text next to the calls
            messages: list[Json] = [{**calls, "content": said}]
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


def test_cut_steps_before_the_first_user_message_cause_a_warning() -> None:
    """Wrong: an agent's steps before the first user message are cut without a warning."""
    with AgentMemory("memory://", max_tokens=400, overflow=Trim(), blocks=[]) as memory:
        for messages in logged([(0, [[100], [100], [100], [100]], 0)]):
            memory.update("s", messages)
        memory.update("s", {"role": "user", "content": "m9x"})
        context = memory.get("s")
    assert [one["content"] for one in context.to_messages()] == ["m9x"]
    assert context.warnings == ["Before the user's first message, 4 messages are left out."]


def call(number: int) -> dict[str, Any]:
    return histories.call([f"c{number}"], "read_log", f'{{"part": {number}}}')


def result(number: int, tokens: int, first: str = "") -> dict[str, Any]:
    text = f"{first}part {number}\n" + " ".join(f"w{number}" for _ in range(tokens // 2))
    return histories.result(f"c{number}", text)


def turn(number: int, tokens: int = 1500) -> list[dict[str, Any]]:
    question, answer = f"What does part {number} say?", f"Part {number} says w{number}."
    return [user(question), call(number), result(number, tokens), assistant(answer)]


def contents(messages: list[dict[str, Any]], role: str) -> list[str]:
    return [str(one["content"]) for one in messages if one["role"] == role]


@pytest.mark.parametrize("turns", [12, 40])
def test_old_results_become_stubs_and_all_answers_stay(turns: int) -> None:
    """Wrong: whole turns leave the window instead of old tool results."""
    with AgentMemory("memory://", max_tokens=6000, blocks=[]) as memory:
        for number in range(turns):
            memory.update("s", turn(number, 1500))
            context = memory.get("s")
            assert context.tokens <= 6000
        messages = context.to_messages()
        answers = [one for one in contents(messages, "assistant") if one != "None"]
        assert answers == [f"Part {number} says w{number}." for number in range(turns)]
        assert len(contents(messages, "user")) == turns
        results = contents(messages, "tool")
        assert len(results) == turns
        assert len(results[-1]) > 2000
        assert len(results[0]) < 300
        for said in ("read_log", '{"part": 0}', "part 0", "memory_read_message(seq=3)"):
            assert said in results[0]
        text = memory.call_tool("s", "memory_read_message", {"seq": 3})
        assert "w0 w0 w0" in text
        assert context.warnings == []


def test_old_calls_leave_before_answers() -> None:
    """Wrong: questions and answers leave the window before old calls with short results."""
    with AgentMemory("memory://", max_tokens=4000, blocks=[]) as memory:
        for number in range(0, 120, 3):
            steps = [one for part in range(3) for one in turn(number + part, 60)[1:3]]
            memory.update("s", [turn(number)[0], *steps, turn(number + 2)[3]])
            context = memory.get("s")
            assert context.tokens <= 4000
        messages = context.to_messages()
        answers = [one for one in contents(messages, "assistant") if one != "None"]
        assert answers == [f"Part {number + 2} says w{number + 2}." for number in range(0, 120, 3)]
        assert len(contents(messages, "user")) == 40
        results = contents(messages, "tool")
        assert results[0].startswith("[Old results of ")
        assert "read_log 3, 5, 7, 11" in results[0]
        assert results[-1].startswith("part 119\nw119 w119")
        text = memory.call_tool("s", "memory_read_message", {"seq": 11})
        assert "w3 w3 w3" in text


def test_clearing_keeps_the_text_of_calls_and_pinned_results() -> None:
    """Wrong: clearing removes the text of a message with calls, or a pinned result."""
    overflow = Chain([ClearTools(keep_tokens=0), Trim()])
    with AgentMemory("memory://", max_tokens=3000, overflow=overflow, blocks=[]) as memory:
        memory.update("s", turn(0, 60))
        memory.pin("s", 2)
        memory.update("s", turn(1, 60))
        speaks = {**call(2), "content": "I look into part 2 first."}
        memory.update("s", [turn(2)[0], speaks, *turn(2, 60)[2:]])
        for number in range(3, 30):
            memory.update("s", turn(number, 60))
        messages = memory.get("s").to_messages()
    texts = str(messages)
    assert "[Old results of " in texts
    assert assistant("I look into part 2 first.") in messages
    assert "part 0\\nw0" in texts


@pytest.mark.parametrize("form", ["openai.chat", "anthropic.messages", "google.contents"])
def test_a_pending_question_with_large_results_has_stubs(form: str) -> None:
    """Wrong: calls of the current turn leave the window with their results."""
    with AgentMemory("memory://", max_tokens=3000, blocks=[]) as memory:
        memory.update("s", asked := user("Compare the parts."))
        for number in range(0, 12, 2):
            both = histories.call([f"c{number}", f"c{number + 1}"], "read_log")
            step = [asked, both, result(number, 450), result(number + 1, 450)]
            memory.update("s", memory.get("t", window=step, format=form).to_messages()[1:])
        messages = memory.get("s").to_messages()
    results = contents(messages, "tool")
    assert contents(messages, "user") == ["Compare the parts."]
    assert (len(results), len(results[-1]) > 800) == (12, True)


def test_the_prefix_is_unchanged_between_two_clearings() -> None:
    """Wrong: each turn clears another result, so that prompt caches miss."""
    with AgentMemory("memory://", max_tokens=6000, blocks=[]) as memory:
        before: list[Any] = []
        changed = 0
        for number in range(24):
            memory.update("s", turn(number, 400))
            messages = memory.get("s").to_messages()
            changed += messages[: len(before)] != before
            before = messages
    assert 0 < changed < 8


def test_clearing_keeps_errors_pinned_results_and_small_results() -> None:
    """Wrong: an error, a pinned result or a small result becomes a stub."""
    overflow = Chain([ClearTools(keep_tokens=0), Trim()])
    with AgentMemory("memory://", max_tokens=4000, overflow=overflow, blocks=[]) as memory:
        memory.update("s", [*turn(0)[:2], result(0, 400, "Error: no such table\n"), turn(0)[3]])
        memory.update("s", turn(1, 400))
        memory.pin("s", 7)
        memory.update("s", [*turn(2)[:2], {**result(2, 3), "content": "ok"}, turn(2)[3]])
        for number in range(3, 7):
            memory.update("s", turn(number, 1000))
        results = contents(memory.get("s").to_messages(), "tool")
    assert results[0].startswith("Error: no such table\npart 0\nw0")
    assert results[1].startswith("part 1\nw1 w1")
    assert results[2] == "ok"
    assert results[3].startswith("[Old result of read_log(")


def test_a_clearing_that_frees_too_few_tokens_is_skipped() -> None:
    """Wrong: a clearing that frees less than `at_least` tokens changes the prefix."""
    overflow = Chain([ClearTools(keep_tokens=0, at_least=100_000), Trim()])
    with AgentMemory("memory://", max_tokens=4000, overflow=overflow, blocks=[]) as memory:
        for number in range(12):
            memory.update("s", turn(number))
        assert "Old result" not in str(memory.get("s").to_messages())


def test_old_results_are_listed_at_a_call_that_has_all_its_results() -> None:
    """Wrong: old results are listed at a call that is left out, because one of its results never
    came, so that nothing shows them."""
    log: list[Json] = [user("Go on."), histories.call(["c1", "c0"]), result(1, 300)]
    log += [call(2), result(2, 300), histories.call(["c3", "c4"]), result(3, 300)]
    entries = histories.log_of(log, TokenCounter().message)
    cleared = Clearing(keep_tokens=0, at_least=1).clear(entries, 60, TokenCounter()).entries
    shown = [entry.message.text() for entry in visible(cleared, was_cut=False)]
    assert "[Old results of 2 calls, by seq: search 3; read_log 5" in shown[-1]


def test_a_block_may_recall_a_result_that_is_shown_as_a_stub() -> None:
    """Wrong: a result shown as a stub counts as shown, so that no block may recall it."""
    counter = TokenCounter()
    entries = [
        Entry("s", seq, message, 400, 0, counter.encoding, message.created_at)
        for seq, message in enumerate(map(Message.of, [*turn(0, 400), *turn(1, 400)]), 1)
    ]
    shown = Clearing(keep_tokens=400, at_least=1).clear(entries, 2400, counter).entries
    assert Shown([], [], shown, [], 0).sources == {("s", seq) for seq in (1, 2, *range(4, 9))}
