"""Rendering of contexts in a provider's format: the messages in order, and the system text. Pure.

Raw items in the provider's own format are not converted. Only those of their parts that the
provider would refuse are changed or left out. All other messages are converted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from agent_memory.core.cache import Cache, continues
from agent_memory.core.formats.chat import (
    converted,
    says_something,
    with_name_in_text,
    with_refusal,
)
from agent_memory.core.formats.exact import read
from agent_memory.core.formats.neutral import calls_of, is_text, mapping, text_of, text_part
from agent_memory.core.formats.registry import ANTHROPIC, CHAT, CONVERSE, Format, format_of
from agent_memory.core.messages import SYSTEM_ROLES, Message, copied
from agent_memory.core.settings_model import MemoryRole
from agent_memory.core.shapes import (
    BEFORE,
    Arranging,
    Shape,
    Shown,
    View,
    are_final,
    shape_of,
    shapes_of,
)

OPENING = "(The conversation begins.)"
"""The first user message for a provider that requires one at the beginning."""

_WITH_BLOCKS = (ANTHROPIC, CONVERSE)
"""Formats in which a call is one block of a message, next to signed reasoning."""

_IDS = ("id", "call_id", "tool_use_id", "toolUseId", "tool_call_id", "toolCallId")


class Rendered(NamedTuple):
    """A context in a format. `system` is empty if the messages contain the system text."""

    system: list[Any]
    messages: list[Any]


def rendered(
    messages: Sequence[Message],
    form: Format,
    leading: int = 0,
    memory: str = "",
    memory_role: MemoryRole = "system",
) -> Rendered:
    """Render messages in a format, with the `<memory>` element at the place of `memory_role`.

    `leading` is the number of messages before the turns.
    """
    above: list[tuple[View, Any]] = [
        (view, message.raw if message.format == form.name else None)
        for message in messages[:leading]
        for view in message.views()
    ]
    if memory and memory_role == "leading":
        first = above[0][0] if above else {"role": "system"}
        above, memory = [(led(first, memory), None), *above[1:]], ""
    system: list[Any] = []
    front: list[Any] = []
    for view, raw in above:
        if not says_something(view):
            continue
        if form.arguments.system and view["role"] in SYSTEM_ROLES:
            system.append(view.get("content"))
        elif raw is not None:
            front += form.items(raw)
        else:
            front += _converted(view, form)
    front = _own(front, form)
    settled, newest = _body(messages[leading:], form, memory, memory_role)
    items = copied(settled.items)
    if len(items) > 2:  # `settled.items` are merged already
        begin, end = form.merged([*front, items[0]]), form.merged([items[-1], *newest])
        items = [*begin, *items[1:-1], *end]
    else:
        items = form.merged([*front, *items, *newest])
    if form.arguments.user_first and items and items[0].get("role") != "user":
        items = [*_converted({"role": "user", "content": OPENING}, form), *items]
    if settled.is_counted or any(map(form.is_counted, [*system, *front, *newest])):
        limited_context = form.limited([*system, *items])
        system, items = limited_context[: len(system)], limited_context[len(system) :]
    return Rendered(system, items)


def _own(items: Sequence[Any], form: Format) -> list[Any]:
    return [*map(read if form.is_exact else copied, items)]


class _Settled(NamedTuple):
    """The cached turns before the newest turn, in a format."""

    messages: Sequence[Message]
    shapes: list[Shape]
    # The messages in the format, merged. Contexts share these objects: do not change them.
    items: list[Any]
    arranging: Arranging  # the state with which the next messages are arranged
    is_counted: bool = False  # whether any of the items has to be passed to `Format.limited`


_SETTLED: Cache[tuple[object, ...], _Settled] = Cache(64)


def _body(
    messages: Sequence[Message], form: Format, memory: str, memory_role: MemoryRole
) -> tuple[_Settled, list[Any]]:
    """Return the cached turns before the newest turn, and the items of the newest turn."""
    newest = next((at for at in reversed(range(len(messages))) if _asks(messages[at])), 0)
    settled = _settled(messages, newest, form)
    since = len(settled.messages)
    shapes = settled.shapes + shapes_of(messages[since:])
    shown = settled.arranging.copy().shown(shapes[since:], since)
    if shown is None:
        settled = _nothing(form)
        shown = settled.arranging.shown(shapes) or []
    if memory:
        shown = _placed(shown, memory, memory_role, form)
    return settled, _own(_items(shown, messages, shapes, form), form)


def _nothing(form: Format) -> _Settled:
    return _Settled([], [], [], Arranging(form.ids, in_runs=form.in_runs))


def _settled(messages: Sequence[Message], upto: int, form: Format) -> _Settled:
    """Return the first `upto` messages in a format, and cache them.

    The result is empty if a new message answers a call of a cached turn, or has a format that is
    not registered yet.
    """
    if not upto:
        return _nothing(form)
    key = (form.name, id(messages[0]))
    cached = _SETTLED.find(key)
    if cached is None or not continues(messages[:upto], cached.messages):
        cached = _nothing(form)
    since = len(cached.messages)
    if since < upto:
        arranging = cached.arranging.copy()
        shapes = cached.shapes + shapes_of(messages[since:upto])
        shown = arranging.shown(shapes[since:], since)
        if shown is None or not are_final(messages[since:upto]):
            return _nothing(form)
        new = _own(_items(shown, messages, shapes, form), form)
        is_counted = cached.is_counted or any(map(form.is_counted, new))
        run = _last_run(cached.items)
        items = [*cached.items[:run], *form.merged([*cached.items[run:], *new])]
        settled = _Settled(messages[:upto], shapes, items, arranging, is_counted)
        cached = _SETTLED.put(key, settled)
    return cached


def _last_run(items: Sequence[Any]) -> int:
    """Return the start of the last items with the same role. New items may be merged with them."""
    begin = max(len(items) - 1, 0)
    while begin and items[begin - 1].get("role") == items[begin].get("role") is not None:
        begin -= 1
    return begin


def items_of(message: Message, name: str) -> list[Any]:
    """Return one message as items of a format. A raw item of this format is not converted."""
    if message.format == name and message.raw is not None:
        return [read(message.raw)]
    form = format_of(name)
    return [item for view in message.views() for item in _converted(view, form)]


def arguments_of(output: Rendered, form: Format) -> dict[str, Any]:
    names = form.arguments
    arguments: dict[str, Any] = {names.messages: output.messages}
    if names.system and output.system:
        value: Any = "\n\n".join(map(text_of, output.system))
        if names.system_parts:
            value = [{"text": text_of(text)} for text in output.system]
        elif len(names.system) == 1 and any(isinstance(text, list) for text in output.system):
            value = [
                part if is_text(part) else text_part(text_of([part]))
                for text in output.system
                for part in (text if isinstance(text, list) else [text])
            ]
        for name in reversed(names.system[1:]):
            value = {name: value}
        arguments[names.system[0]] = value
    return arguments


def led(first: View, memory: str) -> View:
    """Append the recalls to the first of the messages before the turns."""
    return {**first, "content": joined(first.get("content"), memory)}


def joined(content: Any, text: str) -> Any:
    if isinstance(content, list):
        return [*content, text_part(text)]
    return f"{content}\n\n{text}" if content else text


def with_memory(view: View, memory: str) -> View:
    """Insert the recalls at the beginning of a user's message."""
    content = view.get("content")
    if isinstance(content, list):
        return {**view, "content": [text_part(memory), *content]}
    return {**view, "content": f"{memory}\n\n{content or ''}"}


