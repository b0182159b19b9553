"""Token counts of texts, messages and pictures for the configured model, without a network.

The count of a context is the sum of its messages' counts plus `TokenCounter.overhead`. Each field
of a message is counted separately, and every separator of a chat template is added. The sum is
therefore never less than the tokenizer's count of the rendered context.
"""

from __future__ import annotations

import base64
import json
import math
import re
import string
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agent_memory.core.formats.exact import base64_of, is_written
from agent_memory.core.formats.neutral import mapping
from agent_memory.core.formats.registry import form_of, is_registered
from agent_memory.core.limits import text_of
from agent_memory.core.messages import Message
from agent_memory.core.token_encodings import (
    CLAUDE,
    DEFAULT_ENCODING,
    UNKNOWN_MODEL_ENCODING,
    VOCABULARIES,
    Encoding,
    encoding,
)

_CHEAP = (string.ascii_lowercase + " ").encode()
_BEYOND_ASCII = bytes(range(128, 256))


class Estimate:
    """Estimates tokens. `name` is stored with each count, like the name of an encoding."""

    name = "estimate-1"

    @staticmethod
    def count(text: str) -> int:
        if text.isascii():
            ascii_only, further = text.encode(), 0
        else:
            encoded = text.encode("utf-8", "surrogatepass")
            ascii_only, further = encoded.translate(None, _BEYOND_ASCII), len(encoded) - len(text)
        length = len(ascii_only)
        rest = len(ascii_only.translate(None, _CHEAP))
        return (4 * (length + rest) + 8 * further + 14) // 15


LOW_DETAIL = 85
UNKNOWN_FILE = 1024
_HEADER_BYTES = 64 * 1024

_MEDIA_KEYS = frozenset({"data", "bytes", "base64", "url", "image_url", "file_data", "result"})
_LEAST_MEDIA = 1000  # characters; shorter data count as text
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{200}")
_IMAGES = re.compile(r"data:image/|image/|iVBORw0KGgo|/9j/|R0lGOD|UklGR")
"""The beginnings of data URLs, media types and base64 data of pictures."""


