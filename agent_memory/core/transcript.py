"""Messages as text for a model, and in pieces that fit it. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agent_memory.core.formats.registry import compacts
from agent_memory.core.messages import Message, content_text
from agent_memory.core.records import Entry
from agent_memory.core.text import last_break

Count = Callable[[str], int]

_UNREADABLE = ("encrypted_content", "signature", "id", "status")

_NEAR = 1_000  # characters in which a sentence or a word may end


def speaker(message: Message) -> str:
    """Return the speaker's name, or the role if there is none."""
    if message.role is not None:
        return message.name or message.role
    view = message.to_openai() or {}
    return str(view.get("name") or view.get("role") or "raw")


def told(message: Message) -> str:
    """Return the whole content of a message as one text, with calls and results.

    Pictures, sound and files are named, and so are a provider's additions to a call.
    """
    views = message.views()
    if not views:
        return _unshown(message.raw or {}, message.format)
    return "\n".join(part for view in views for part in _parts(view) if part)


def _unshown(raw: dict[str, Any], name: str | None) -> str:
    """Return the readable part of an item without a chat form; nothing for a compaction."""
    readable = {key: value for key, value in raw.items() if value and key not in _UNREADABLE}
    if readable.keys() <= {"type"} or compacts(raw, name):
        return ""
    return json.dumps(readable, ensure_ascii=False)


def _parts(view: dict[str, Any]) -> list[str]:
    content = view.get("content")
    parts = [content_text(content)]
    if isinstance(content, list):
        parts += (_named(part) for part in content)
    calls = [*(view.get("tool_calls") or ()), {"function": view.get("function_call")}]
    return [*parts, *(_call(call) for call in calls)]


def _named(part: object) -> str:
    if not isinstance(part, dict) or isinstance(part.get("text"), str):
        return ""
    file = part.get("file")
    name = file.get("filename") if isinstance(file, dict) else None
    kind = str(part.get("type") or "part").removeprefix("input_").removesuffix("_url")
    return f"({kind} {name})" if name else f"({kind})"


def _call(call: dict[str, Any]) -> str:
    function = call.get("function")
    if isinstance(function, dict):
        return f"(calls {function.get('name')} with {function.get('arguments')})"
    rest = {key: value for key, value in call.items() if key not in ("id", "type") and value}
    return f"(calls {json.dumps(rest, ensure_ascii=False)})" if rest else ""


def line(entry: Entry, *, number: int | None = None) -> str:
    """Return one line of a transcript: number, day, speaker and text."""
    place = f"[{number}] " if number is not None else ""
    return f"{place}{entry.said_at:%Y-%m-%d} {speaker(entry.message)}: {told(entry.message)}"


def chunks(entries: Sequence[Entry], count: Count, limit: int) -> Iterator[str]:
    """Yield the whole transcript in pieces of at most `limit` tokens.

    A single message that exceeds the limit is split.
    """
    piece: list[str] = []
    size = 0
    for entry in entries:
        for part in split(line(entry), count, limit):
            cost = count(part) + 1
            if piece and size + cost > limit:
                yield "\n".join(piece)
                piece, size = [], 0
            piece.append(part)
            size += cost
    if piece:
        yield "\n".join(piece)


def split(text: str, count: Count, limit: int) -> list[str]:
    """Split a text into parts of at most `limit` tokens by halving it.

    It is split after a sentence that ends near the middle, or between words.
    """
    if count(text) < limit or len(text) < 2:
        return [text]
    middle = len(text) // 2
    near = max(middle // 2, middle - _NEAR)
    at = near + last_break(text[near:middle], middle - near) or middle
    return [*split(text[:at], count, limit), *split(text[at:], count, limit)]


def clip(text: str, count: Count, limit: int) -> str:
    """Return the beginning of a text within `limit` tokens.

    It ends with a sentence if at least half of the room is used. If not, it ends with a word, so
    that no number is cut. It ends inside a word only if there is no other way.
    """
    if count(text) <= limit:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle]) <= limit else (low, middle - 1)
    beginning = text[: last_break(text, low)].rstrip()
    while beginning and count(beginning) > limit:  # shorter text can cost a token more
        beginning = beginning[:-1].rstrip()
    return beginning
