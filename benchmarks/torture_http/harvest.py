"""Names of what answers tell of. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_LISTS = {
    "sessions": ("id", "session_id"),
    "notes": ("id", "note_id"),
    "facts": ("id", "fact_id"),
    "observations": ("id", "observation_id"),
    "skills": ("name", "name"),
}
_ONE = {"write_note": "note_id", "observe": "observation_id"}


def harvested(call: str, told: Any) -> Iterator[tuple[str, str]]:
    """What an answer names, each with the field that takes it."""
    if not isinstance(told, dict):
        return
    if call in _ONE and "id" in told:
        yield _ONE[call], str(told["id"])
    for path in told.get("paths", ()):
        yield "path", str(path)
    for field, (key, name) in _LISTS.items():
        for one in told.get(field, ()):
            if isinstance(one, dict) and not one.get("shared"):
                yield name, str(one[key])
