"""Values that JSON does not give back exactly, written so that it does. Pure.

Bytes, numbers that are not finite, halves of surrogate pairs, tuples, and keys that are no texts
become lists with a mark; a list that begins with the mark gets one more.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from math import isfinite
from typing import Any

_MARK = "\u0001exact"


def written(value: Any) -> Any:
    """A value as plain JSON. What it does not know is kept as its text.

    Args:
        value: Anything.
    """
    match value:
        case None | bool():
            return value
        case int():
            return value if value.bit_length() <= 4096 else [_MARK, "int", hex(value)]
        case str():
            return value if _is_whole(value) else [_MARK, "text", _bytes(value)]
        case float():
            return value if isfinite(value) else [_MARK, "float", repr(value)]
        case bytes() | bytearray():
            return [_MARK, "bytes", b64encode(value).decode()]
        case tuple():
            return [_MARK, "tuple", [written(one) for one in value]]
        case list():
            kept = [written(one) for one in value]
            return [_MARK, "list", kept] if kept and kept[0] == _MARK else kept
        case Mapping():
            if all(isinstance(key, str) and _is_whole(key) for key in value):
                return {key: written(one) for key, one in value.items()}
            return [_MARK, "dict", [[written(key), written(one)] for key, one in value.items()]]
        case _:
            return [_MARK, "object", written(str(value))]


def read(kept: Any) -> Any:
    """The value that `written` wrote."""
    if isinstance(kept, dict):
        return {key: read(one) for key, one in kept.items()}
    if not isinstance(kept, list):
        return kept
    if len(kept) != 3 or kept[0] != _MARK:
        return [read(one) for one in kept]
    _, kind, told = kept
    match kind:
        case "int":
            return int(told, 16)
        case "text":
            return b64decode(told).decode("utf-8", "surrogatepass")
        case "float":
            return float(told)
        case "bytes":
            return b64decode(told)
        case "tuple":
            return tuple(read(one) for one in told)
        case "list":
            return [read(one) for one in told]
        case "dict":
            return {read(key): read(one) for key, one in told}
        case _:
            return read(told)


def _is_whole(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _bytes(text: str) -> str:
    return b64encode(text.encode("utf-8", "surrogatepass")).decode()
