"""Estimates for pictures, sound and files."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.tokens.counter import LOW_DETAIL, UNKNOWN_FILE, media_tokens


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
    """Wrong: OpenAI's published examples (765 a square, 1105 a tall one) come out otherwise."""
    assert picture(make(width, height)) == LOW_DETAIL + 170 * tiles


def test_low_detail_and_links() -> None:
    """Wrong: low detail costs like high, or a link of unknown size costs next to nothing."""
    assert picture(png(4096, 4096), detail="low") == 85
    assert picture("https://example.com/a.png") == 765
    assert media_tokens({"type": "image_url", "image_url": "https://example.com/a.png"}) == 765


@given(st.text(max_size=80), st.sampled_from(["", "data:image/png;base64,", "data:image/jpeg,"]))
def test_any_address_has_a_price(tail: str, head: str) -> None:
    """Wrong: a broken or non-ASCII data URL raises when the message is appended."""
    assert (picture(head + tail) or 0) >= LOW_DETAIL


@given(
    st.binary(max_size=60), st.sampled_from([b"", b"\xff\xd8\xff", b"GIF8", b"\x89PNG\r\n\x1a\n"])
)
def test_any_picture_has_a_price(data: bytes, magic: bytes) -> None:
    """Wrong: a truncated or lying header raises, or gives a picture for nothing."""
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
    """Wrong: a long recording costs like a short one, or a malformed part raises."""
    assert media_tokens(part) == tokens
