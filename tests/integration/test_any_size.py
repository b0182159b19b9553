"""Messages of any size: stored whole, shown in part with a mark, and read page by page."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, ConfigError, InvalidInput, MemoryContext, TokenCounter, Trim
from agent_memory.core.formats.registry import ANTHROPIC, CHAT, CONVERSE, GOOGLE, RESPONSES
from agent_memory.core.transcript import full_text
from agent_memory.strategies import FlushToLTM, Strategy, Summarize
from agent_memory.testing import FakeLLM, check_context
from tests.histories import call, result, unpaired
from tests.kit import assistant, model_at, user

COUNTER = TokenCounter()
STRATEGIES: list[Strategy] = [Trim(), Trim(by="importance"), Summarize(), FlushToLTM()]


def opened(**fields: Any) -> AgentMemory:
    """Open a memory that recalls nothing: contexts show only the window."""
    return AgentMemory(store="memory://", blocks=(), **fields)


def words(tokens: int, word: str = "word") -> str:
    return f"{word} " * tokens


def chat_shown(context: MemoryContext) -> list[tuple[str, str]]:
    chat = context.to_messages()
    assert COUNTER.context(chat) <= context.tokens <= context.max_tokens
    assert unpaired(chat) == []
    return [(one["role"], str(one["content"]).split()[0]) for one in chat]


@pytest.mark.parametrize("form", [CHAT, RESPONSES, ANTHROPIC, GOOGLE, CONVERSE])
def test_a_result_whose_call_has_left_the_window_is_shown(form: str) -> None:
    """Wrong: the newest message is in no context, because its tool took many turns."""
    with opened(max_tokens=1_000) as memory:
        memory.update("s", [user("Start the job."), call(["c1"])])
        for number in range(40):
            memory.update("s", [user(words(20, f"q{number}")), assistant(words(20, "a"))])
        assert memory.update("s", result("c1", "Accuracy .9417")).start > 2
        for question in (None, "Well?"):
            context = memory.get("s", question, format=form)
            check_context(form, context.to_arguments())
            assert "no longer shown" in str(context.to_messages())
            assert ".9417" in str(context.to_messages())
            assert (context.warnings, context.tokens <= 1_000) == ([], True)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: repr(one)[:30])
@pytest.mark.parametrize(("max_tokens", "size"), [(16_000, 26_000), (4_000, 5_744)])
def test_a_long_message_is_only_shown_shortened(
    strategy: Strategy, max_tokens: int, size: int
) -> None:
    """Wrong: `update` refuses a long message, the log stores it cut, or a context omits it."""
    pasted = "first " + words(size - 10) + "last"
    with opened(max_tokens=max_tokens, overflow=strategy) as memory:
        memory.update("s", [user("hello"), assistant("hi")])
        memory.update("s", user(pasted))
        context = memory.get("s")
        assert chat_shown(context)[-1] == ("user", "first")
        shown = context.to_messages()[-1]["content"]
        assert shown.endswith("last")
        assert COUNTER.text(shown) > max_tokens // 2
        assert any("newest turn" in warning for warning in context.warnings)
        memory.update("s", assistant("What a text."))
        assert chat_shown(memory.get("s"))[-2:] == [("user", "first"), ("assistant", "What")]
        assert memory.history("s")[2].message.content == pasted


def test_a_mark_states_the_omitted_characters_and_the_offset() -> None:
    """Wrong: the mark names a wrong number of characters or a wrong offset."""
    pasted = " ".join(f"w{n}" for n in range(9_000))
    with opened(max_tokens=1_000, overflow=Trim()) as memory:
        memory.update("s", user(pasted))
        shown = memory.get("s").to_messages()[0]["content"]
    begun, mark, ended = shown.split("\n")
    found = re.fullmatch(
        r"\[… ([\d,]+) characters left out; "
        r"memory_read_message\(seq=1, offset=(\d+)\) reads on …\]",
        mark,
    )
    missing, offset = int(found[1].replace(",", "")), int(found[2])
    assert pasted.startswith(begun)
    assert pasted.endswith(ended)
    assert pasted[:offset].strip() == begun
    assert pasted[offset + missing :].strip() == ended


@pytest.mark.parametrize("count", [1, 2, 40])
def test_results_larger_than_the_budget_are_shown(count: int) -> None:
    """Wrong: results are not shown, so an agent calls for ever, or no warning says so."""
    ids = [f"c{n}" for n in range(count)]
    with opened(max_tokens=4_000, overflow=Trim()) as memory:
        told = [result(one, f"{one} " + words(8_000)) for one in ids]
        memory.update("s", [user("What does it say?"), call(ids), *told])
        context = memory.get("s")
        shown = chat_shown(context)
        assert shown[0] == ("user", "What")
        assert [role for role, _ in shown] == ["user", "assistant", *["tool"] * count]
        assert shown[-1][1] == ids[-1]
        assert f"{count} message" in context.warnings[0]


def test_a_context_states_the_number_of_omitted_calls() -> None:
    """Wrong: a result is shown without its call, the newest result is missing, or the number of
    omitted calls is not stated."""
    ids = [f"call_{n}" for n in range(40)]
    with opened(max_tokens=400, overflow=Trim()) as memory:
        told = [result(one, f"{one} " + words(50)) for one in ids]
        memory.update("s", [user("What?"), call(ids), *told])
        context = memory.get("s")
        chat = context.to_messages()
        assert chat_shown(context)[0] == ("user", "What?")
        assert chat[-1]["tool_call_id"] == "call_39"
        count = len(chat) - 2
        assert 3 < count < 40
        assert f"{40 - count} calls and their results left out" in chat[1]["content"]
        assert f"{40 - count} messages are left out" in context.warnings[0]


def test_a_picture_that_does_not_fit_is_replaced_by_a_mark() -> None:
    """Wrong: a message whose picture is too large is not shown at all."""
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    with opened(max_tokens=300, overflow=Trim()) as memory:
        memory.update("s", user([{"type": "text", "text": "What is this?"}, picture]))
        (said,) = memory.get("s").to_messages()
        texts = [part["text"] for part in said["content"]]
        assert texts[0] == "What is this?"
        assert "left out" in texts[1]


def test_a_window_whose_newest_turn_is_long_is_compacted_at_most_once(fake: FakeLLM) -> None:
    """Wrong: reads and updates without new messages compact again, and call the model each time."""
    with opened(
        max_tokens=1_000, overflow=Summarize(max_summary_tokens=100), **model_at(fake)
    ) as memory:
        fake.default = lambda body: words(900, "summary")  # longer than the messages it replaces
        memory.update("s", [user("hello"), assistant("hi")])
        for n in range(4):
            tokens = [memory.get("s").tokens]
            memory.update("s", [user(f"{n} {words(3_000)}"), assistant(words(700, "said"))])
            asked = len(fake.requests)
            head = memory.update("s", [])
            memory.flush("s")
            assert memory.update("s", []) == head
            assert len(fake.requests) == asked
            tokens.append(memory.get("s").tokens)
        assert memory.get("s").to_messages()[-1]["content"].startswith("said")


def test_each_compaction_lowers_the_token_count(fake: FakeLLM) -> None:
    """Wrong: after a compaction with a long summary the context is as large as before."""
    fake.default = lambda body: words(900, "summary")
    with opened(
        max_tokens=600, overflow=Summarize(max_summary_tokens=200), **model_at(fake)
    ) as memory:
        counts: list[tuple[int, int]] = []
        for n in range(40):
            before = memory.get("s")
            message = user(f"{n} {words(20)}")
            head = memory.update("s", message)
            after = memory.get("s")
            if before.head is not None and head.start != before.head.start:
                whole = before.tokens + COUNTER.chat(message)
                counts.append((whole, after.tokens))
        assert counts
        assert all(after < before for before, after in counts)


def test_the_max_tokens_of_one_call_lowers_the_budget() -> None:
    """Wrong: a context exceeds the smaller budget, or a larger one lifts the configured budget."""
    with opened(max_tokens=2_000, overflow=Trim()) as memory:
        for n in range(20):
            memory.update("s", [user(f"{n}: {words(20)}"), assistant("ok")])
        whole = memory.get("s")
        small = memory.get("s", max_tokens=200)
        assert small.tokens <= small.max_tokens == 200
        assert small.to_messages()[-1] == whole.to_messages()[-1]
        assert memory.get("s", max_tokens=9_000) == whole
        assert memory.session("s").get(max_tokens=200) == small
        for wrong in (0, -1, 1.5, "100", True):
            with pytest.raises(ConfigError, match="max_tokens"):
                memory.get("s", max_tokens=wrong)  # type: ignore[arg-type]
        for tiny in range(1, 64):
            context = memory.get("s", "What now?", max_tokens=tiny)
            assert context.tokens <= tiny
            chat = context.to_messages()
            assert not chat or COUNTER.context(chat) <= tiny


def test_the_summary_covers_messages_removed_from_a_long_turn() -> None:
    """Wrong: messages cut out of a long turn are missing from the summary too."""
    with opened(max_tokens=800, overflow=Summarize(max_summary_tokens=150)) as memory:
        memory.update("s", user("Which code has each room?"))
        for n in range(30):
            memory.update("s", [call([f"c{n}"]), result(f"c{n}", f"Room {n} has code QX-{n}000.")])
        context = memory.get("s")
        assert context.head.summary.upto == context.head.start > 1
        assert chat_shown(context)[1] == ("user", "Which")
        starts = [memory.history("s")[n].seq for n in context.head.pinned]
        assert starts == [2]


TOOL = "memory_read_message"
LARGE = 200_000
"""A budget in which every message of these tests is stored."""


def document(words: int = 6_000) -> str:
    return "\n".join(f"Line {line}: item {line * 7919 % 10_007}." for line in range(words // 4))


@pytest.fixture
def memory(url: str) -> Iterator[AgentMemory]:
    """A memory whose sessions each hold a few messages."""
    with AgentMemory(store=url, max_tokens=LARGE) as memory:
        yield memory


def page(memory: AgentMemory, session_id: str, user_id: str | None = None, **asked: Any) -> Any:
    return json.loads(memory.call_tool(session_id, TOOL, asked, user_id=user_id))


def test_a_message_is_read_page_by_page(memory: AgentMemory) -> None:
    """Wrong: pages do not add up to the text, or do not say where the next one begins."""
    text = document()
    memory.update("s", [{"role": "user", "content": "Read this."}], user_id="ada")
    memory.update("s", {"role": "user", "name": "Ada", "content": text})
    read, at = [], 0
    while at is not None:
        one = page(memory, "s", seq=2, offset=at)
        assert (one["seq"], one["from"], one["offset"], one["of"]) == (2, "Ada", at, len(text))
        read.append(one["text"])
        at = one["next"]
    assert "".join(read) == text
    assert len(read) > 3
    assert page(memory, "s", seq=1)["text"] == "Read this."
    assert page(memory, "s", seq=1)["next"] is None


@pytest.mark.parametrize("budget", [64, 500, 4_000])
def test_a_page_fits_a_small_budget(url: str, budget: int) -> None:
    """Wrong: a page exceeds half of the budget, or does not advance."""
    with AgentMemory(store=url, max_tokens=LARGE) as large:
        large.update("s", {"role": "user", "content": "x" * 9_000 + " " * 9_000 + document(400)})
    with AgentMemory(store=url, max_tokens=budget) as memory:
        at, pages = 0, 0
        while at is not None:
            answer = memory.call_tool("s", TOOL, {"seq": 1, "offset": at})
            assert memory.components.resources.counter.text(answer) <= max(budget // 2, 100)
            one = json.loads(answer)
            assert one["next"] is None or one["next"] > at
            at, pages = one["next"], pages + 1
        assert pages < 2_000


def test_a_model_can_read_long_messages_of_the_current_turn(tmp_path: Path) -> None:
    """Wrong: the model cannot read the rest of a long message or result of the current turn."""
    question, result = f"{document(4_000)}\nRead it.", document(3_000)

    def look() -> str:
        """Looks."""
        return result

    with (
        FakeLLM("Done.") as fake,
        AgentMemory(
            store=f"sqlite:///{tmp_path}/m.db", max_tokens=8_000, overflow=Trim(),
            model="openai/any", api_base=fake.api_base, api_key="k",
        ) as memory,
    ):  # fmt: skip
        memory.update("s", [{"role": "user", "content": "Hi"}, {"role": "system", "content": "x"}])
        tools = [*memory.tools("s"), look]
        fake.call(("look", {}))
        fake.call((TOOL, {"seq": 3, "offset": 9_000}))
        fake.call((TOOL, {"seq": 5, "session_id": "s"}))
        fake.call((TOOL, {"seq": 90}))
        memory.completion("s", question, tools=tools)
        asked, _, *later = (request["messages"] for request in fake.requests)
        assert f"{TOOL}(seq=3, offset=" in asked[-1]["content"]
        first, second, none = (messages[-1]["content"] for messages in later)
        whole = json.loads(first)  # the newest page is not shortened again
        assert whole["text"] == question[9_000 : whole["next"]]
        assert json.dumps(result[:200])[1:-1] in second
        assert "There is no message 90" in none
        assert page(memory, "s", seq=3, offset=9_000)["text"][:200] == question[9_000:9_200]
        fake.call((TOOL, {"seq": 3}))
        memory.completion("s", question)
        assert "reads on" not in fake.requests[-1]["messages"][-1]["content"]


def test_calls_raw_items_and_refusals_can_be_read(memory: AgentMemory) -> None:
    """Wrong: a call's arguments, a raw item or a picture's URL cannot be read on."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "image_url"}]},
        call(["c"], "save", '{"a": "b"}'),
        result("c", "Saved."),
        {"raw": {"type": "odd", "data": "canary"}, "format": "odd"},
    ]
    memory.update("s", messages)
    memory.update("s", {"role": "assistant", "content": "No.", "refusal": "It is a secret."})
    assert page(memory, "s", seq=5)["text"] == "No.\n(refusal: It is a secret.)"
    for entry in memory.history("s", limit=4):
        assert page(memory, "s", seq=entry.seq)["text"] == full_text(entry.message)
    assert '"a": "b"' in page(memory, "s", seq=2)["text"]
    assert "canary" in page(memory, "s", seq=4)["text"]