def _placed(shown: list[Shown], memory: str, role: MemoryRole, form: Format) -> list[Shown]:
    """Insert the recalls at the newest user message, or at the beginning if there is none."""
    newest = next(
        (at for at in reversed(range(len(shown))) if shown[at].view["role"] == "user"), None
    )
    own_role = "user" if form.arguments.system_first else role
    own = Shown({"role": own_role, "content": memory}, -1)
    if newest is None:
        return [own, *shown]
    if role == "system":
        return [*shown[:newest], own, *shown[newest:]]
    user_message = shown[newest]
    view = user_message.view if form.has_names else with_name_in_text(user_message.view)
    user_message = user_message._replace(view=with_memory(view, memory), is_same=False)
    return [*shown[:newest], user_message, *shown[newest + 1 :]]


def _asks(message: Message) -> bool:
    shape = shape_of(message)
    return shape.is_plain and shape.role == "user"


def _items(
    shown: Sequence[Shown], messages: Sequence[Message], shapes: Sequence[Shape], form: Format
) -> list[Any]:
    items: list[Any] = []
    at = 0
    while at < len(shown):
        first = shown[at]
        at += 1
        message = messages[first.place] if first.place >= 0 else None
        if message is None or message.raw is None or message.format != form.name:
            is_other_format = message is not None and message.format not in (None, CHAT)
            is_chat = is_other_format and form.name == CHAT  # also for shortened messages
            items += _converted(converted(first.view) if is_chat else first.view, form)
            continue
        count = len(shapes[first.place].views)
        run = shown[at - 1 : at - 1 + count]
        raw = message.raw if _is_complete(run, first.place, count) else None
        if raw is not None and not all(view.is_same for view in run):
            raw = _renamed(raw, run, shapes[first.place], form)
        if raw is None:
            items += _converted(first.view, form)
            continue
        at += count - 1
        for item in (*message.metadata.get(BEFORE, ()), raw):
            items += form.items(item)
    return items


