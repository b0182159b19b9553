"""Shortened messages: within their limit, whole pairs, valid JSON, and correct marks."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.excerpts import ELLIPSIS, excerpt
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry
from agent_memory.core.shortening import Shortener, mark_of, shares
from agent_memory.core.window import units, visible
from tests.histories import COUNTER, call, counted, histories, result, texts, torn, unpaired

SHORTENER = Shortener(COUNTER, readable=10**6)
MARK = mark_of(7)

long_texts = st.builds(
    lambda parts, n: " ".join(parts) * n,
    st.lists(texts(), min_size=1, max_size=6),
    st.integers(1, 60),
)
argument_texts = st.one_of(
    texts(),
    st.dictionaries(st.sampled_from("abc"), st.one_of(long_texts, st.integers(), st.none())).map(
        json.dumps
    ),
)


@given(long_texts, texts(), st.integers(1, 400))
def test_an_excerpt_fits_and_is_of_the_text(text: str, question: str, limit: int) -> None:
    """Wrong: an excerpt exceeds its limit, or contains text that is not in the original."""
    shown = excerpt(text, question, COUNTER.text, limit, MARK)
    if COUNTER.text(text) <= limit:
        assert shown == text
        return
    assert COUNTER.text(shown) <= limit or shown == ELLIPSIS
    for part in re.split(r"\n?\[…[^\]]*\]\n?", shown):
        assert part.rstrip(ELLIPSIS).strip() in text


@given(st.integers(200, 3_000), st.integers(60, 300), st.sampled_from(["", "w77", "w150 w151"]))
def test_marks_say_what_is_missing_and_where(words: int, limit: int, question: str) -> None:
    """Wrong: a mark gives a wrong offset or number of characters."""
    text = ". ".join(f"w{n}" for n in range(words))
    shown = excerpt(text, question, COUNTER.text, limit, MARK)
    if shown == text:
        return
    parts = shown.split("\n")
    place = 0
    for part in parts:
        found = re.fullmatch(
            r"\[… ([\d,]+) characters left out; \w+\(seq=7, offset=(\d+)\).*\]", part
        )
        if found is None:
            at = text.index(part, place)
            assert text[place:at].strip() == ""
            place = at + len(part)
        else:
            offset = int(found[2])
            assert text[place:offset].strip() == ""
            place = offset + int(found[1].replace(",", ""))
    assert text[place:].strip() == ""


def test_an_excerpt_contains_the_answer_to_the_question() -> None:
    """Wrong: a sentence with a common word of the question replaces the one that answers."""
    lines = [f"The ship number {n} sails on." for n in range(3_000)]
    lines[1_500] = "The ship of Captain Ahab sails on."
    shown = excerpt("\n".join(lines), "Which ship is Captain Ahab's?", COUNTER.text, 300, MARK)
    assert "Captain Ahab" in shown
    text = "船は港に着いた。" * 900 + "猫の名前はモチだ。" + "船は港を出た。" * 900
    assert "猫の名前はモチだ。" in excerpt(text, "猫の名前は何ですか？", COUNTER.text, 300, MARK)
    asking = Shortener(COUNTER, "Which ship is Captain Ahab's?", readable=0)
    message = Message.of({"role": "user", "content": "\n".join(lines)})
    assert "Captain Ahab" in asking.message(message, 300, 7).text()
    text = "{" + ", ".join(f'"key{n}":"value{n}"' for n in range(5_000)) + "}"
    shown = excerpt(text, "What is key4000?", COUNTER.text, 400, MARK)
    assert '"key4000":"value4000"' in shown
    assert COUNTER.text(shown) <= 400


@given(st.lists(st.integers(0, 100), min_size=1, max_size=9), st.integers(0, 500))
def test_shares_are_fair(costs: list[int], room: int) -> None:
    """Wrong: shares exceed the room, or a small text is cut more than a large one."""
    given_ = shares(costs, room)
    assert sum(given_) <= room
    assert all(share <= cost for share, cost in zip(given_, costs, strict=True))
    if sum(costs) <= room:
        assert given_ == costs
    cut = [share for share, cost in zip(given_, costs, strict=True) if share < cost]
    assert max(cut, default=0) - min(cut, default=0) <= 1


def chat_of(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [view for entry in entries for view in entry.message.views()]


@given(histories(), st.integers(5, 300))
def test_units_fit_their_room_and_stay_whole(messages: list[Any], room: int) -> None:
    """Wrong: a shortened unit exceeds its room, splits a pair, or loses its newest message."""
    for unit in units(visible(counted(messages), was_cut=False)):
        shown = SHORTENER.unit(unit, room)
        if shown is None:
            assert SHORTENER.fewest(unit) > room
            continue
        chat = chat_of(shown)
        assert sum(entry.tokens for entry in shown) <= room
        assert COUNTER.context(chat) - COUNTER.overhead <= sum(entry.tokens for entry in shown)
        assert torn(shown) == []
        assert max(one.seq for one in shown) == unit[-1].seq
        assert SHORTENER.unit(unit, sum(entry.tokens for entry in unit)) == [*unit]


@given(argument_texts, st.integers(60, 300))
def test_arguments_stay_json(arguments: str, room: int) -> None:
    """Wrong: shortened arguments are invalid JSON, or a value is cut without a mark."""
    message = Message.of(call(["a"], arguments=arguments))
    shown = SHORTENER.message(message, room, 3)
    told = (shown.to_openai() or {})["tool_calls"][0]["function"]["arguments"]
    assert COUNTER.message(shown) <= room
    if told != arguments:
        given_ = json.loads(told)
        assert isinstance(given_, dict)
        assert not given_ or ELLIPSIS in told or given_ == json.loads(arguments)


def test_short_arguments_are_not_removed_when_long_ones_are_cut() -> None:
    """Wrong: shortening removes short arguments, such as a file's name."""
    given_ = {"path": "a/b.txt", "content": "word " * 2_000, "mode": 6}
    message = Message.of(call(["a"], arguments=json.dumps(given_)))
    shown = SHORTENER.message(message, 200, 3)
    told = json.loads((shown.to_openai() or {})["tool_calls"][0]["function"]["arguments"])
    assert (told["path"], told["mode"]) == ("a/b.txt", 6)
    assert told["content"].startswith("word word")
    assert "left out" in told["content"]


