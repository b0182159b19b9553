"""Steps of smolagents: a system prompt, a task, or an action with calls and observations. Pure.

The observations are one text with the results of all calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory.core.formats import neutral
from agent_memory.core.formats.neutral import Json, dicts, mapping, says

_FINAL = "final_answer"
_WITH_LAST = "[with the last result]"


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """Return a step as chat messages, without the call of the tool `final_answer`."""
    for field, role in (("system_prompt", "system"), ("task", "user")):
        if field in raw:
            return neutral.views_of(role, _parts(raw[field]))
    calls = [call for call in map(_call, dicts(raw.get("tool_calls"))) if _name(call) != _FINAL]
    views = neutral.views_of("assistant", _parts(raw.get("model_output")), calls)
    for call in calls:
        text = raw.get("observations") or "" if call is calls[-1] else _WITH_LAST
        views.append(neutral.answer_of(call["id"], text, _name(call)))
    return views + neutral.views_of("assistant", _parts(raw.get("answer")))


def unseen(raw: Mapping[str, Any]) -> list[Any]:
    """Return the call of the tool `final_answer`, which chat messages do not show."""
    return [call for call in dicts(raw.get("tool_calls")) if _name(call) == _FINAL]


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    role, text = view.get("role"), neutral.text_of(view.get("content") or "")
    if role in ("system", "developer"):
        return [{"system_prompt": text}]
    if role == "user":
        return [{"task": text}]
    if role == "tool":
        return [{"observations": text}]
    step: Json = {"model_output": text} if text else {}
    if calls := neutral.parsed_calls(view):
        step["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ]
    return [step] if step else []


def _parts(text: object) -> list[Json]:
    return [neutral.text_part(str(text))] if says(text) else []


def _call(call: Json) -> Json:
    """Return a call whose arguments are a JSON object."""
    arguments = mapping(call.get("function")).get("arguments")
    if not isinstance(arguments, Mapping):
        arguments = {"code": arguments}
    return neutral.call_of(call.get("id"), _name(call), arguments)


def _name(call: Mapping[str, Any]) -> str:
    return str(mapping(call.get("function")).get("name") or "tool")
