"""Exact encoding of values that JSON does not round-trip. Pure.

These values are bytes, non-finite numbers, lone surrogates, tuples, and keys that are not texts.
They become lists that begin with a mark. A list that already begins with the mark gets another
one.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from math import isfinite
from typing import Any

from agent_memory.core.limits import MAX_DEPTH, is_whole
from agent_memory.errors import InvalidMessage

_MARK = "\u0001exact"
_MAX_BITS = 4096  # Python refuses to write integers of more than 4,300 digits
_SPLIT_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def written(value: Any) -> Any:
    """Encode a value as plain JSON. A value of an unknown type becomes its text."""
    match value:
        case None | bool():
            return value
        case int():
            return value if value.bit_length() <= _MAX_BITS else [_MARK, "int", hex(value)]
        case str():
            if is_whole(value):
                return value
            return [_MARK, "text", b64encode(value.encode("utf-8", "surrogatepass")).decode()]
        case float():
            return value if isfinite(value) else [_MARK, "float", repr(value)]
        case bytes() | bytearray():
            return [_MARK, "bytes", b64encode(value).decode()]
        case tuple():
            return [_MARK, "tuple", [written(item) for item in value]]
        case list():
            items = [written(item) for item in value]
            return [_MARK, "list", items] if items and items[0] == _MARK else items
        case Mapping():
            if all(isinstance(key, str) and is_whole(key) for key in value):
                return {key: written(item) for key, item in value.items()}
            return [_MARK, "dict", [[written(key), written(item)] for key, item in value.items()]]
        case _:
            return [_MARK, "object", written(str(value))]


def read(value: Any) -> Any:
    """Decode a value that `written` encoded."""
    if isinstance(value, dict):
        return {key: read(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if not is_written(value):
        return [read(item) for item in value]
    _, kind, encoded = value
    match kind:
        case "int":
            return int(encoded, 16)
        case "text":
            return b64decode(encoded).decode("utf-8", "surrogatepass")
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
    """Return whether a value is one that `written` encoded as a list with a mark."""
    return isinstance(value, list) and len(value) == 3 and value[0] == _MARK


def base64_of(value: Any) -> str:
    """Return bytes in base64, whether encoded or not. A text is base64 already."""
    if is_written(value):
        return str(value[2])
    return b64encode(value).decode() if isinstance(value, bytes | bytearray) else str(value or "")


def as_json(value: Any) -> Any:
    """Return a value for JSON, with bytes in base64, as the providers' HTTP APIs accept them."""
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return base64_of(value) if isinstance(value, bytes | bytearray) else value


def is_plain(value: Any, depth: int = 0) -> bool:
    """Return whether a value needs no encoding by `written`.

    Nesting below `MAX_DEPTH` is not checked, nor are lone surrogates and large integers.
    """
    if depth > MAX_DEPTH:
        return True
    if isinstance(value, dict):
        return all(type(key) is str and is_plain(item, depth + 1) for key, item in value.items())
    if isinstance(value, list):
        has_mark = bool(value) and value[0] == _MARK
        return not has_mark and all(is_plain(item, depth + 1) for item in value)
    return (
        value is None
        or isinstance(value, str | int)
        or (isinstance(value, float) and isfinite(value))
    )


def require_json(value: object, where: str, depth: int = 0) -> None:
    """Refuse a value that JSON cannot represent; `where` names it in the error."""
    if value is None or (isinstance(value, int) and value.bit_length() <= _MAX_BITS):
        return
    if isinstance(value, str):
        _require_unicode(value, where)
        return
    if isinstance(value, float) and isfinite(value):
        return
    if depth > MAX_DEPTH:
        raise InvalidMessage(
            f"The message's `{where}` is nested more than {MAX_DEPTH} deep. Flatten it, or give "
            "it as JSON text."
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
            'would join. Join them first: text.encode("utf-16", "surrogatepass").decode("utf-16").'
        )