@pytest.mark.parametrize("field", ["refusal", "reasoning_content", "reasoning"])
def test_long_text_fields_of_a_message_are_shortened(field: str) -> None:
    """Wrong: a long reasoning text keeps its message from being shown."""
    message = Message.of({"role": "assistant", "content": "Yes.", field: "think " * 2_000})
    shown = SHORTENER.message(message, 200, 3)
    view = shown.to_openai() or {}
    assert view["content"] == "Yes."
    assert view[field].startswith("think think")
    assert COUNTER.message(shown) <= 200


def test_a_field_that_does_not_fit_is_omitted() -> None:
    """Wrong: a field that cannot be shortened keeps its message from being shown."""
    small, large = {"a": 1}, [{"b": "word " * 2_000}]
    message = Message.of(
        {"role": "assistant", "content": "word " * 500, "small": small, "large": large}
    )
    for room, there in ((200, {"role", "content"}), (8_000, {"role", "content", "small", "large"})):
        shown = SHORTENER.message(message, room, 3)
        assert (shown.to_openai() or {}).keys() == there
        assert COUNTER.message(shown) <= room
    raw = {"type": "function_call_output", "call_id": "a", "output": "told " * 2_000}
    message = Message(raw=raw, format="openai.responses")
    shown = SHORTENER.message(message, 100, 3)
    view = shown.to_openai() or {}
    assert (view["role"], view["tool_call_id"]) == ("tool", "a")
    assert view["content"].startswith("told told")


def test_an_item_of_several_messages_keeps_all_when_shortened() -> None:
    """Wrong: shortening an item with three results drops two of them, with their calls."""
    uses = [{"type": "tool_use", "id": one, "name": "f", "input": {}} for one in "abc"]
    told = [{"type": "tool_result", "tool_use_id": one, "content": "told " * 900} for one in "abc"]
    items = [{"role": "assistant", "content": uses}, {"role": "user", "content": told}]
    entries = counted([{"raw": item, "format": "anthropic.messages"} for item in items])
    (unit,) = units(visible(entries, was_cut=False))
    shown = SHORTENER.unit(unit, 400)
    assert shown is not None
    chat = chat_of(shown)
    assert [one["role"] for one in chat] == ["assistant", "tool", "tool", "tool"]
    assert unpaired(chat) == []
    assert all(one["content"].startswith("told told") for one in chat[1:])
    fewer = SHORTENER.unit(unit, SHORTENER.fewest(unit))
    assert fewer is not None
    assert [one.get("tool_call_id") for one in chat_of(fewer)] == [None, "c"]


def test_the_newest_result_remains_with_a_note_how_to_read_on() -> None:
    """Wrong: the newest result is dropped, or a shortened one does not say how to read on."""
    ids = [f"c{n}" for n in range(30)]
    entries = counted([call(ids), *[result(one) for one in reversed(ids)]])
    shown = SHORTENER.unit(entries, SHORTENER.fewest(entries) + 20)
    assert shown[-1].message.tool_call_id == "c0"
    assert len(shown) < 31
    entry = counted([{"role": "user", "content": "word " * 900}])[0]
    for readable, there in ((0, False), (1, True)):
        shown = Shortener(COUNTER, readable=readable).entry(entry, 100)
        assert ("memory_read_message(seq=1" in shown.message.text()) is there


SHOWN = """
from hashlib import sha256
from random import Random
from agent_memory.core.excerpts import excerpt

words = "boat sea rome ada tea cat email invoice never always because".split()
draw = Random(7)

def text(count):
    return " ".join(draw.choice([*words, "while."]) for _ in range(count))

def mark(missing, offset):
    return f"[{missing}]"

def count(text):
    return len(text) // 4

shown = [excerpt(text(900), text(6), count, 200, mark) for _ in range(40)]
print(sha256("".join(shown).encode()).hexdigest())
"""


def test_excerpts_are_the_same_in_every_process() -> None:
    """Wrong: an excerpt differs between processes, so prompt caches miss."""
    printed, given = set[bytes](), dict(os.environ)
    for seed in "123":
        given["PYTHONHASHSEED"] = seed
        printed.add(subprocess.check_output([sys.executable, "-c", SHOWN], env=given))
    assert len(printed) == 1
