"""What an id may be: whatever every store can keep."""

from __future__ import annotations

from agent_memory.errors import InvalidId

MAX_ID = 255


def check_id(name: str, value: object) -> None:
    """Refuse an id that is not 1 to 255 characters that every database can store.

    Raises:
        InvalidId: It is not.
    """
    if not isinstance(value, str):
        raise InvalidId(f"{name} must be a string, not {type(value).__name__}.")
    if not value.strip():
        raise InvalidId(f"{name} is empty. Give a text that names it, such as a UUID.")
    if len(value) > MAX_ID:
        raise InvalidId(f"{name} has {len(value)} characters; at most {MAX_ID} are kept.")
    if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise InvalidId(
            f"{name} holds a character (NUL or a lone surrogate) that no store can keep."
        )