def _is_complete(run: Sequence[Shown], place: int, count: int) -> bool:
    return len(run) == count and all(
        view.place == place and view.number == number for number, view in enumerate(run)
    )


def _renamed(raw: Mapping[str, Any], run: Sequence[Shown], shape: Shape, form: Format) -> Any:
    """Return a raw item with the calls of the shown views, and their ids. None if this fails."""
    new: dict[str, str] = {}
    gone: set[Any] = set()
    for shown_view, was in zip(run, shape.views, strict=True):
        calls, left = calls_of(was), calls_of(shown_view.view)
        if len(left) < len(calls) and form.name in _WITH_BLOCKS:
            ids = {call.get("id") for call in left}
            gone |= {call.get("id") for call in calls} - ids
            calls = [call for call in calls if call.get("id") in ids]
        same = all(was.get(key) == shown_view.view.get(key) for key in ("content", "name"))
        if not same or len(left) != len(calls):
            return None
        pairs = [(old.get("id"), call.get("id")) for old, call in zip(calls, left, strict=True)]
        if shown_view.view.get("role") in ("tool", "function"):
            pairs.append((was.get("tool_call_id"), shown_view.view.get("tool_call_id")))
        for old, new_id in pairs:
            if not isinstance(old, str) or new.setdefault(old, str(new_id)) != new_id:
                return None
    if gone:
        blocks = [block for block in raw["content"] if not _calls(mapping(block), gone)]
        raw = {**raw, "content": blocks}
    return _with_ids(raw, new)


def _calls(block: Mapping[str, Any], ids: Collection[Any]) -> bool:
    use = block if block.get("type") == "tool_use" else block.get("toolUse")
    return use is not None and mapping(use).get("id", mapping(use).get("toolUseId")) in ids


def _with_ids(value: Any, new: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: new.get(inner, inner)
            if key in _IDS and isinstance(inner, str)
            else _with_ids(inner, new)
            for key, inner in value.items()
        }
    return [_with_ids(item, new) for item in value] if isinstance(value, list) else value


def _converted(view: View, form: Format) -> Sequence[Any]:
    assert form.from_chat is not None, "`format_of` returns only formats with `from_chat`"
    if not form.has_names:
        view = with_name_in_text(view)
    if form.arguments.system and view["role"] in SYSTEM_ROLES:
        view = {**view, "role": "user"}
    return form.from_chat(view if form.name == CHAT else with_refusal(view))
