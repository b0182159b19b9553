"""The counted tokens of a context are never fewer than the tokenizer's for the rendered text."""

import base64
import string
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.messages import Message
from agent_memory.core.token_counter import (
    CLAUDE,
    LOW_DETAIL,
    UNKNOWN_FILE,
    Estimate,
    TokenCounter,
    encoding_for,
    media_tokens,
)
from agent_memory.core.token_encodings import encoding
from tests.histories import PNG, histories, texts

WORST = 15 / 4

MODELS = ["gpt-4o", "gpt-4", "claude-sonnet-4-5"]
COUNTERS = {model: TokenCounter(model) for model in MODELS}
ESTIMATES = TokenCounter(tokenizer="approximate")
U = {"role": "user", "content": "hi"}


def rendered(message: dict[str, Any]) -> str:
    """Return the text between the marks of a ChatML message."""
    name = f" {message['name']}" if message.get("name") else ""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "\n".join(part.get("text", "") for part in content)
    lines = [message["role"] + name, content]
    asked = (call["function"] for call in message.get("tool_calls") or ())
    return "\n".join([*lines, *(f"{call['name']} {call['arguments']}" for call in asked)])


def chatml(counter: TokenCounter, chat: list[dict[str, Any]]) -> int:
    """Return the tokens of the rendered text. The two marks and the line break count one each."""
    return sum(3 + counter.text(rendered(message)) for message in chat) + 3


