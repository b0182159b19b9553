"""The frame of a chat message: what stays of it however little room there is, and what may be cut.

Pure functions over OpenAI chat dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from agent_memory.core.excerpts import ELLIPSIS
from agent_memory.core.records import Entry
from agent_memory.core.tokens.counter import TokenCounter

View = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """What of a message may be shown in part: its content, other texts of it, a call's arguments.

    Attributes:
        value: The text, or the list of parts.
        put: Gives a view with something in its place.
        is_arguments: Whether it is JSON that a call gives.
        priced: Tokens of one part of a list.
    """

    value: Any
    put: Callable[[View, Any], View]
    is_arguments: bool
    priced: Callable[[Any], int]

    def cost(self, counter: TokenCounter) -> int:
        """Tokens of it, whole."""
        if isinstance(self.value, list):
            return sum(map(self.priced, self.value))
        return counter.text(self.value)


def frame_of(view: View, keys: Collection[str]) -> View:
    """A view without what may be shown in part, but with all that its calls carry.

    Args:
        view: The message.
        keys: Further fields that are to be in it, where they are no texts.
    """
    frame = least_view(view)
    for key in keys:
        if key != "content" and (key == "name" or not isinstance(view.get(key), str)):
            frame.setdefault(key, view.get(key))
    calls = view.get("tool_calls")
    if isinstance(calls, list) and calls:
        frame["tool_calls"] = [_emptied(call) for call in calls]
    return frame


def _emptied(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    return {**call, "function": {**function, "arguments": "{}"}}


def least_view(view: View) -> View:
    """A view that says no more than who speaks, what is called, and what is answered."""
    least: View = {"role": view.get("role")}
    if "tool_call_id" in view:
        least["tool_call_id"] = view["tool_call_id"]
    calls, function = view.get("tool_calls"), view.get("function_call")
    if isinstance(calls, list) and calls:
        least["tool_calls"] = [bare_call(call) for call in calls]
    if isinstance(function, dict):
        least["function_call"] = {"name": function.get("name"), "arguments": "{}"}
    if view.get("role") == "function":
        least["name"] = view.get("name")
    is_call = "tool_calls" in least or "function_call" in least
    least["content"] = None if is_call else ELLIPSIS
    return least


def bare_call(call: Any) -> Any:
    """A call without what it gives, or what its provider adds."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    kept = {key: call[key] for key in ("id", "type") if key in call}
    return {**kept, "function": {"name": function.get("name"), "arguments": "{}"}}


def pieces_of(view: View, priced: Callable[[Any], int]) -> list[Piece]:
    """What of a message may be shown in part, in order.

    Args:
        view: The message.
        priced: Tokens of one part of a list.
    """
    pieces: list[Piece] = []
    for key, value in view.items():
        is_text = isinstance(value, str) and key not in ("role", "name", "tool_call_id")
        if value and (is_text or (key == "content" and isinstance(value, list))):
            pieces.append(Piece(value, _at(key), False, priced))
    for place, call in enumerate(view.get("tool_calls") or ()):
        function = call.get("function") if isinstance(call, dict) else None
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, str) and arguments:
            pieces.append(Piece(arguments, _at_call(place), True, priced))
    function = view.get("function_call")
    if isinstance(function, dict) and isinstance(arguments := function.get("arguments"), str):
        pieces.append(Piece(arguments, _at_function, True, priced))
    return pieces


def _at(key: str) -> Callable[[View, Any], View]:
    return lambda view, value: {**view, key: value}


def _at_call(place: int) -> Callable[[View, Any], View]:
    def put(view: View, value: Any) -> View:
        calls = list(view["tool_calls"])
        calls[place] = _given(calls[place], value)
        return {**view, "tool_calls": calls}

    return put


def _given(call: View, arguments: Any) -> View:
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _at_function(view: View, value: Any) -> View:
    return {**view, "function_call": {**view["function_call"], "arguments": value}}


def calls_of(entry: Entry) -> list[Any]:
    """The calls of tools in a message."""
    return (entry.message.to_openai() or {}).get("tool_calls") or []


def answers(entry: Entry, call: Any) -> bool:
    """Whether a message is the result of a call."""
    view = entry.message.to_openai() or {}
    return isinstance(call, dict) and view.get("tool_call_id") == call.get("id")
