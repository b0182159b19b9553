"""Turns: a question with all that comes of it, and whether it is whole.

Pure. A turn begins with what the user says and ends with what the assistant answers; the calls of
tools between them, and their results, belong to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_memory.core.context import MemoryContext
from agent_memory.core.limits import quoted
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Span
from agent_memory.core.window import role_of, visible
from agent_memory.errors import InvalidInput, InvalidMessage

EARLIER = "earlier_rounds"
"""Field of a response that was handed back: what was said since the question, and is not stored."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that waits for its answer; made by `AgentMemory.before_turn` or `regenerate`.

    Attributes:
        session_id: The conversation.
        user_id: The user that was named, or None.
        asked: The turn so far, whole.
        context: The window, what was recalled for the turn, and what of the turn is shown.
        messages: What to send to a model: OpenAI chat dicts, the context with the turn at its end.
            They fit the context's `max_tokens`.
        regenerates: From the question to the newest message of the log, where `regenerate` asks it
            again; None for a new turn.
    """

    session_id: str
    user_id: str | None
    asked: list[Message]
    context: MemoryContext
    messages: list[dict[str, Any]]
    regenerates: Span | None = None

    @property
    def cost(self) -> float | None:
        """US dollars that its context took; None where the price of a model is not known."""
        return self.context.cost


def turn_of(
    session_id: str,
    user_id: str | None,
    asked: list[Message],
    context: MemoryContext,
    regenerates: Span | None = None,
) -> Turn:
    """The turn of a context that was packed for it."""
    return Turn(session_id, user_id, asked, context, context.to_messages(), regenerates)


def check_turn(given: object) -> None:
    """Refuse what is no turn.

    Raises:
        InvalidInput: It is none.
    """
    if not isinstance(given, Turn):
        raise InvalidInput(
            f"The turn is {quoted(given)}. Give what before_turn() or regenerate() gave."
        )


def messages_of(given: object, role: str) -> list[Message]:
    """The messages that a caller gave: a text, a message in any form, or a list of messages.

    A response that was handed back for the caller to run tools stands for what was said before it
    too.

    Args:
        given: What the caller gave.
        role: Whose words a bare text is.

    Raises:
        InvalidMessage: It is none of these.
    """
    if isinstance(given, str):
        return [Message(role=role, content=given)]
    found: list[Message] = []
    for one in given if isinstance(given, list | tuple) else [given]:
        if _is_response(one):
            earlier = one.get(EARLIER) if isinstance(one, Mapping) else getattr(one, EARLIER, None)
            found += [Message.of(message) for message in earlier or ()]
            found.append(answer_in(one))
        else:
            found += Message.all_of(one)
    return found


def question_of(asked: Sequence[Message]) -> Sequence[Message]:
    """What a turn so far began with: all that was said before the model said anything."""
    for place, message in enumerate(asked):
        if role_of(message) == "assistant":
            return asked[:place] or asked
    return asked


def answer_in(response: object) -> Message:
    """The message of a response, without the fields in which its provider says nothing: others
    refuse to be sent them.

    Raises:
        InvalidMessage: It has none.
    """
    given = Message.of(response).to_dict()
    return Message.of({key: one for key, one in given.items() if key == "content" or _says(one)})


def _is_response(given: object) -> bool:
    if isinstance(given, Mapping):
        return "choices" in given and "role" not in given
    return hasattr(given, "choices")


def _says(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_says, value.values()))
    return value is not None and value != []


def open_calls(said: Sequence[Message]) -> list[dict[str, Any]]:
    """The calls of tools that have no result yet, oldest first."""
    waiting: dict[str, dict[str, Any]] = {}
    for message in said:
        view = message.to_openai() or {}
        waiting |= {str(call.get("id")): call for call in view.get("tool_calls") or ()}
        if view.get("role") == "tool":
            waiting.pop(str(view.get("tool_call_id")), None)
    return list(waiting.values())


def check_so_far(said: Sequence[Message], soon: Sequence[Mapping[str, Any]] = ()) -> None:
    """Refuse what no model can be asked to go on with: every call has its result in the turn.

    Args:
        said: The turn so far.
        soon: Calls whose results are still to come.

    Raises:
        InvalidMessage: Nothing is asked, a call has no result, or a result no call.
    """
    if all(message.is_system for message in said):
        raise InvalidMessage("Nothing is asked. Give the question, as text or as a message.")
    said = [*said, *(Message(role="tool", tool_call_id=str(one.get("id"))) for one in soon)]
    entries = [_entry(seq, message) for seq, message in enumerate(said, 1)]
    shown = {entry.seq for entry in visible(entries, was_cut=False)}
    for entry in entries:
        view = entry.message.to_openai()
        if entry.seq in shown or view is None or entry.message.is_system:
            continue
        if view.get("role") in ("tool", "function"):
            call = quoted(view.get("tool_call_id") or view.get("name"))
            raise InvalidMessage(
                f"The result of {call} answers no call of this turn. Give the assistant's message "
                "with the call before it, in the same list."
            )
        calls = [*open_calls(said), *(view.get("tool_calls") or ()), {"id": "function_call"}]
        raise InvalidMessage(
            f"A call of a tool has no result: {quoted(calls[0].get('id'))}. Add its result, as "
            '{"role": "tool", "tool_call_id": ..., "content": ...}.'
        )


def check_whole(said: Sequence[Message]) -> None:
    """Refuse half a turn.

    Raises:
        InvalidMessage: It does not end with the assistant's words, or see `check_so_far`.
    """
    check_so_far(said)
    last = role_of(said[-1])
    if last != "assistant":
        raise InvalidMessage(
            f"The turn ends with a message of the role {last!r}. Nothing was stored; it is whole "
            "once the assistant has answered."
        )


def _entry(seq: int, message: Message) -> Entry:
    return Entry("", seq, message, 0, 0, "", message.created_at)
