"""Versions of what is kept whole: a writer names the one that it has read. Pure."""

from __future__ import annotations

from hashlib import sha256

from agent_memory.core.messages import compact_json
from agent_memory.errors import VersionConflict

_DIGITS = 32


def version_of(*parts: object) -> str:
    """The version of something: a digest of what it says.

    Args:
        *parts: What it says, as plain JSON.
    """
    return sha256(compact_json(parts).encode()).hexdigest()[:_DIGITS]


def check_version(expected: str | None, version: str | None) -> None:
    """Refuse a write that is about another version than the one that is kept.

    Args:
        expected: What the writer has read; None where it does not matter.
        version: What is kept; None where nothing is.

    Raises:
        VersionConflict: They are not the same.
    """
    if expected is not None and expected != version:
        raise VersionConflict(
            "It was changed, or deleted, since it was read. Nothing was changed; read it again, "
            "and decide anew."
        )
