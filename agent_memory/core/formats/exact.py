"""JSON encoding of values that JSON lacks. Decoding restores them. Pure.

The values are bytes, tuples, infinities, NaN, and dicts with keys that are not texts. Each becomes
a list that begins with a mark. A list that begins with the mark itself is encoded too.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from math import isfinite
from typing import Any

from agent_memory.core.limits import MAX_DEPTH
from agent_memory.errors import InvalidMessage

_MARK = "\u0001exact"
_MAX_BITS = 4096  # Python refuses to write integers of more than 4,300 digits
_SPLIT_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def written(value: Any, depth: int = 0) -> Any:
    """Encode a value as plain JSON. A value of an unknown type is encoded as its `str`.

    Values that are nested deeper than `MAX_DEPTH` are not encoded. `require_json` refuses them.
    """
    if depth > MAX_DEPTH:
        return value
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else [_MARK, "float", repr(value)]
        case bytes() | bytearray():
            return [_MARK, "bytes", b64encode(value).decode()]
        case tuple():
            return [_MARK, "tuple", [written(item, depth + 1) for item in value]]
        case list():
            items = [written(item, depth + 1) for item in value]
            return [_MARK, "list", items] if items and items[0] == _MARK else items
        case Mapping():
            pairs = [(written(key), written(item, depth + 1)) for key, item in value.items()]
            if all(isinstance(key, str) for key in value):
                return dict(pairs)
            return [_MARK, "dict", [list(pair) for pair in pairs]]
        case _:
            return [_MARK, "object", str(value)]


def read(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: read(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if not is_written(value):
        return [read(item) for item in value]
    _, kind, encoded = value
    match kind:
        case "float":
            return float(encoded)
        case "bytes":
            return b64decode(encoded)
        case "tuple":
            return tuple(read(item) for item in encoded)
        case "list":
            return [read(item) for item in encoded]
        case "dict":
            return {read(key): read(item) for key, item in encoded}
        case _:
            return read(encoded)


def is_written(value: Any) -> bool:
    """Return whether `written` encoded this list with a mark."""
    return isinstance(value, list) and len(value) == 3 and value[0] == _MARK


def base64_of(value: Any) -> str:
    """Return bytes in base64, even if `written` encoded them. A text must be base64 already."""
    if is_written(value):
        return str(value[2])
    return b64encode(value).decode() if isinstance(value, bytes | bytearray) else str(value or "")


def as_json(value: Any) -> Any:
    """Return a value with all bytes in base64, as the providers' HTTP APIs accept them."""
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return base64_of(value) if isinstance(value, bytes | bytearray) else value


def require_json(value: object, where: str, depth: int = 0) -> None:
    """Raise InvalidMessage, which names `where`, for a value that JSON cannot represent exactly."""
    if value is None or (isinstance(value, int) and value.bit_length() <= _MAX_BITS):
        return
    if isinstance(value, str):
        _require_unicode(value, where)
        return
    if isinstance(value, float) and isfinite(value):
        return
    if depth > MAX_DEPTH:
        raise InvalidMessage(
            f"The message's `{where}` is nested more than {MAX_DEPTH} levels deep. Flatten it, or "
            "pass it as JSON text."
        )
    if type(value) is list:
        for item in value:
            require_json(item, where, depth + 1)
        return
    if type(value) is dict and all(isinstance(key, str) for key in value):
        for key, item in value.items():
            _require_unicode(key, where)
            require_json(item, where, depth + 1)
        return
    raise InvalidMessage(
        f"The message's `{where}` holds a {type(value).__name__} that JSON cannot represent "
        "exactly. Use strings, finite numbers, booleans, None, lists and dicts with string keys."
    )


def _require_unicode(text: str, where: str) -> None:
    if not text.isascii() and _SPLIT_PAIR.search(text):
        raise InvalidMessage(
            f"The message's `{where}` holds a character split into two surrogates, which JSON "
            "would join. Join the surrogates first: "
            'text.encode("utf-16", "surrogatepass").decode("utf-16").'
        )
