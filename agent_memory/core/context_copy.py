"""Recognition of a context among the messages of an update. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.core.messages import SYSTEM_ROLES
from agent_memory.errors import InvalidMessage

if TYPE_CHECKING:
    from agent_memory.core.context import MemoryContext
    from agent_memory.core.messages import Message

_RECALLS = ("<memory>\n<", "_memory>\n</memory>")
_SUMMARY = ("<summary>\n", "\n</summary>")


def without_context(
    messages: Sequence[Any], context: MemoryContext | None, asked: Sequence[Message]
) -> Sequence[Any]:
    """Return the messages without a leading copy of the context.

    If no message follows the context, the list is unchanged: the turn may repeat the last one.

    Args:
        asked: The question of the context, if it is not stored yet.

    Raises:
        InvalidMessage: The messages hold recalls or a summary of another context.
    """
    if context is not None and len(messages) >= len(context.shown) + len(asked) > 0:
        sent = context.to_messages()
        if len(messages) > len(sent) and list(messages[: len(sent)]) == sent:
            return [*asked, *messages[len(sent) :]]
    for place, message in enumerate(messages):
        if isinstance(message, Mapping) and _is_of_a_context(message):
            raise InvalidMessage(
                f"Message {place} of the list is a part of a context of get(), not a new message. "
                "Pass the new messages alone: update(session_id, [question, answer])."
            )
    return messages


def _is_of_a_context(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if message.get("role") not in SYSTEM_ROLES or not isinstance(content, str):
        return False
    return any(
        content.startswith(begin) and content.endswith(end) for begin, end in (_RECALLS, _SUMMARY)
    )
