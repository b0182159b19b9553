"""Recognition of the format of a caller's message, by its fields. Pure.

The fields of a message of OpenAI's chat become those of `Message`. Any other message is stored
whole, as the raw item of its format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

from agent_memory.core.formats.exact import written
from agent_memory.core.formats.neutral import ROLES, role_in
from agent_memory.core.formats.registry import RESPONSES, Format, form_of, recognised
from agent_memory.core.limits import MAX_DEPTH
from agent_memory.core.timestamps import TIMES, parse_time
from agent_memory.errors import InvalidMessage

Fields = Mapping[str, Any]

_NESTED = ("content", "tool_calls", "function_call", "parts", "output", "candidates", "message")
_SHAPED = frozenset({"parts", "type", "blocks", "contents", "kind", "phase", "tool_calls"})
"""Fields that a message of a role and a text does not have."""
_OWN = ("created_at", "metadata")
_MESSAGE = frozenset({"role", "raw", "type", "parts", "kind"})
"""Fields of a message or an item. A response around a message has none of these fields."""
_HOLDERS = ("choices", "candidates", "output", "message", "content")
"""Fields of a response that hold the message, or a nested response."""
_WITH_IDS = ("google.contents", "anthropic.messages", "bedrock.converse", "ai_sdk")
"""Formats in which only responses have a provider's `id`. Any other `id` is the caller's."""
_GOOGLE = "google.genai"
_LLAMA_INDEX = "llama_index"  # its roles are enums, and its pictures are bytes
_BY_JSON = ("openai", "anthropic")

_WANTED = (
    'Pass text, a dict such as {"role": "user", "content": "Hello"}, or a message of OpenAI, '
    "Anthropic, Gemini, Bedrock or LangChain."
)
_AS_LIST = "Pass several messages as a list, such as list(messages)."


def fields_in(value: object) -> list[Fields]:
    """Return the fields of each message in a value. Only a response can hold several messages."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    fields = _mapping(value)
    if is_response(fields):
        return _items(fields)
    return [_fields(_unwrapped(fields))]


def check_pair(value: object) -> None:
    """Refuse a pair such as ("user", "Hello"). It would be stored as two messages."""
    if isinstance(value, tuple) and len(value) == 2 and value[0] in ROLES:
        raise InvalidMessage(
            "A pair of a role and a text is not a message. "
            f'Pass {{"role": "{value[0]}", "content": ...}}.'
        )


def is_response(value: Fields) -> bool:
    """Return whether a value is a response of OpenAI's Responses API."""
    is_list = isinstance(value.get("output"), list)
    return is_list and not {"role", "raw", "choices", "type"} & value.keys()


def _unwrapped(value: Fields) -> Fields:
    """Return the message inside a response, or the value itself."""
    while not _MESSAGE & value.keys():
        values = (value.get(key) for key in _HOLDERS)
        firsts = (item[0] if isinstance(item, list) and item else item for item in values)
        inner = next((item for item in firsts if isinstance(item, Mapping)), None)
        if inner is None:
            return value
        value = inner
    return value


def _fields(fields: Fields) -> Fields:
    if fields.get("created_at", ...) is None:
        fields = {key: value for key, value in fields.items() if key != "created_at"}
    raw = fields.get("raw")
    if raw is not None:
        return _of_raw(fields, raw)
    content = fields.get("content", "")
    is_chat = "role" in fields and "content" in fields and not _SHAPED & fields.keys()
    is_shaped = not is_chat or isinstance(content, list)
    if is_shaped or type(content) is not str:
        fields = {key: plain(value) if key in _NESTED else value for key, value in fields.items()}
    if is_shaped:
        form = recognised(fields)
        if form is not None:
            return _stored(fields, form)
    role = fields.get("role")
    if role is None:
        raise InvalidMessage(f"The message has no `role`. {_WANTED}")
    if role == "user" and "content" not in fields:  # no context could show it
        raise InvalidMessage(f"The message has no `content`. {_WANTED}")
    return {**fields, "role": role_in(role)} if isinstance(role, str) else fields


def _of_raw(fields: Fields, raw: Any) -> Fields:
    name = fields.get("format")
    if name is None and isinstance(raw, Mapping) and (form := recognised(raw)) is not None:
        return {**fields, **_stored(raw, form)}
    return {**fields, "raw": written(raw)} if form_of(name).is_exact else fields


def _stored(fields: Fields, form: Format) -> Fields:
    is_callers = form.name in _WITH_IDS and fields.get("type") != "message"
    keys = (*_OWN, "id") if is_callers else _OWN
    supplied = {key: fields[key] for key in keys if key in fields and (key != "id" or fields[key])}
    item = form.to_message({key: value for key, value in fields.items() if key not in supplied})
    raw = written(item) if form.is_exact else item
    return {"raw": raw, "format": form.name, **supplied}


def _items(response: Fields) -> list[Fields]:
    from agent_memory.core.formats.responses import COMPACTED

    output = response["output"]
    if not output or not all(isinstance(item, dict) for item in output):
        raise InvalidMessage(
            "This response of the Responses API has no output items to store. Pass "
            "a completed response."
        )
    at = parse_time(response.get("created_at"))
    dated: dict[str, Any] = {} if at is None else {"created_at": at}
    if response.get("object") == COMPACTED:  # stored as one item
        output = [dict(response)]
    return [{"raw": item, "format": RESPONSES, **dated} for item in output]


def _mapping(value: object) -> Fields:
    fields = value if isinstance(value, Mapping) else plain(value)
    if not isinstance(fields, Mapping):
        advice = _AS_LIST if isinstance(value, Iterator) else _WANTED
        raise InvalidMessage(f"A message cannot be of type {type(value).__name__}. {advice}")
    return fields


def plain(value: Any, depth: int = 0) -> Any:
    """Convert objects with `model_dump()` to dicts, recursively."""
    if depth > MAX_DEPTH:
        return value
    if type(value) is dict:
        return {key: plain(item, depth + 1) for key, item in value.items()}
    if type(value) is list:
        return [plain(item, depth + 1) for item in value]
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        return value
    package = type(value).__module__
    if package.startswith(_GOOGLE):
        return dump(exclude_none=True)  # the mode "json" would encode bytes
    if package.partition(".")[0] in _BY_JSON:
        return dump(mode="json", exclude_unset=True)  # the fields that the API sent
    return dump(mode="json") if package.startswith(_LLAMA_INDEX) else dump()


def dated(fields: Fields, zone: tzinfo) -> Fields:
    """Read a time without an offset as a time in `zone`. Without a time, add the current one."""
    at = fields.get("created_at")
    if at is None:
        has_time = any(parse_time(fields.get(key)) for key in TIMES)
        return fields if has_time else {**fields, "created_at": datetime.now(zone)}
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:  # `Message` refuses it
            return fields
    is_bare = isinstance(at, datetime) and at.tzinfo is None
    return {**fields, "created_at": at.replace(tzinfo=zone)} if is_bare else fields


def check_count(messages: Sequence[object]) -> None:
    """Refuse a response of several messages if one message is required."""
    if len(messages) != 1:
        raise InvalidMessage(
            f"This response of the Responses API holds {len(messages)} messages, but one is "
            'required. Pass the whole response to `update`, or here {"raw": item, "format": '
            f'"{RESPONSES}"}} with one of its output items.'
        )