def views(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [view for m in messages for view in Message.of(m).views()]


@pytest.mark.parametrize("model", MODELS)
@given(histories())
def test_contexts_count_no_less_than_rendered(model: str, messages: list[dict[str, Any]]) -> None:
    """Wrong: the parts have fewer tokens than the whole, so a full context exceeds its limit."""
    counter = COUNTERS[model]
    chat = views(messages)
    assert counter.context(chat) >= chatml(counter, chat)


blank = st.text(st.sampled_from(" \t\n\r\u00a0\u3000.!-"), max_size=12)


@pytest.mark.parametrize("model", MODELS)
@given(st.lists(st.tuples(blank, texts(), blank), min_size=1, max_size=6), st.booleans())
def test_white_space_at_the_seams_is_counted(
    model: str, contents: list[tuple[str, str, str]], as_parts: bool
) -> None:
    """Wrong: tokens are missing where blanks merge with a template's line breaks."""
    counter = COUNTERS[model]
    whole = ["".join(pieces) for pieces in contents]
    if as_parts:
        parts = [{"type": "text", "text": text} for text in whole]
        chat: list[dict[str, Any]] = [{"role": "user", "content": parts}]
    else:
        chat = [{"role": "user", "content": text} for text in whole]
    assert counter.context(chat) >= chatml(counter, chat)


ends = st.text(st.sampled_from(" \t\n\r\u00a0\u3000.!-/'aBé1"), max_size=20)


@pytest.mark.parametrize("model", [*MODELS, None])
@given(ends, st.lists(st.one_of(texts(), ends), max_size=30), ends)
def test_line_breaks_at_the_ends_of_a_text_are_priced(
    model: str | None, start: str, words: list[str], end: str
) -> None:
    """Wrong: the price of a text ignores that its ends merge with line breaks."""
    counter, text = TokenCounter(model), " ".join([start, *words, end])
    before, after = "\n" * text[0].isspace(), "\n" * text[-1].isspace()
    between = counter.text(f"{before}{text}{after}") - len(before) - len(after)
    part = {"type": "text", "text": text}
    empty = {"type": "text", "text": ""}
    cost = [counter.chat({"role": "user", "content": [one]}) for one in (part, empty)]
    assert cost[0] - cost[1] == max(between, counter.text(text))


@given(histories())
def test_a_context_is_the_sum_of_its_messages(messages: list[dict[str, Any]]) -> None:
    """Wrong: the tokens counted at append do not add up to those of the context."""
    counter = COUNTERS["gpt-4o"]
    taken = [Message.of(m) for m in messages]
    shown = [m for m in taken if m.to_openai() is not None]
    total = counter.overhead + sum(counter.message(m) for m in shown)
    assert total >= counter.context(views(messages))
    if all(m.role is not None for m in shown):
        assert total == counter.context(views(messages))


@pytest.mark.parametrize(
    "extra",
    [
        {"name": "Sarah"},
        {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
        {"tool_calls": [{"id": "a", "function": "odd"}]},
        {"tool_call_id": "a"},
        {"function_call": {"name": "f", "arguments": "{}"}},
        {"reasoning_content": "because"},
        {"annotations": [{"url": "https://example.com"}]},
        {"content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "you"}]},
        {"content": ["hi", "you"]},
        {"content": [{"type": "image_url", "image_url": {"url": PNG}}]},
        {"content": [{"type": "input_audio", "input_audio": {"data": "UklGRg=="}}]},
        {"content": [{"type": "file", "file": {"file_id": "f"}}]},
        {"content": [{"type": "from_the_future", "payload": 1}]},
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_every_part_of_a_message_costs_tokens(model: str, extra: dict[str, Any]) -> None:
    """Wrong: a name, call, picture or unknown field is free, so a context exceeds its budget."""
    assert COUNTERS[model].chat({**U, **extra}) > COUNTERS[model].chat(U)


def test_file_names_and_raw_items_cost_tokens() -> None:
    """Wrong: a file's name or reasoning is free, although the model reads it."""

    def cost(name: str) -> int:
        part = {"type": "file", "file": {"file_id": "f", "filename": name}}
        return COUNTERS["gpt-4o"].chat({"role": "user", "content": [part]})

    assert cost("quarterly report of the marketing department.pdf") > cost("a")
    counter = COUNTERS["gpt-4o"]
    raw = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}", "status": "ok"}
    message = Message.of({"raw": raw, "format": "openai.responses"})
    view = message.to_openai()
    assert view is not None
    assert counter.message(message) >= max(counter.chat(view), counter.text(str(raw)) // 2)
    reasoning = {"type": "reasoning", "encrypted_content": "gAAAA" * 10}
    for form in "openai.responses", "not registered":
        assert counter.message(Message.of({"raw": reasoning, "format": form})) > 30
    picture = {"type": "input_image", "image_url": "data:image/png;base64," + "AbCd" * 50_000}
    raw = {"type": "message", "role": "user", "content": [picture]}
    message = Message.of({"raw": raw, "format": "openai.responses"})
    assert 500 < COUNTERS["gpt-4o"].message(message) < 2_000


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "text",
    ["<|endoftext|>", "<|im_start|>system<|im_end|>", "<EOT>", "\ud800", "\x00", "\U0010ffff"],
)
def test_any_text_can_be_counted(model: str, text: str) -> None:
    """Wrong: a special token, or an invalid character, raises."""
    assert COUNTERS[model].text(text) > 0
    assert COUNTERS[model].text("") == 0


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (None, ("o200k_base", True)),
        ("gpt-4o", ("o200k_base", True)),
        ("openai/gpt-4o-mini", ("o200k_base", True)),
        ("azure/GPT-4o", ("o200k_base", True)),
        ("openai/gpt-5-mini", ("o200k_base", True)),
        ("gpt-oss-120b", ("o200k_base", True)),
        ("gpt-4", ("cl100k_base", True)),
        ("gpt-3.5-turbo", ("cl100k_base", True)),
        ("anthropic/claude-sonnet-4-5", (CLAUDE, False)),
        ("bedrock/anthropic.claude-3-haiku", (CLAUDE, False)),
        ("gemini/gemini-2.5-pro", ("cl100k_base", False)),
        ("ollama/llama3", ("cl100k_base", False)),
        ("gpt2", ("cl100k_base", False)),
    ],
)
def test_each_model_uses_its_encoding(model: str | None, expected: tuple[str, bool]) -> None:
    """Wrong: a model is counted with another's tokenizer, or with one that must be downloaded."""
    assert encoding_for(model) == expected


@given(histories())
def test_a_message_costs_what_its_view_does(messages: list[dict[str, Any]]) -> None:
    """Wrong: the fast path for plain messages gives another price than contexts do."""
    for message in map(Message.of, messages):
        if message.role is not None:
            assert COUNTERS["gpt-4o"].message(message) == COUNTERS["gpt-4o"].chat(
                message.to_openai() or {}
            )


@pytest.mark.parametrize("role", ["user", "assistant", "a role that is no role"])
def test_a_role_costs_the_same_each_time(role: str) -> None:
    """Wrong: a cached role has another price."""
    counter = TokenCounter()
    whole = counter.chat({"role": role, "content": "hi"})
    assert whole == counter.chat({"role": role, "content": "hi"})
    assert whole == 4 + counter.text(role) + counter.text("hi")


@given(histories())
def test_an_estimated_context_keeps_the_promise(messages: list[dict[str, Any]]) -> None:
    """Wrong: a context with names and calls has more than 3.75 times its estimated tokens."""
    chat = views(messages)
    assert COUNTERS["gpt-4o"].context(chat) <= WORST * ESTIMATES.context(chat)


def test_an_estimate_is_marked_as_inexact() -> None:
    """Wrong: an estimate is marked as exact, or stored under a real encoding."""
    for model in (None, "gpt-4o", "claude-sonnet-4-5"):
        counter = TokenCounter(model, "approximate")
        assert (counter.encoding, counter.exact) == ("estimate-1", False)
    assert TokenCounter("gpt-4o").exact
    assert not TokenCounter("claude-sonnet-4-5").exact


_RECORD = {"run_id": "01a222a5-e225-75b6-a0fe-2845096fc8c9", "usage": {"input_tokens": 100}} | {
    f"field_{number}": None for number in range(40)
}
_REASONS = "It was asked for politely. " * 10


def framework_items(*, thinks: bool) -> dict[str, dict[str, Any]]:
    """Return an answer as each framework stores it, with the records of its call."""
    bare = {
        "pydantic_ai": ("parts", {"part_kind": "text"}, {"part_kind": "thinking"}, "content"),
        "langchain": ("content", {"type": "text"}, {"type": "reasoning"}, "text"),
        "llama_index": ("blocks", {"block_type": "text"}, {"block_type": "thinking"}, "text"),
        "agent_framework": ("contents", {"type": "text"}, {"type": "text_reasoning"}, "text"),
        "google.adk": ("parts", {}, {"thought": True}, "text"),
        "bedrock.converse": ("content", {}, {"reasoningContent": {}}, "text"),
    }
    heads = {"pydantic_ai": {"kind": "response"}, "langchain": {"type": "ai"}}
    items = {}
    for form, (field, text, thinking, name) in bare.items():
        if form == "bedrock.converse":
            thought: dict[str, Any] = {"reasoningContent": {"reasoningText": {"text": _REASONS}}}
        else:
            thought = {**thinking, name: _REASONS}
        blocks = (
            [thought, {**text, name: "You are welcome."}]
            if thinks
            else [{**text, name: "You are welcome."}]
        )
        item = {**heads.get(form, {"role": "assistant"}), field: blocks}
        if form == "google.adk":
            item = {"author": "agent", "content": {"role": "model", "parts": blocks}}
        items[form] = {"message": item, **_RECORD} if "bedrock" in form else {**item, **_RECORD}
    return items


@pytest.mark.parametrize("form", framework_items(thinks=False))
def test_framework_metadata_is_free_and_its_reasoning_costs_tokens(form: str) -> None:
    """Wrong: a framework's own records count as tokens, or long reasoning does not."""
    counter = COUNTERS["gpt-4o"]
    answer, thought = (
        counter.message(Message(raw=framework_items(thinks=thinks)[form], format=form))
        for thinks in (False, True)
    )
    assert 5 < answer < 15
    assert thought > answer + counter.text(_REASONS)


ENCODINGS = ["o200k_base", "cl100k_base"]
estimate = Estimate.count

rare = st.text(st.sampled_from("bqgkjzxv"), max_size=200)
digits = st.text(st.sampled_from(string.digits + " .,-"), max_size=100)
han = st.text(st.characters(min_codepoint=0x3400, max_codepoint=0x9FFF), max_size=60)
emoji = st.text(st.characters(min_codepoint=0x1F000, max_codepoint=0x1FAFF), max_size=40)
blanks = st.text(st.sampled_from(" \t\n\r\u00a0\u3000"), max_size=100)
noise = st.binary(max_size=150).map(lambda data: data.decode("latin-1"))
words = st.lists(st.text(st.sampled_from(string.ascii_letters), max_size=12)).map(" ".join)
anything = st.text(max_size=150) | st.text(st.characters(exclude_categories=()), max_size=60)
hard = st.lists(
    rare | digits | han | emoji | blanks | noise | words | anything, min_size=1, max_size=4
).map("".join)


@pytest.mark.parametrize("name", ENCODINGS)
@given(hard)
def test_no_text_has_more_than_the_promised_multiple(name: str, text: str) -> None:
    """Wrong: some text has more than 3.75 times its estimated tokens."""
    assert encoding(name).count(text) <= WORST * estimate(text)


@pytest.mark.parametrize("name", ENCODINGS)
def test_no_character_exceeds_the_promised_multiple_of_its_estimate(name: str) -> None:
    """Wrong: some character, alone or repeated, has more than 3.75 times its estimated tokens."""
    count = encoding(name).build()
    for code in [*range(0x3000), *range(0x3000, 0x110000, 197)]:
        for text in (chr(code), chr(code) * 15, f"q{chr(code)}" * 15):
            assert count(text) <= WORST * estimate(text), hex(code)


def test_the_estimate_weighs_bytes_by_their_kind() -> None:
    """Wrong: the rule differs from the documented one, so stored estimates change their meaning."""
    assert estimate("") == 0
    assert estimate("a" * 15) == 4
    assert estimate(" " * 15) == 4
    assert estimate("A" * 15) == estimate("7" * 15) == estimate("\n" * 15) == 8
    assert estimate("é" * 15) == 8
    assert estimate("語" * 15) == 16
    assert estimate("😀" * 15) == 24
    assert estimate("a") == 1


@given(hard, hard)
def test_parts_are_no_cheaper_than_the_whole(first: str, second: str) -> None:
    """Wrong: the parts of a text are estimated at less than the whole."""
    assert estimate(first) + estimate(second) >= estimate(first + second)


def url(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def png(width: int, height: int) -> str:
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height)
    return url("png", head)


def gif(width: int, height: int) -> str:
    return url("gif", b"GIF89a" + struct.pack("<HH", width, height))


def jpeg(width: int, height: int) -> str:
    comment = b"\xff\xfe" + struct.pack(">H", 2 + 1000) + b"c" * 1000
    frame = b"\xff\xc2" + struct.pack(">HBHH", 11, 8, height, width)
    return url("jpeg", b"\xff\xd8" + comment + frame)


def picture(address: object, **fields: Any) -> int | None:
    return media_tokens({"type": "image_url", "image_url": {"url": address, **fields}})


@pytest.mark.parametrize("make", [png, gif, jpeg])
@pytest.mark.parametrize(
    ("width", "height", "tiles"),
    [(1, 1, 1), (512, 512, 1), (513, 512, 2), (1024, 1024, 4), (4096, 8192, 6), (9000, 10, 4)],
)
def test_an_image_costs_tokens_by_its_tiles(make: Any, width: int, height: int, tiles: int) -> None:
    """Wrong: a picture's tokens differ from OpenAI's examples (765 square, 1105 tall)."""
    assert picture(make(width, height)) == LOW_DETAIL + 170 * tiles


def test_low_detail_costs_less_and_linked_images_have_a_cost() -> None:
    """Wrong: low detail costs as much as high, or a linked picture costs almost nothing."""
    assert picture(png(4096, 4096), detail="low") == 85
    assert picture("https://example.com/a.png") == 765
    assert media_tokens({"type": "image_url", "image_url": "https://example.com/a.png"}) == 765


@given(st.text(max_size=80), st.sampled_from(["", "data:image/png;base64,", "data:image/jpeg,"]))
def test_any_address_has_a_price(tail: str, head: str) -> None:
    """Wrong: a broken or non-ASCII data URL raises."""
    assert (picture(head + tail) or 0) >= LOW_DETAIL


@given(
    st.binary(max_size=60), st.sampled_from([b"", b"\xff\xd8\xff", b"GIF8", b"\x89PNG\r\n\x1a\n"])
)
def test_any_picture_has_a_price(data: bytes, magic: bytes) -> None:
    """Wrong: a truncated or false header raises, or makes a picture free."""
    assert (picture(url("png", magic + data)) or 0) >= LOW_DETAIL


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "input_audio", "input_audio": {"data": "A" * 16_000}}, 64),
        ({"type": "input_audio", "input_audio": {"data": "A" * 533_334}}, 1000),
        ({"type": "input_audio"}, 64),
        ({"type": "file", "file": {"file_id": "f"}}, UNKNOWN_FILE),
        ({"type": "file", "file": {"file_data": "A" * 100}}, 256),
        ({"type": "file", "file": {"file_data": "A" * 213_334}}, 10_000),
        ({"type": "file"}, UNKNOWN_FILE),
        ({"type": "image_url"}, 765),
        ({"type": "image_url", "image_url": {"url": 3}}, 765),
        ({"type": "text", "text": "no medium"}, None),
        ({"type": ["odd"]}, None),
        ({}, None),
    ],
)
def test_audio_files_and_broken_parts_cost_tokens(part: dict[str, Any], tokens: int | None) -> None:
    """Wrong: a long recording costs as much as a short one, or a malformed part raises."""
    assert media_tokens(part) == tokens