def test_text_that_resembles_the_end_of_a_page_is_returned_unchanged(memory: AgentMemory) -> None:
    """Wrong: a text that looks like a page's end is taken for it, or breaks the request."""
    text = '"next":null}\ncafé \ud800\x00 {"seq":1'
    memory.update("s", {"role": "user", "content": text})
    answer = memory.call_tool("s", TOOL, {"seq": 1})
    assert answer.encode()
    assert json.loads(answer)["text"] == text


def test_a_model_can_read_other_sessions_only_of_its_user(memory: AgentMemory) -> None:
    """Wrong: a model reads another user's messages by naming their session."""
    memory.update("old", {"role": "user", "content": "Ada's canary."}, user_id="ada")
    memory.update("bens", {"role": "user", "content": "Ben's canary."}, user_id="ben")
    memory.update("nobodys", {"role": "user", "content": "Nobody's canary."})
    memory.update("now", {"role": "user", "content": "Hello."}, user_id="ada")

    def asked(session_id: str, at: str, user_id: str | None = None) -> str:
        asked = {"seq": 1, "session_id": session_id}
        return memory.call_tool(at, TOOL, asked, user_id=user_id)

    assert json.loads(asked("old", "now"))["text"] == "Ada's canary."
    assert json.loads(asked("old", "new", "ada"))["text"] == "Ada's canary."
    assert json.loads(asked("now", "now"))["text"] == "Hello."
    assert json.loads(asked("nobodys", "nobodys"))["text"] == "Nobody's canary."
    for other in ("bens", "nobodys", "nowhere", ""):
        for at, user_id in (("now", None), ("new", "ada")):
            refused = asked(other, at, user_id)
            assert "canary" not in refused
            assert refused == f"There is no session {other!r} of this user."
    assert "no session 'old'" in asked("old", "nobodys")
    assert "no session 'old'" in asked("old", "elsewhere")


def test_last_limits_a_history_to_the_newest_messages(memory: AgentMemory) -> None:
    """Wrong: `last` returns the oldest messages, or the newest need a read of the whole log."""
    messages = [{"role": "user", "content": f"Message {number}."} for number in range(1, 8)]
    memory.update("s", messages, user_id="ada")

    def seqs(**asked: Any) -> list[int]:
        found = [entry.seq for entry in memory.history("s", **asked)]
        assert found == [entry.seq for entry in memory.session("s", "ada").history(**asked)]
        return found

    assert seqs(last=2) == [6, 7]
    assert seqs(last=100) == [1, 2, 3, 4, 5, 6, 7]
    assert seqs(last=0) == []
    assert seqs(last=3, after=5) == [6, 7]
    assert seqs(last=1, after=7) == []
    assert memory.history("nowhere", last=2) == []
    memory.pop("s", 2)
    assert seqs(last=2) == [4, 5]
    with pytest.raises(InvalidInput, match="`limit` or `last`"):
        memory.history("s", limit=1, last=1)
    for wrong in (-1, 1.5, "2", True):
        with pytest.raises(InvalidInput, match="last is"):
            memory.history("s", last=wrong)  # type: ignore[arg-type]
