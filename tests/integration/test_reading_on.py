"""Reading what a context shortens: a message page by page, and the newest of a log."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, InvalidInput, Trim
from agent_memory.core.transcript import full_text
from agent_memory.testing import FakeLLM

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


def test_a_turn_is_read_on_before_it_is_stored(tmp_path: Path) -> None:
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


def test_what_is_no_text_is_read_too(memory: AgentMemory) -> None:
    """Wrong: a call's arguments, a raw item or a picture's URL cannot be read on."""
    call = {"id": "c", "type": "function", "function": {"name": "save", "arguments": '{"a": "b"}'}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "image_url"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "Saved."},
        {"raw": {"type": "odd", "data": "canary"}, "format": "odd"},
    ]
    memory.update("s", messages)
    memory.update("s", {"role": "assistant", "content": "No.", "refusal": "It is a secret."})
    assert page(memory, "s", seq=5)["text"] == "No.\n(refusal: It is a secret.)"
    for entry in memory.history("s", limit=4):
        assert page(memory, "s", seq=entry.seq)["text"] == full_text(entry.message)
    assert '"a": "b"' in page(memory, "s", seq=2)["text"]
    assert "canary" in page(memory, "s", seq=4)["text"]


def test_half_a_character_and_marks_are_data(memory: AgentMemory) -> None:
    """Wrong: a text that looks like a page's end is taken for it, or breaks the request."""
    text = '"next":null}\ncafé \ud800\x00 {"seq":1'
    memory.update("s", {"role": "user", "content": text})
    answer = memory.call_tool("s", TOOL, {"seq": 1})
    assert answer.encode()
    assert json.loads(answer)["text"] == text


def test_another_session_is_read_only_if_it_is_the_users(memory: AgentMemory) -> None:
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


def test_the_newest_of_a_log(memory: AgentMemory) -> None:
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
