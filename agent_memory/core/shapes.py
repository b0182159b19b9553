"""The shape of a message for a model: its chat views, calls and results. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from agent_memory.core.formats.chat import says_something
from agent_memory.core.formats.parts import calls_of, mapping
from agent_memory.core.formats.registry import compacts, is_known
from agent_memory.core.messages import SHAPE, Message

View = dict[str, Any]

HIDDEN = "agent_memory:hidden"
"""The metadata key of a message that replaces an item without a chat form."""


class Call(NamedTuple):
    """The id and name by which a call and its result are paired.

    Attributes:
        id: The id, if there is one.
        name: The tool, if it is named.
        view: The number of the view in the message.
        number: Its place among the calls of that view.
    """

    id: str | None
    name: str | None
    view: int
    number: int = 0


class Shape(NamedTuple):
    """The shape of a message for a model.

    Attributes:
        views: The message as OpenAI chat dicts. They are shared: do not change them.
        role: The role of the first view that is not empty, or of the first view.
        calls: The calls in it.
        answers: The results in it.
        says: For each view, whether it has content beside calls and results.
        speaks: Whether any view has such content.
        is_plain: Whether it is one view with content and without calls and results.
        compacts: Whether it replaces all messages before it, for the provider of its format.
    """

    views: tuple[View, ...]
    role: str | None
    calls: tuple[Call, ...]
    answers: tuple[Call, ...]
    says: tuple[bool, ...]
    speaks: bool = False
    is_plain: bool = False
    compacts: bool = False


def shape_of(message: Message) -> Shape:
    """Return the shape of a message, computed once."""
    shape: Shape | None = message.__dict__.get(SHAPE)
    if shape is None:
        shape = _compute_shape(message)
        if message.role is not None or is_known(
            message.format
        ):  # unknown formats may be registered later
            vars(message)[SHAPE] = shape
    return shape


def shapes_of(messages: Sequence[Message]) -> list[Shape]:
    """Return the shapes of messages, most of which are cached."""
    return [message.__dict__.get(SHAPE) or shape_of(message) for message in messages]


def are_known(messages: Iterable[Message]) -> bool:
    """Return whether the shapes of messages are computed for good: all formats are registered."""
    return all(SHAPE in message.__dict__ for message in messages)


def role_of(message: Message) -> str | None:
    """Return the role of a message in a chat."""
    return message.role if message.role is not None else shape_of(message).role


def _compute_shape(message: Message) -> Shape:
    views = tuple(message.views())
    is_compaction = message.raw is not None and compacts(message.raw, message.format)
    if not views:
        return Shape((), None, (), (), (), compacts=is_compaction)
    if message.role is not None and HIDDEN in message.metadata:
        view = views[0]
        if view["role"] == "tool":
            return Shape(views, "tool", (), (Call(view["tool_call_id"], None, 0),), (False,))
        ids = [Call(call["id"], None, 0) for call in view.get("tool_calls") or ()]
        return Shape(views, view["role"], tuple(ids), (), (not ids,), not ids, not ids)
    calls: list[Call] = []
    answers: list[Call] = []
    says: list[bool] = []
    for place, view in enumerate(views):
        role = view.get("role")
        if role in ("tool", "function"):
            name = _text(view.get("name"))
            call_id = _text(view.get("tool_call_id")) if role == "tool" else f"function {name}"
            answers.append(Call(call_id, name if role == "tool" else None, place))
            says.append(False)
            continue
        for number, call in enumerate(calls_of(view)):
            function = mapping(call.get("function") or call.get("custom"))
            name = _text(function.get("name"))
            old = call.get("function") is view.get("function_call") is not None
            call_id = f"function {name}" if old else _text(call.get("id"))
            calls.append(Call(call_id, None if old else name, place, number))
        says.append(_says(view))
    speaks = any(says)
    is_plain = speaks and len(views) == 1 and not calls and not answers
    spoken = next(
        (view for view, has_content in zip(views, says, strict=True) if has_content), views[0]
    )
    role = spoken.get("role")
    return Shape(
        views, role, tuple(calls), tuple(answers), tuple(says), speaks, is_plain, is_compaction
    )


def _says(view: View) -> bool:
    if view.get("tool_calls") or view.get("function_call"):
        return says_something({"role": view["role"], "content": view.get("content")})
    return says_something(view)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
