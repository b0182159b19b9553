"""The chat form of messages, pairs of calls and results, and the order in a context. Pure.

A *view* is a message as an OpenAI chat dict. A raw item of another format may have several or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

from agent_memory.core.formats.chat import says_something
from agent_memory.core.formats.neutral import calls_of, mapping
from agent_memory.core.formats.registry import Ids, form_of, is_registered
from agent_memory.core.messages import SHAPE, Message

View = dict[str, Any]

HIDDEN = "agent_memory:hidden"
"""The metadata key of a message that stands for an item without a chat form."""

BEFORE = "agent_memory:before"
"""The metadata key of a message for the items that are sent before it, such as reasoning."""


class Call(NamedTuple):
    """The id and tool name by which a call or a result is paired."""

    id: str | None
    name: str | None
    view: int  # the index of the view in the message
    number: int = 0  # the index of the call among the calls of that view; 0 for a result


class Shape(NamedTuple):
    """The properties of a message that decide how the message is shown to a model."""

    # The views of the message. Contexts share these objects: do not change them.
    views: tuple[View, ...]
    # the role of the first view with content (see `says`), or else of the first view
    role: str | None
    calls: tuple[Call, ...]  # the calls of all views
    answers: tuple[Call, ...]  # the results of calls in all views
    says: tuple[bool, ...]  # for each view, whether it has content besides calls and results
    speaks: bool = False  # whether any view has such content
    # whether the message is one view with content and without calls and results
    is_plain: bool = False
    # whether the provider of the format takes the message in place of all messages before it
    compacts: bool = False


def shape_of(message: Message) -> Shape:
    """Return the shape of a message. It is cached in the message."""
    shape: Shape | None = message.__dict__.get(SHAPE)
    if shape is None:
        shape = _compute_shape(message)
        # The format of a raw item may be registered later, and then changes the shape.
        if message.role is not None or is_registered(message.format):
            vars(message)[SHAPE] = shape
    return shape


def shapes_of(messages: Sequence[Message]) -> list[Shape]:
    return [message.__dict__.get(SHAPE) or shape_of(message) for message in messages]


def are_final(messages: Iterable[Message]) -> bool:
    """Return whether the shapes of all messages are final: their formats are registered."""
    return all(SHAPE in message.__dict__ for message in messages)


def role_of(message: Message) -> str | None:
    return message.role if message.role is not None else shape_of(message).role


def leads(message: Message) -> bool:
    """Return whether a message, such as reasoning, must be sent with the message after it."""
    return message.raw is not None and form_of(message.format).leads(message.raw)


def user_messages(messages: Iterable[Message]) -> Iterator[Message]:
    return (message for message in messages if role_of(message) == "user")


def newest_user(newest_first: Iterable[Message]) -> Message | None:
    """Return the first user message of an iterable in which newer messages come first."""
    return next(user_messages(newest_first), None)


def _compute_shape(message: Message) -> Shape:
    views = tuple(message.views())
    raw = message.raw
    is_compaction = raw is not None and form_of(message.format).compacts(raw)
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
            name = _text(view.get("name") or view.get("tool_name"))  # the latter in Ollama
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
    role = next(compress(views, says), views[0]).get("role")
    return Shape(
        views, role, tuple(calls), tuple(answers), tuple(says), speaks, is_plain, is_compaction
    )


def _says(view: View) -> bool:
    if view.get("tool_calls") or view.get("function_call"):
        return says_something({"role": view["role"], "content": view.get("content")})
    return says_something(view)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


Place = tuple[int, int]
"""The index of a message, and the index in its `Shape.calls` or `Shape.answers`."""


class Shown(NamedTuple):
    """A chat message as it is shown."""

    view: View
    place: int  # the index of the original message, or -1 if there is none
    number: int = 0  # the index of the view in that message
    is_same: bool = True  # whether `view` equals that view


def pairs(shapes: Sequence[Shape]) -> dict[Place, Place]:
    """Map each result to the call that it answers. Results without a call are left out.

    A call and its result have the same id, or the same tool name if one of them has no id. Several
    calls may have the same id. A result then answers the newest message with a pending call of
    that id, and in this message the first such call. A result may stand before its call, in the
    same turn. Such results are paired last.
    """
    paired: dict[Place, Place] = {}
    pending: dict[str | None, list[Place]] = {}
    early: list[tuple[Place, int]] = []
    turns = 0
    turn_of: dict[int, int] = {}
    for place, shape in enumerate(shapes):
        if shape.is_plain:
            turns += shape.role == "user"
            continue
        turn_of[place] = turns
        for number, answer in enumerate(shape.answers):
            candidates = pending.get(answer.id) if answer.id is not None else None
            if candidates and len(candidates) == 1 and answer.name is None:  # the usual case
                paired[place, number] = candidates.pop()
                continue
            call = _take_call(answer, pending, shapes)
            if call is None:
                early.append(((place, number), turns))
            else:
                paired[place, number] = call
        for number, new_call in enumerate(shape.calls):
            candidates = pending.get(new_call.id)
            if candidates is None:
                pending[new_call.id] = [(place, number)]
            else:
                candidates.append((place, number))
        turns += shape.speaks and shape.role in ("user", "tool")
    for at, turn in early if any(pending.values()) else ():
        same_turn = {
            key: [call for call in places if call[0] >= at[0] and turn_of[call[0]] == turn]
            for key, places in pending.items()
        }
        call = _take_call(shapes[at[0]].answers[at[1]], same_turn, shapes, early=True)
        if call is not None:
            paired[at] = call
            pending[shapes[call[0]].calls[call[1]].id].remove(call)
    return paired


def _take_call(
    answer: Call,
    pending: dict[str | None, list[Place]],
    shapes: Sequence[Shape],
    *,
    early: bool = False,
) -> Place | None:
    """Return the call that a result answers, and remove it from the pending calls.

    Among calls with the result's id, calls of the result's tool have priority. With `early`, calls
    of other tools are excluded.
    """
    candidates = pending.get(answer.id, []) if answer.id is not None else []
    if candidates and answer.name is not None:
        names = [(place, shapes[place[0]].calls[place[1]].name) for place in candidates]
        same = [place for place, name in names if name == answer.name or (early and name is None)]
        candidates = same if same or early else candidates
    if not candidates and answer.name is not None:
        keys = pending if answer.id is None else [None]
        candidates = sorted(
            (place, number)
            for key in keys
            for place, number in pending.get(key, ())
            if shapes[place].calls[number].name == answer.name
        )
    if not candidates:
        return None
    newest = candidates[-1][0]
    chosen = next(place for place in candidates if place[0] == newest)
    pending[shapes[chosen[0]].calls[chosen[1]].id].remove(chosen)
    return chosen


class Arranging:
    """Puts messages into the order in which a model sees them.

    Results follow right after their calls. Messages between a call and its results are moved behind
    the results. Calls without a result, results without a call, and empty messages are left out.

    `ids` are the rules of the provider for call ids. With `in_runs`, messages with calls may follow
    each other directly, and the results follow the last of these messages.
    """

    def __init__(self, ids: Ids, *, in_runs: bool = False) -> None:
        self._ids, self._in_runs = ids, in_runs
        self._used: set[str] = set()
        self._count = 0
        self._has_pending = False

    def copy(self) -> Arranging:
        copy = Arranging(self._ids, in_runs=self._in_runs)
        copy._used, copy._count, copy._has_pending = set(self._used), self._count, self._has_pending
        return copy

    def shown(self, shapes: Sequence[Shape], since: int = 0) -> list[Shown] | None:
        """Arrange messages from index `since` on. None if any may answer an earlier call."""
        if all(shape.is_plain for shape in shapes):
            return [Shown(shape.views[0], at) for at, shape in enumerate(shapes, since)]
        results: dict[Place, list[Place]] = {}
        answered = pairs(shapes)
        if self._has_pending and len(answered) < sum(len(shape.answers) for shape in shapes):
            return None
        for answer, call in sorted(answered.items()):
            results.setdefault(call, []).append(answer)
        expected = sum(len(shape.calls) for shape in shapes)
        self._has_pending = self._has_pending or len(results) < expected
        arranged_messages: list[Shown] = []
        pending: list[Shown] = []
        for place, shape in enumerate(shapes):
            if shape.is_plain:
                arranged_messages += pending
                pending = []
                arranged_messages.append(Shown(shape.views[0], place + since))
                continue
            answers = {answer.view for answer in shape.answers}
            for number, view in enumerate(shape.views):
                if number in answers:
                    continue
                calls = [at for at, call in enumerate(shape.calls) if call.view == number]
                answered_calls = [at for at in calls if (place, at) in results]
                if not (answered_calls or shape.says[number]):
                    continue
                later = all(message.place > place + since for message in pending)
                if pending and not (answered_calls and self._in_runs and later):
                    arranged_messages += pending
                    pending = []
                if not calls:
                    arranged_messages.append(Shown(view, place + since, number))
                    continue
                complete = len(answered_calls) == len(calls)
                if not complete:
                    view = _with_calls(view, [shape.calls[at].number for at in answered_calls])
                message = self._with_valid_ids(view, place + since, number)
                arranged_messages.append(message if complete else message._replace(is_same=False))
                call_of_answer = {
                    answer: call
                    for at, call in zip(answered_calls, calls_of(message.view), strict=True)
                    for answer in results[place, at]
                }
                for (at, index), own_call in sorted(call_of_answer.items()):
                    number_of_view = shapes[at].answers[index].view
                    answer_view = shapes[at].views[number_of_view]
                    pending.append(self._answer(answer_view, own_call, at + since, number_of_view))
        return arranged_messages + pending

    def _with_valid_ids(self, view: View, place: int, number: int) -> Shown:
        if not self._ids.unique:
            self._used = set()
        calls = calls_of(view)
        old = view.get("function_call")
        is_old = not view.get("tool_calls") and self._ids.functions
        if self._ids.pattern is None or is_old:
            return Shown(view, place, number)
        valid_calls = [self._with_valid_id(call) for call in calls]
        if all(a is b for a, b in zip(valid_calls, calls, strict=True)) and old is None:
            return Shown(view, place, number)
        rest = {key: value for key, value in view.items() if key != "function_call"}
        valid = {**rest, "tool_calls": valid_calls} if valid_calls else view
        return Shown(valid, place, number, not valid_calls)

    def _with_valid_id(self, call: View) -> View:
        call_id = call.get("id")
        pattern = self._ids.pattern
        is_hidden = not ("function" in call or "custom" in call)
        fits = isinstance(call_id, str) and pattern is not None and pattern.fullmatch(call_id)
        if is_hidden or (fits and call_id not in self._used):
            self._used.add(str(call_id))
            return call
        new = call_id
        while new == call_id or new in self._used:
            self._count += 1
            new = f"call_{self._count}"  # not more tokens than `TokenCounter` counts for any id
        self._used.add(str(new))
        function = call.get("function")
        if isinstance(function, Mapping) and "arguments" not in function:
            call = {**call, "function": {**function, "arguments": "{}"}}
        return {**call, "id": new}

    def _answer(self, view: View, call: View, place: int, number: int) -> Shown:
        function = mapping(call.get("function") or call.get("custom"))
        name = function.get("name")
        if self._ids.pattern is None:
            fields = {"role": "tool", "name": name}
        elif call.get("id") is None:
            fields = {"role": "function", "name": name}
        else:
            fields = {"role": "tool", "tool_call_id": call.get("id")}
        if all(view.get(key) == value for key, value in fields.items()):
            return Shown(view, place, number)
        rest = dict(view)
        if fields["role"] == "function":
            rest.pop("tool_call_id", None)
        return Shown({**rest, **fields}, place, number, is_same=False)


def _with_calls(view: View, numbers: Sequence[int]) -> View:
    calls = calls_of(view)
    shown_calls = [calls[number] for number in numbers]
    rest = {key: value for key, value in view.items() if key not in ("tool_calls", "function_call")}
    old = view.get("function_call")
    tools = [call for call in shown_calls if old is None or call.get("function") is not old]
    if len(tools) < len(shown_calls):
        rest["function_call"] = old
    return {**rest, "tool_calls": tools} if tools else rest
