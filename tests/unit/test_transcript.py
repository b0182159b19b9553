"""Transcripts lose nothing and keep to their limits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.messages import Message
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.core.transcript import chunks, clip, line, speaker, split, told
from agent_memory.testing.histories import histories, log_of, texts

COUNT = TokenCounter().text
CLAUDE = TokenCounter("claude-sonnet-4-5").text


def words(text: str) -> str:
    """The text without the white space at which it may be parted."""
    return "".join(text.split())


@pytest.mark.parametrize("count", [COUNT, CLAUDE, len])
@given(histories(max_steps=6), st.integers(8, 80))
def test_chunks_lose_nothing_and_keep_the_limit(
    count: Any, messages: list[dict[str, Any]], limit: int
) -> None:
    """Wrong: what does not fit a piece is dropped, or a piece passes the model's context."""
    entries = log_of(messages, lambda message: 1)
    parts = list(chunks(entries, count, limit))
    assert words("".join(parts)) == words("".join(line(entry) for entry in entries))
    assert all(count(part) <= limit for part in parts)


@given(texts(), st.integers(1, 60))
def test_split_parts_make_the_text(text: str, limit: int) -> None:
    """Wrong: characters are lost at the seams, or a part that could be halved passes the limit."""
    parts = split(text, COUNT, limit)
    assert "".join(parts) == text
    assert all(COUNT(part) <= limit or len(part) == 1 for part in parts)


@pytest.mark.parametrize("count", [COUNT, CLAUDE, len])
@given(texts(), texts(), st.integers(-2, 60))
def test_clip_is_a_beginning_within_the_limit(count: Any, a: str, b: str, limit: int) -> None:
    """Wrong: a clipped summary passes its limit, or says what the text did not."""
    text = f"{a}. {b}"
    clipped = clip(text, count, limit)
    assert text.startswith(clipped)
    assert count(clipped) <= max(limit, 0)
    if count(text) <= limit:
        assert clipped == text


def test_clip_cuts_no_number_short() -> None:
    """Wrong: an allowance of $3000 is remembered as $30."""
    text = "The chair allowance is $3000 and form HR-1012 is due by 2026-01-05 at noon"
    for limit in range(1, COUNT(text) + 1):
        assert set(clip(text, COUNT, limit).split()) <= set(text.split())


def test_clip_keeps_lines() -> None:
    """Wrong: a list is run together into one line."""
    text = "- one point.\n- another point.\n- and a third, longer one."
    assert clip(text, COUNT, 12) == "- one point.\n- another point."


def test_a_message_tells_its_calls_and_files() -> None:
    """Wrong: what a tool was asked, or that a picture was shown, is lost from summaries."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"q": 1}'}}
    custom = {"id": "b", "type": "custom", "custom": {"name": "grep", "input": "x"}}
    odd = {"id": "c", "function": "odd"}
    message = Message.of({"role": "assistant", "content": "ok", "tool_calls": [call, custom, odd]})
    assert told(message).split("\n") == [
        "ok",
        '(calls f with {"q": 1})',
        '(calls {"custom": {"name": "grep", "input": "x"}})',
        '(calls {"function": "odd"})',
    ]
    old = {"role": "assistant", "content": None, "function_call": {"name": "g", "arguments": "{}"}}
    assert told(Message.of(old)) == "(calls g with {})"
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"filename": "form.pdf"}},
        "bare",
    ]
    shown = Message.of({"role": "user", "content": parts})
    assert told(shown).split("\n") == ["look", "bare", "(image)", "(file form.pdf)"]


def test_raw_items_tell_their_view_or_their_json() -> None:
    """Wrong: a raw item's speaker is lost, or an item without a view says nothing."""
    raw = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    message = Message.of({"raw": raw, "format": "openai.responses"})
    assert (speaker(message), told(message)) == ("user", "hi")
    thought = Message.of({"raw": {"type": "reasoning", "n": 1}, "format": "openai.responses"})
    assert (speaker(thought), told(thought)) == ("raw", '{"type": "reasoning", "n": 1}')
    sealed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA" * 1000}
    assert told(Message.of({"raw": sealed, "format": "openai.responses"})) == ""


def test_a_line_names_day_and_speaker() -> None:
    """Wrong: a model cannot tell who said what, or when."""
    message = {"role": "user", "name": "Sarah", "content": "hi"}
    entry = log_of([{**message, "created_at": datetime(2026, 1, 5, tzinfo=UTC)}], lambda m: 1)[0]
    assert line(entry) == "2026-01-05 Sarah: hi"