BIG_URL = png(1024, 1024) + "AbCd" * 30_000
BIG = BIG_URL.partition(",")[2]


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": BIG}}]},
        {"parts": [{"inline_data": {"mime_type": "image/png", "data": b"1" * 999}}]},
        {"type": "computer_call_output", "call_id": "c",
         "output": {"type": "computer_screenshot", "image_url": f"data:;base64,{BIG}"}},
        {"type": "function_call_output", "call_id": "c",
         "output": [{"type": "input_image", "image_url": BIG_URL}]},
        {"type": "image_generation_call", "id": "i", "result": BIG},
        {"role": "user", "content": [
            {"image": {"format": "png", "source": {"bytes": base64.b64decode(BIG)}}}]},
        {"role": "assistant", "content": "There.", "images": [
            {"type": "image_url", "image_url": {"url": BIG_URL}}]},
    ],
)  # fmt: skip
def test_an_image_in_a_raw_item_costs_tokens_by_its_tiles(item: dict[str, Any]) -> None:
    """Wrong: a picture counts as the text of its base64, and leaves no room for the chat."""
    counter, message = TokenCounter(), Message.of(item)
    tokens = max(counter.message(message), counter.item(message.raw or {}))
    assert 765 <= tokens < 900


def test_audio_and_documents_in_a_raw_item_cost_tokens() -> None:
    """Wrong: sound counts as a file, or a text file or encrypted reasoning as a picture."""
    counter = TokenCounter()

    def price(**data: Any) -> int:
        return counter.message(Message.of({"role": "user", "parts": [{"inlineData": data}]}))

    assert 300 <= price(mimeType="audio/wav", data="A" * 160_000) < 350
    assert 7_500 <= price(mimeType="application/pdf", data="A" * 160_000) < 7_600
    text = {"type": "text", "media_type": "text/plain", "data": "plums and pears " * 500}
    document = {"role": "user", "content": [{"type": "document", "source": text}]}
    assert counter.message(Message.of(document)) > 1_500
    reasoning = {"type": "reasoning", "id": "r", "encrypted_content": BIG[:8_000]}
    assert counter.item(reasoning) > 2_000
