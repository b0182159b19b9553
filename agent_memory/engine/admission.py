"""What is refused at the door, before anything is stored. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime

from agent_memory.core.ids import check_id as check_id
from agent_memory.core.records import Draft
from agent_memory.errors import ConfigError, InvalidInput, MessageTooLarge

_SPARE = 8
"""A system message must leave one part in so many of the budget to the conversation."""


def check_moment(name: str, value: datetime | date | None) -> datetime | None:
    """A moment with its time zone; of a date its beginning (UTC).

    Raises:
        InvalidInput: It has no time zone, or is neither.
    """
    if value is None or (isinstance(value, datetime) and value.tzinfo is not None):
        return value
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise InvalidInput(
        f"{name} is {value!r}. Give a datetime with a time zone, such as "
        "datetime(2026, 3, 1, tzinfo=UTC), or a date."
    )


def check_block(name: str, absorbing: Collection[str]) -> None:
    """Refuse the name of a block that does not absorb the log.

    Raises:
        ConfigError: None of those that do is named so.
    """
    if name not in absorbing:
        known = ", ".join(absorbing) or "none"
        raise ConfigError(f"No block named {name!r} absorbs the log. Blocks that do: {known}.")


def fit_anyhow(drafts: Sequence[Draft], room: int) -> bool:
    """Whether drafts are so small that `check_size` lets them pass beside any system message."""
    return all(draft.tokens <= room // _SPARE for draft in drafts)


def check_size(drafts: Sequence[Draft], system_tokens: int, room: int) -> None:
    """Refuse drafts of which one could never be shown, alone or beside the system message.

    Args:
        drafts: What is to be appended.
        system_tokens: Size of the session's system message.
        room: Tokens of a context, its overhead taken off.

    Raises:
        MessageTooLarge: One is too large.
    """
    turn = max((draft.tokens for draft in drafts if not draft.message.is_system), default=0)
    systems = (draft.tokens for draft in drafts if draft.message.is_system)
    system = max(systems, default=system_tokens)
    spare = room // _SPARE
    if system > room - spare or turn + system > room:
        raise MessageTooLarge(
            f"A message of {turn or system} tokens beside a system message of {system} can never "
            f"fit: the budget has room for {room}, of which a system message must leave {spare}. "
            "Nothing was stored. Shorten the message, or raise max_tokens."
        )
