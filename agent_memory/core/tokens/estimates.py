"""Token estimates without a vocabulary: for texts, pictures, sound and files."""

from __future__ import annotations

import base64
import math
import string
import struct
from collections.abc import Mapping
from typing import Any

WORST = 15 / 4

_PLAIN = (string.ascii_lowercase + " ").encode()
_BEYOND_ASCII = bytes(range(128, 256))


class Estimate:
    """Replaces an encoding by an estimate.

    Attributes:
        name: Distinguishes stored counts from those of other rules.
    """

    name = "estimate-1"

    @staticmethod
    def count(text: str) -> int:
        """Return the approximate number of tokens of a text."""
        if text.isascii():
            ascii_only, further = text.encode(), 0
        else:
            encoded = text.encode("utf-8", "surrogatepass")
            ascii_only, further = encoded.translate(None, _BEYOND_ASCII), len(encoded) - len(text)
        length = len(ascii_only)
        rest = len(ascii_only.translate(None, _PLAIN))
        return (4 * (length + rest) + 8 * further + 14) // 15


LOW_DETAIL = 85
UNKNOWN_FILE = 1024
_HEADER_BYTES = 64 * 1024


def media_tokens(part: Mapping[str, Any]) -> int | None:
    """Return the tokens of a content part that is not text; None for an unknown kind."""
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
    """Return the width and height of a PNG, GIF or JPEG in a data URL."""
    head, comma, body = url.partition(",")
    if not comma or not head.startswith("data:image/"):
        return None
    try:
        data = base64.b64decode(body[: _HEADER_BYTES // 3 * 4])
    except ValueError:  # not base64, or not ASCII
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