def media_tokens(part: Mapping[str, Any]) -> int | None:
    """Return the tokens of a content part that is not text. None for an unknown kind."""
    match part.get("type"):
        case "image_url":
            image = part.get("image_url")
            if isinstance(image, str):
                return _image(image, "auto")
            return _image(mapping(image).get("url"), mapping(image).get("detail"))
        case "input_audio":
            data = mapping(part.get("input_audio")).get("data")
            return max(64, _decoded_length(data) // 400)
        case "file":
            data = mapping(part.get("file")).get("file_data")
            return _file(str(data)) if data else UNKNOWN_FILE
        case _:
            return None


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
    """Return the width and height of a PNG, GIF or JPEG in a data URL. None for other URLs."""
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


def _without_media(value: Any, counts: list[int], kind: str = "") -> Any:
    """Return a raw item without pictures, sound and files, and append their tokens to `counts`."""
    if isinstance(value, list):
        return [_without_media(item, counts, kind) for item in value]
    if not isinstance(value, dict):
        return value
    kinds = (value.get(key) for key in ("mimeType", "mime_type", "media_type", "mediaType", "type"))
    kind = next((name for name in kinds if isinstance(name, str) and "/" in name), kind)
    rest: dict[str, Any] = {}
    for key, item in value.items():
        data = ""
        if key in _MEDIA_KEYS and value.get("type") != "redacted_thinking":
            data = item if isinstance(item, str) else base64_of(item) if is_written(item) else ""
        if len(data) < _LEAST_MEDIA or not _BASE64.match(data.rpartition(",")[2]):
            rest[key] = _without_media(item, counts, kind)
        else:
            counts.append(_file(data, kind))
    return rest


def _file(data: str, kind: str = "") -> int:
    """Return the tokens of a data URL, or of base64 data of the media type `kind`."""
    head, _, body = data.rpartition(",")
    if "audio/" in head + kind:
        return max(64, _decoded_length(body) // 400)
    if any(map(_IMAGES.match, (head, kind, body))):
        return _image(data if head else f"data:image/*;base64,{data}", "auto")
    return max(256, _decoded_length(body) // 16)


def _decoded_length(data: object) -> int:
    return len(data) * 3 // 4 if isinstance(data, str) else 0


# A chat template adds to a message: a start mark, the role, a line break, an end mark and a line
# break. It also adds marks to a name and to each tool call.
_PER_MESSAGE = 4
_PER_FIELD = 2
_LEAST_ID = 4
_REPLY_PRIMING = 3

_SIMPLE_FIELDS = {"role", "content", "created_at", "metadata"}


Tokenizer = Literal["exact", "approximate"]


class TokenCounter:
    """Counts the tokens of texts and messages for one model.

    Args:
        model: A litellm model name. None counts with o200k_base.
        tokenizer: "exact" uses the model's own encoding if it is known and bundled. For Claude, it
            uses the last encoding that Anthropic published. For other models, it uses litellm's
            fallback, cl100k_base. "approximate" estimates the tokens for any model and loads
            nothing; docs/tokens.md gives the error.

    Attributes:
        encoding: Name of the encoding, which is stored with every count.
        exact: Whether texts are counted with the model's own encoding.
    """

    def __init__(self, model: str | None = None, tokenizer: Tokenizer = "exact") -> None:
        self._texts: Encoding | Estimate
        if tokenizer == "approximate":
            self._texts, self.exact = Estimate(), False
        else:
            name, self.exact = encoding_for(model)
            self._texts = encoding(name)
        self.encoding = self._texts.name

    def __repr__(self) -> str:
        return f"TokenCounter({self.encoding!r})"

    @property
    def overhead(self) -> int:
        """Return the tokens that a context has in addition to its messages."""
        return _REPLY_PRIMING

    def load(self) -> None:
        """Build the tokenizer now, instead of in the background during the first counts."""
        if isinstance(self._texts, Encoding):
            self._texts.build()

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return self._texts.count(text)

    def message(self, message: Message) -> int:
        """Return the tokens of a message in a context, with its role, name, calls and pictures.

        A raw item counts as the larger of its JSON and its chat views, with these exceptions:

        - An item of a framework counts as its views, plus its other content that reaches the model.
        - An item without a chat form counts as its JSON, if contexts of its format send it. Any
          other item without a chat form, of a registered format, counts 0. A compaction counts 0
          too, because the messages that it replaces count.

        Pictures, sound and files in JSON are not counted as text.
        """
        role, content = message.role, message.content
        is_simple = role not in (None, "tool") and isinstance(content, str)
        if is_simple and message.model_fields_set <= _SIMPLE_FIELDS:
            return _PER_MESSAGE + self.text(str(role)) + self._line(str(content))
        views = message.views()
        shown = sum(self.chat(view) for view in views)
        if message.role is not None:
            return shown
        raw, form = message.raw or {}, form_of(message.format)
        unseen = form.unseen(raw)
        if not views and is_registered(message.format):
            is_shown = form.from_chat is not None and unseen is None and not form.compacts(raw)
            return self.item(raw) if is_shown and form.items(raw) else 0
        if unseen is not None:
            return shown + (self._json(unseen) if unseen else 0)
        return max(shown, self.item(raw))

    def item(self, raw: Mapping[str, Any]) -> int:
        """Return the tokens of a raw item that is sent as JSON."""
        return _PER_MESSAGE + self._json(raw)

    def chat(self, message: Mapping[str, Any]) -> int:
        """Return the tokens of one OpenAI chat dict in a context."""
        cost = _PER_MESSAGE
        for key, value in message.items():
            if value is None:
                continue
            if key == "content":
                cost += self._content(value)
            elif key == "role" and isinstance(value, str):
                cost += self.text(value)
            elif key == "tool_call_id":
                cost += self._id(value)
            elif isinstance(value, str):
                cost += self.text(value) + _PER_FIELD
            elif key == "tool_calls":
                cost += sum(_PER_MESSAGE + self._call(call) for call in value)
            else:
                cost += _PER_FIELD + self._json(value)
        if message.get("role") == "tool" and message.get("tool_call_id") is None:
            cost += self._id("")
        return cost

    def context(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Return the tokens of a list of OpenAI chat dicts."""
        return self.overhead + sum(self.chat(message) for message in messages)

    def _content(self, content: object) -> int:
        if isinstance(content, str):
            return self._line(content)
        if not isinstance(content, list):
            return self._json(content)
        return sum(self._part(part) for part in content)

    def _part(self, part: object) -> int:
        if isinstance(part, str):
            return self._line(part) + 1
        if isinstance(part, dict):
            if part.get("type") == "text" and isinstance(part.get("text"), str):
                return self._line(part["text"]) + 1
            media = media_tokens(part)
            if media is not None:
                name = mapping(part.get("file")).get("filename")
                return media + (self.text(name) if isinstance(name, str) else 0)
        return self._json(part)

    def _call(self, call: object) -> int:
        if not isinstance(call, dict):
            return self._json(call)
        cost = self._id("") if call.get("id") is None else 0
        for key, value in call.items():
            if key == "id" and value is not None:
                cost += self._id(value)
            elif key == "function" and isinstance(value, dict):
                cost += self._call(value) - self._id("")
            elif isinstance(value, str):
                cost += self.text(value) + _PER_FIELD
            elif value is not None:
                cost += self._json(value) + _PER_FIELD
        return cost

    def _id(self, value: object) -> int:
        """Return the tokens of a call id, or of its replacement if this may take more tokens."""
        text = value if isinstance(value, str) else json.dumps(value)
        return max(_LEAST_ID, self.text(text)) + _PER_FIELD

    def _line(self, text: str) -> int:
        """Return the tokens of a text between line breaks, without these line breaks.

        White space at an end of the text merges with the line break, which may cost more tokens.
        """
        alone = self.text(text)
        if not text or not (text[0].isspace() or text[-1].isspace()):
            return alone
        before, after = "\n" * text[0].isspace(), "\n" * text[-1].isspace()
        return max(alone, self.text(f"{before}{text}{after}") - len(before) - len(after))

    def _json(self, value: object) -> int:
        text, media = json.dumps(value, ensure_ascii=False), list[int]()
        if len(text) > _LEAST_MEDIA:
            rest = _without_media(value, media)
            text = json.dumps(rest, ensure_ascii=False) if media else text
        return self.text(text) + sum(media)


def encoding_for(model: str | None) -> tuple[str, bool]:
    """Return the encoding's name for a litellm model name, and whether it counts exactly."""
    if model is None:
        return DEFAULT_ENCODING, True
    text_of("model", model)
    name = model.rsplit("/", 1)[-1].lower()
    if "claude" in name:
        # Anthropic publishes no tokenizer for Claude 3 and later. The encoding CLAUDE is older.
        return CLAUDE, False
    from tiktoken.model import encoding_name_for_model

    try:
        own = encoding_name_for_model(name)
    except KeyError:
        return UNKNOWN_MODEL_ENCODING, False
    if own == "o200k_harmony":
        return DEFAULT_ENCODING, True  # the same vocabulary; only the special tokens differ
    if own not in VOCABULARIES:
        return UNKNOWN_MODEL_ENCODING, False  # the model's own encoding is not bundled
    return own, True
