"""Token estimates of texts, pictures, sound and files."""

import base64
import string
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.tokens.counter import LOW_DETAIL, UNKNOWN_FILE, WORST, Estimate, media_tokens
from agent_memory.core.tokens.encodings import encoding

ENCODINGS = ["o200k_base", "cl100k_base", "p50k_base"]
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
def test_no_character_has_more_than_the_promised_multiple(name: str) -> None:
    """Wrong: some character, alone or repeated, has more than 3.75 times its estimated tokens."""
    count = encoding(name).build()
    for code in [*range(0x3000), *range(0x3000, 0x110000, 197)]:
        for text in (chr(code), chr(code) * 15, f"q{chr(code)}" * 15):
            assert count(text) <= WORST * estimate(text), hex(code)


def test_the_estimate_counts_bytes_by_their_kind() -> None:
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


def test_ordinary_prose_is_not_overcounted_by_much() -> None:
    """Wrong: the estimate of ordinary prose is far too high."""
    prose = (
        "When the council met again in the spring, nobody could say who had asked for the survey, "
        "or why its results had been kept in a drawer. Three members wanted to publish it at once; "
        "the others thought that the town had enough to talk about, and went home early."
    )
    exact = encoding("o200k_base").count(prose)
    assert exact <= estimate(prose) <= 1.4 * exact


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
def test_a_picture_costs_by_its_tiles(make: Any, width: int, height: int, tiles: int) -> None:
    """Wrong: a picture's tokens differ from OpenAI's examples (765 square, 1105 tall)."""
    assert picture(make(width, height)) == LOW_DETAIL + 170 * tiles


def test_low_detail_and_links() -> None:
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
def test_sound_files_and_odd_parts(part: dict[str, Any], tokens: int | None) -> None:
    """Wrong: a long recording costs as much as a short one, or a malformed part raises."""
    assert media_tokens(part) == tokens
