"""Turns: a question with all that comes of it, fitted into a context, and whether it is whole.

Pure. A turn begins with what the user says and ends with what the assistant answers; the calls of
tools between them, and their results, belong to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_memory.core.context import MemoryContext, leading_count
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Recall, Span
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.core.transcript import clip
from agent_memory.core.window import role_of, turns, visible
from agent_memory.errors import InvalidMessage, MessageTooLarge

EARLIER = "earlier_rounds"
"""Field of a response that was handed back: what was said since the question, and is not stored."""

_LONGEST_TOKEN = 16  # characters, but for rows of blanks


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that waits for its answer; made by `AgentMemory.before_turn` or `regenerate`.

    Attributes:
        session_id: The conversation.
        user_id: The user that was named, or None.
        asked: The turn so far.
        context: The window, and what was recalled for the turn.
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

    def grown(self, asked: list[Message], counter: TokenCounter) -> Turn:
        """The turn when more was said.

        Args:
            asked: All of the turn so far.
            counter: The configured token counter.

        Raises:
            MessageTooLarge: See `fitted`.
        """
        return replace(self, asked=asked, messages=fitted(self.context, asked, counter))


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
            found.append(Message.of(one))
    return found


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
            raise InvalidMessage(
                f"The result of {view.get('tool_call_id') or view.get('name')!r} answers no call "
                "of this turn. Give the assistant's message with the call before it, in the same "
                "list."
            )
        calls = [*open_calls(said), *(view.get("tool_calls") or ()), {"id": "function_call"}]
        raise InvalidMessage(
            f"A call of a tool has no result: {calls[0].get('id')!r}. Add its result, as "
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


def fitted(
    context: MemoryContext, asked: Sequence[Message], counter: TokenCounter
) -> list[dict[str, Any]]:
    """The context with a turn at its end, within the context's budget, as OpenAI chat dicts.

    The context has room for its question only, which the turn stands for: for more of the turn
    recalls go first, the worst one first, then the oldest turns, and the summary last. A system
    message in the turn stands for the session's.

    Raises:
        MessageTooLarge: The turn does not fit, even alone with the system message.
    """
    own, summary, window = _parts(context)
    system, said = _split(asked, own)
    recalls, shown = list(context.recalls), [*window, *said]
    question = [] if context.question is None else [context.question]
    used = context.tokens - _memory_cost(context, [*window, *question], recalls, counter)
    used += _cost([*system, *said], counter) - _cost([*own, *question], counter)
    while recalls and used + _memory_cost(context, shown, recalls, counter) > context.max_tokens:
        recalls.pop()
    older: list[Sequence[Message]] = []
    if used > context.max_tokens:
        entries = [_entry(seq, message) for seq, message in enumerate(window, 1)]
        older = [[entry.message for entry in turn] for turn in turns(entries)]
        while used > context.max_tokens and older:
            used -= _cost(older.pop(0), counter)
        window = [message for turn in older for message in turn]
    if used > context.max_tokens:
        used, summary = used - _cost(summary, counter), []
    if used > context.max_tokens:
        raise MessageTooLarge(
            f"The turn takes {used} tokens with the system message, and does not fit "
            f"max_tokens={context.max_tokens}. Shorten it, or raise max_tokens."
        )
    messages = [*system, *summary, *window, *said]
    return replace(context, recalls=recalls, messages=messages, question=None).to_messages()


def spare(context: MemoryContext, asked: Sequence[Message], counter: TokenCounter) -> int:
    """Tokens that are left in the budget beside the system message and a turn; maybe below 0."""
    own, _, _ = _parts(context)
    system, said = _split(asked, own)
    return context.max_tokens - counter.overhead - _cost([*system, *said], counter)


def tool_result(call_id: str, text: str, most: int, counter: TokenCounter) -> Message:
    """The message that answers a call; what passes `most` tokens is left out, and that is said."""
    whole = Message(role="tool", tool_call_id=call_id, content=text)
    if len(text) <= most * _LONGEST_TOKEN and counter.message(whole) <= most:
        return whole
    mark = f"\n[{len(text):,} characters, of which only the beginning fits. Ask for less.]"
    frame = counter.message(Message(role="tool", tool_call_id=call_id, content=mark))
    room = max(0, most - frame)
    kept = clip(text[: room * _LONGEST_TOKEN], counter.text, room)
    return Message(role="tool", tool_call_id=call_id, content=kept + mark)


def _parts(context: MemoryContext) -> tuple[list[Message], list[Message], list[Message]]:
    """The system message of a context, its summary, and its turns."""
    leading = leading_count(context.messages, context.head)
    before, window = context.messages[:leading], context.messages[leading:]
    system = context.head.system if context.head is not None else None
    own = before[:1] if system is not None and before[:1] == [system] else []
    return own, before[len(own) :], window


def _split(asked: Sequence[Message], own: list[Message]) -> tuple[list[Message], list[Message]]:
    """The system message that stands above a turn, and the turn without any."""
    given = [message for message in asked if message.is_system][-1:]
    return given or own, [message for message in asked if not message.is_system]


def _cost(messages: Sequence[Message], counter: TokenCounter) -> int:
    return sum(counter.message(message) for message in messages)


def _memory_cost(
    context: MemoryContext,
    shown: Sequence[Message],
    recalls: list[Recall],
    counter: TokenCounter,
) -> int:
    """What recalls add: they stand at the newest user message, wherever that is."""
    beside = next(([message] for message in reversed(shown) if role_of(message) == "user"), [])
    alone = replace(context, head=None, messages=beside, recalls=recalls, question=None)
    bare = replace(alone, recalls=[])
    return counter.context(alone.to_messages()) - counter.context(bare.to_messages())


def _entry(seq: int, message: Message) -> Entry:
    return Entry("", seq, message, 0, 0, "", message.created_at)
