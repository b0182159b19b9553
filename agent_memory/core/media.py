"""What pictures, sound and files cost: estimates, since only the provider knows.

Pictures follow OpenAI's published rule for high detail: scaled into 2048 x 2048, then to a shorter
side of 768, 170 tokens for each tile of 512 x 512 and 85 for the whole. A picture whose size cannot
be read (a link) is taken as 1024 x 1024. Sound is taken as 10 tokens a second at 32 kbit/s, the
densest usual coding; a file as one token for 16 bytes of it, at least 256.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from typing import Any

LOW_DETAIL = 85
UNKNOWN_FILE = 1024
_HEADER_BYTES = 64 * 1024


def media_tokens(part: Mapping[str, Any]) -> int | None:
    """Tokens of a content part that is not text; None for a kind that is not known."""
    match part.get("type"):
        case "image_url":
            image = part.get("image_url")
            url, detail = (image, "auto") if isinstance(image, str) else _image_fields(image)
            return _image(url, detail)
        case "input_audio":
            audio = part.get("input_audio")
            data = audio.get("data") if isinstance(audio, dict) else None
            return max(64, _decoded_length(data) // 400)
        case "file":
            file = part.get("file")
            data = file.get("file_data") if isinstance(file, dict) else None
            return max(256, _decoded_length(data) // 16) if data else UNKNOWN_FILE
        case _:
            return None


def _image_fields(image: object) -> tuple[object, object]:
    return (image.get("url"), image.get("detail")) if isinstance(image, dict) else (None, None)


def _image(url: object, detail: object) -> int:
    if detail == "low":
        return LOW_DETAIL
    width, height = (_size(url) if isinstance(url, str) else None) or (1024, 1024)
    shrink = min(1.0, 2048 / max(width, height))
    width, height = width * shrink, height * shrink
    shrink = min(1.0, 768 / min(width, height))
    tiles = math.ceil(width * shrink / 512) * math.ceil(height * shrink / 512)
    return LOW_DETAIL + 170 * tiles


def _size(url: str) -> tuple[float, float] | None:
    """Width and height of a PNG, GIF or JPEG in a data URL."""
    head, comma, body = url.partition(",")
    if not comma or not head.startswith("data:image/"):
        return None
    try:
        data = base64.b64decode(body[: _HEADER_BYTES // 3 * 4])
    except ValueError:  # not base64, or not even ASCII
        return None
    if data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
    elif data[:4] == b"GIF8" and len(data) >= 10:
        width, height = struct.unpack("<HH", data[6:10])
    else:
        width, height = _jpeg_size(data)
    return (width, height) if width > 0 and height > 0 else None


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2 if data[:2] == b"\xff\xd8" else len(data)
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + int(struct.unpack(">H", data[at + 2 : at + 4])[0])
    return 0, 0


def _decoded_length(data: object) -> int:
    return len(data) * 3 // 4 if isinstance(data, str) else 0
