"""Turns (a user's message with everything up to the answer), and checks of turns. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_memory.core.context import MemoryContext
from agent_memory.core.limits import quoted
from agent_memory.core.messages import Message
from agent_memory.core.records import Span
from agent_memory.core.shapes import pairs, role_of, shape_of
from agent_memory.errors import InvalidInput, InvalidMessage

EARLIER = "earlier_rounds"
"""The field in a response of `completion` that has the turn's earlier, unstored messages."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn without its answer, from `AgentMemory.before_turn` or `regenerate`.

    Attributes:
        session_id: The session.
        user_id: The user that the call named, or None.
        turn_messages: The messages of the turn.
        context: The context for the turn. It may show messages of the turn shortened.
        messages: The messages to send to a model: `context.to_messages()`. They end with the turn.
        regenerates: For `regenerate`, the range from the question to the newest message of the
            log. None for a new turn.
    """

    session_id: str
    user_id: str | None
    turn_messages: list[Message]
    context: MemoryContext
    messages: list[dict[str, Any]]
    regenerates: Span | None = None

    @property
    def cost(self) -> float | None:
        """Return the cost of the context in US dollars. None if a model's price is not known."""
        return self.context.cost


def turn_of(
    session_id: str,
    user_id: str | None,
    new_messages: list[Message],
    context: MemoryContext,
    regenerates: Span | None = None,
) -> Turn:
    return Turn(session_id, user_id, new_messages, context, context.to_messages(), regenerates)


def check_turn(value: object) -> None:
    if not isinstance(value, Turn):
        raise InvalidInput(
            f"The turn is {quoted(value)}. Pass a result of before_turn() or regenerate()."
        )


def messages_of(value: object, role: str) -> list[Message]:
    """Convert a text (of the role `role`), a message in any form, or a list of these to messages.

    A response of `completion` with tool calls for the caller holds the earlier messages of its
    turn. In the list, these messages come before the response's own message.
    """
    messages: list[Message] = []
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, str):
            messages.append(Message(role=role, content=item))
        elif _is_response(item):
            earlier = (
                item.get(EARLIER) if isinstance(item, Mapping) else getattr(item, EARLIER, None)
            )
            messages += [Message.of(message) for message in earlier or ()]
            messages.append(answer_in(item))
        else:
            messages += Message.all_of(item)
    return messages


def question_of(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages before the assistant's first message, or all if there is none."""
    for place, message in enumerate(messages):
        if role_of(message) == "assistant":
            return messages[:place] or messages
    return messages


def answer_in(response: object) -> Message:
    """Return the message of a response without its empty fields, which other providers refuse."""
    fields = Message.of(response).to_dict()
    shown = {key: value for key, value in fields.items() if key == "content" or _says(value)}
    return Message.of(shown)


def _is_response(value: object) -> bool:
    if isinstance(value, Mapping):
        return "choices" in value and "role" not in value
    return hasattr(value, "choices")


def _says(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_says, value.values()))
    return value is not None and value != []


def open_calls(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the tool calls that have no result yet, oldest first."""
    pending: dict[str, dict[str, Any]] = {}
    for message in messages:
        view = message.to_openai() or {}
        pending |= {str(call.get("id")): call for call in view.get("tool_calls") or ()}
        if view.get("role") == "tool":
            pending.pop(str(view.get("tool_call_id")), None)
    return list(pending.values())


def check_so_far(messages: Sequence[Message], soon: Sequence[Mapping[str, Any]] = ()) -> None:
    """Refuse a turn that lacks a question, the result of a call, or the call of a result.

    The results of the calls in `soon` may be missing.
    """
    shapes = [shape_of(each) for each in question_of([m for m in messages if not m.is_system])]
    if not any(shape.speaks or shape.calls or shape.answers for shape in shapes):
        raise InvalidMessage("The turn has no question. Pass it as text or as a message.")
    results = (Message(role="tool", tool_call_id=str(call.get("id"))) for call in soon)
    shapes = [shape_of(message) for message in (*messages, *results)]
    answered = pairs(shapes)
    answered_calls = set(answered.values())
    for place, shape in enumerate(shapes):
        for number, call in enumerate(shape.calls):
            if (place, number) not in answered_calls:
                raise InvalidMessage(
                    f"A tool call has no result: {quoted(call.id or call.name)}. Add its "
                    'result, as {"role": "tool", "tool_call_id": ..., "content": ...}.'
                )
        for number, answer in enumerate(shape.answers):
            if (place, number) not in answered:
                view = shape.views[answer.view]
                name = quoted(view.get("tool_call_id") or view.get("name"))
                raise InvalidMessage(
                    f"The result of {name} answers no call of this turn. Put the assistant's "
                    "message with the call before the result, in the same list."
                )


def check_complete(messages: Sequence[Message]) -> None:
    """Refuse a turn that `check_so_far` refuses, or that does not end with an answer."""
    check_so_far(messages)
    last = role_of(messages[-1])
    if last != "assistant":
        raise InvalidMessage(
            f"The turn ends with a message of the role {last!r}. Nothing was stored. Store the "
            "turn once the assistant has answered."
        )
