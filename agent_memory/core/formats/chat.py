"""Messages of OpenAI's Chat Completions API. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import is_
from typing import Any

from agent_memory.core.formats import neutral
from agent_memory.core.formats.neutral import Json, is_text, says

_NOT_IN_NAMES = re.compile(r"[\s<|\\/>]+")
_MOST_NAME = 64
_SIGNED = ("thinking_blocks", "reasoning_content", "provider_specific_fields")
"""The fields in which litellm returns Claude's signed thinking."""


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    return [dict(raw)] if says_something(raw) else []


def says_something(view: Mapping[str, Any]) -> bool:
    """Return whether a chat message has text, parts, a refusal or calls, or is a call's result."""
    content = view.get("content")
    has_parts = not isinstance(content, str) and content and any(neutral.parts_of(content))
    return bool(
        has_parts
        or says(content)
        or says(view.get("refusal"))
        or view.get("role") in ("tool", "function")
        or view.get("tool_calls")
        or view.get("function_call")
    )


def with_refusal(view: Json) -> Json:
    """Move the refusal of a chat message into its content, because only OpenAI has the field."""
    refusal, content = view.get("refusal"), view.get("content")
    if not says(refusal):
        return view
    rest = {key: value for key, value in view.items() if key != "refusal"}
    parts = list(neutral.parts_of(content))
    return {**rest, "content": [*parts, neutral.text_part(str(refusal))] if parts else refusal}


def with_name_in_text(view: Json) -> Json:
    """Move a user's name into the text, because only some providers have a field for it."""
    name = view.get("name")
    if view.get("role") != "user" or not (isinstance(name, str) and says(name)):
        return view
    rest = {key: value for key, value in view.items() if key != "name"}
    return {**rest, "content": neutral.after_name(name, view.get("content"))}


def valid_name(name: str) -> str:
    """Return a speaker's name in the form that the API accepts."""
    return _NOT_IN_NAMES.sub("_", name)[:_MOST_NAME] or "_"


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    """Return the message in a list, changed so that the API accepts it.

    Empty parts are removed, the name is made valid, and the arguments of calls become text.
    """
    role, content, name = view.get("role"), view.get("content"), view.get("name")
    fixed: Json = {}
    if isinstance(content, list):
        parts = list(neutral.parts_of(content))
        if not parts or len(parts) != len(content) or not all(map(is_, parts, content)):
            fixed["content"] = parts or ("" if role in ("tool", "function") else None)
    elif content is None and role in ("tool", "function"):
        fixed["content"] = ""
    if isinstance(name, str) and (valid := valid_name(name)) != name:
        fixed["name"] = valid
    if isinstance(calls := view.get("tool_calls"), list):
        new = [*map(_with_text, calls)]
        if not all(map(is_, new, calls)):
            fixed["tool_calls"] = new
    if not view.get("tool_calls", True):  # the API refuses an empty list and None
        view = {key: field for key, field in view.items() if key != "tool_calls"}
    return [{**view, **fixed}] if fixed else [view]  # type: ignore[list-item]


def converted(view: Mapping[str, Any]) -> Json:
    """Change a chat message that was converted from another format, so that the API accepts it.

    Only a user's messages keep pictures, files and sounds, if the API accepts them. All other parts
    become text. Tool names are made valid.
    """
    converted_view, content = dict(view), view.get("content")
    if isinstance(content, list) and not all(map(is_text, content)):
        is_users = view.get("role") == "user"
        converted_view["content"] = (
            [*map(_taken, neutral.parts_of(content))] if is_users else neutral.text_of(content)
        )
    if view.get("tool_calls"):
        converted_view["tool_calls"] = [_named(call) for call in view["tool_calls"]]
    if isinstance(name := view.get("name"), str) and view.get("role") == "tool":
        converted_view["name"] = neutral.tool_name(name)
    return converted_view


def is_counted(message: Any) -> bool:
    return isinstance(message, Mapping) and bool(message.get(_SIGNED[0]))


def limited(context: list[Any]) -> list[Any]:
    """Return a context without the signed thinking of answered turns.

    Claude needs its thinking only together with the results of its calls. Others refuse it.
    """
    places = range(len(context))
    question = max((at for at in places if context[at].get("role") == "user"), default=0)
    said = (at for at in places[:question] if context[at].get("role") == "assistant")
    answered = max((at for at in said if not neutral.calls_of(context[at])), default=-1)
    return [
        {key: field for key, field in message.items() if key not in _SIGNED}
        if at <= answered and is_counted(message)
        else message
        for at, message in enumerate(context)
    ]


def _with_text(call: Any) -> Any:
    """Return the call with its arguments as text, or the call itself if they are text already."""
    function = neutral.mapping(neutral.mapping(call).get("function"))
    if not isinstance(function.get("arguments"), Mapping):
        return call
    arguments = neutral.arguments_text(function["arguments"])
    return {**call, "function": {**function, "arguments": arguments}}


def _taken(part: Any) -> Any:
    if is_text(part) or (isinstance(part, dict) and neutral.openai_takes(part)):
        return part
    return neutral.text_part(neutral.mark_of(part))


def _named(call: Json) -> Json:
    function = call.get("function")
    if not isinstance(function, dict):
        return call
    return {**call, "function": {**function, "name": neutral.tool_name(function.get("name"))}}
