"""Redacting what a message holds, before it is kept. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agent_memory.core.messages import Message, compact_json

REDACTED = "redacted"
"""In a message's metadata: which of its fields are not as they were given."""

_KEPT = frozenset(
    {
        *("role", "id", "type", "name", "tool_call_id", "call_id", "status", "format", "model"),
        *("created_at", "url", "data", "file_data", "file_id", "media_type", "mime_type"),
        *("encrypted_content", "signature"),
    }
)
"""Fields that hold no text of anybody's, or whose bytes are another's to check."""


def redacted(message: Message, redact: Callable[[str], str]) -> Message:
    """The message as it is to be kept: itself, where there is nothing to take out of it."""
    given = message.to_dict()
    kept = {key: value if key in _KEPT else within(value, redact) for key, value in given.items()}
    changed = sorted(key for key, value in kept.items() if value != given[key])
    if not changed:
        return message
    metadata = {**kept.get("metadata", {}), REDACTED: changed}
    return Message(**{**kept, "metadata": metadata, "created_at": message.created_at})


def within(value: Any, redact: Callable[[str], str]) -> Any:
    """A value with all of its texts redacted; JSON in a text stays JSON."""
    if isinstance(value, str):
        return _text(value, redact)
    if isinstance(value, list):
        return [within(one, redact) for one in value]
    if isinstance(value, dict):
        return {
            key: one if key in _KEPT and isinstance(one, str) else within(one, redact)
            for key, one in value.items()
        }
    return value


def _text(text: str, redact: Callable[[str], str]) -> str:
    if not text.startswith(("{", "[")):
        return redact(text)
    try:
        said = json.loads(text)
    except ValueError:
        return redact(text)
    told = within(said, redact)
    return text if told == said else compact_json(told)
