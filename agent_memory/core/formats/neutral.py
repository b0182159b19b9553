"""Functions to read and write OpenAI's chat form, into which all formats are converted. Pure."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any

from agent_memory.core.formats.exact import base64_of
from agent_memory.core.text import escape

Json = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool", "function")

_ALIASES = {"human": "user", "ai": "assistant", "model": "assistant", "bot": "assistant"}
_ALIASES |= {"chatbot": "assistant"}

_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
_MOST_NAME = 64
NO_OUTPUT = "[no output]"
"""The text in place of an empty tool result, which some providers refuse."""

IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def role_in(role: str) -> str:
    """Return the standard name of a role, such as "user" for "Human"."""
    lower = role.lower()
    return _ALIASES.get(lower, lower)


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def dicts(value: object) -> list[Json]:
    """Return the dicts in a list. Empty for a value that is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def says(text: object) -> bool:
    """Return whether a value is a text with more than white space."""
    return isinstance(text, str) and bool(text) and not text.isspace()


def with_transcript(view: Json) -> Json:
    """Replace the recording of an answer by its transcript. OpenAI deletes recordings soon."""
    transcript = mapping(view["audio"]).get("transcript")
    if says(view.get("content")) or not says(transcript):
        return view
    return {key: value for key, value in view.items() if key != "audio"} | {"content": transcript}


def text_part(text: str) -> Json:
    return {"type": "text", "text": text}


def after_name(name: str, content: Any) -> Any:
    """Return content that begins with a speaker's name. Empty content stays empty."""
    start = f"{' '.join(name.split())}: "
    if not isinstance(content, list):
        return f"{start}{content}" if says(content) else content
    first, rest = content[:1], content[1:]
    if any(map(is_text, first)):
        return [{**first[0], "text": f"{start}{first[0]['text']}"}, *rest]
    return [text_part(start.rstrip()), *content] if content else content


def media_part(url: str, kind: str = "", name: object = None) -> Json:
    """Return a content part with a picture or a file, by its URL or data URL."""
    if kind.startswith("image"):
        return {"type": "image_url", "image_url": {"url": url}}
    filename = {"filename": name} if isinstance(name, str) and name else {}
    return {"type": "file", "file": {"file_data": url, **filename}}


def data_url(kind: object, data: object) -> str:
    """Return bytes or a base64 text as a data URL."""
    return f"data:{kind or 'application/octet-stream'};base64,{base64_of(data)}"


def data_in(url: object) -> tuple[str, str] | None:
    """Return the media type and the base64 data of a data URL. None for any other URL."""
    head, comma, data = str(url or "").partition(";base64,")
    return (head.removeprefix("data:"), data) if comma and head.startswith("data:") else None


def bytes_of(data: str) -> bytes:
    """Decode base64. A text that cannot be decoded is encoded as UTF-8."""
    try:
        return b64decode(data)
    except ValueError:
        return data.encode()


def joined(parts: Sequence[Json]) -> Any:
    """Return parts as the content of a message: one text if all are texts, else a list."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return list(parts)


def parts_of(content: object) -> Iterator[Any]:
    """Yield the parts of a chat message's content, without empty texts."""
    for part in [content] if isinstance(content, str) else content or ():  # type: ignore[attr-defined]
        if isinstance(part, str):
            if says(part):
                yield text_part(part)
        elif not (isinstance(part, dict) and is_blank(part)):
            yield part


def is_blank(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and not says(part.get("text"))


def cleaned(parts: list[Any], clean: Callable[[Any], Any]) -> list[Any]:
    """Return the results of `clean` without None. If no part changed, return `parts` itself."""
    results = [cleaned_part for part in parts if (cleaned_part := clean(part)) is not None]
    return parts if len(results) == len(parts) and all(map(is_, results, parts)) else results


def merged_neighbours(
    messages: list[Json], belong: Callable[[Json, Json], bool], is_result: Callable[[Any], bool]
) -> list[Json]:
    """Merge neighbouring messages for which `belong` is true. Results come first in a content."""
    merged: list[Json] = []
    for message in messages:
        if merged and belong(merged[-1], message):
            last = merged.pop()
            message = {**last, "content": [*last["content"], *message["content"]]}
        content = message["content"]
        if isinstance(content, list) and any(map(is_result, content)):
            ordered = sorted(content, key=lambda block: not is_result(block))
            message = message if ordered == content else {**message, "content": ordered}
        merged.append(message)
    return merged


def is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text"


def text_of(content: object) -> str:
    """Return content as text; see `mark_of`."""
    if isinstance(content, str):
        return content
    return "\n".join(map(mark_of, parts_of(content)))


def mark_of(part: object) -> str:
    """Return a part as text. A part without text is shown as a mark, such as "[file a.pdf]"."""
    if not isinstance(part, dict):
        return str(part)
    if isinstance(part.get("text"), str):
        return str(part["text"])
    kind = str(part.get("type") or "part")
    if isinstance(part.get(kind), str):
        return str(part[kind])
    kind = kind.removeprefix("input_").removesuffix("_url")
    file = mapping(part.get("file"))
    name = file.get("filename") or part.get("filename") or part.get("name")
    if name is None and (link := link_of(part)).startswith(("http:", "https:")):
        name = link
    return f"[{kind} {name}]" if name else f"[{kind}]"


def link_of(part: object) -> str:
    """Return the URL of a picture or a file. Empty if the part has no URL."""
    image, file = mapping(part).get("image_url"), mapping(mapping(part).get("file"))
    url = image if isinstance(image, str) else mapping(image).get("url") or file.get("file_data")
    return url if isinstance(url, str) else ""


def openai_takes(part: Mapping[str, Any], *, links: bool = False) -> bool:
    """Return whether OpenAI accepts a part as a picture, file or sound from a user.

    With `links`, a file may be given by its web address.
    """
    url, kind = link_of(part), part.get("type")
    data = data_in(url)
    is_link = url.startswith(("http://", "https://"))
    if kind == "image_url":
        return is_link if data is None else data[0] in IMAGES
    if kind == "file":
        if data is not None:
            return not data[0].startswith(("video/", "audio/"))
        return (is_link and links) or (not url and bool(mapping(part.get("file")).get("file_id")))
    return kind == "input_audio" and isinstance(part.get("input_audio"), dict)


def tool_name(name: object, other: re.Pattern[str] = _NO_NAME) -> str:
    """Return a valid tool name of up to 64 characters. `other` matches invalid characters."""
    return other.sub("_", name)[:_MOST_NAME] if isinstance(name, str) and name else "tool"


def arguments_text(arguments: object) -> str:
    """Return a call's arguments as JSON text. In messages for open models, they may be a dict."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps({} if arguments is None else arguments, ensure_ascii=False)


def call_of(call_id: object, name: object, arguments: object) -> Json:
    function = {"name": name or "tool", "arguments": arguments_text(arguments)}
    return {"id": call_id, "type": "function", "function": function}


def calls_in(items: Iterable[Mapping[str, Any]], *keys: str) -> list[Json]:
    """Return the tool calls in items. `keys` are an item's keys for id, name and arguments."""
    return [call_of(*map(item.get, keys)) for item in items]


def calls_of(view: Mapping[str, Any]) -> list[Json]:
    """Return the calls of a chat message, including a legacy function call."""
    calls = dicts(view.get("tool_calls"))
    if isinstance(function := view.get("function_call"), Mapping):
        calls.append({"id": None, "type": "function", "function": function})
    return calls


def parsed_calls(
    view: Mapping[str, Any], other: re.Pattern[str] = _NO_NAME
) -> list[tuple[Any, str, Json]]:
    """Return the id, the tool name (see `tool_name`) and the arguments of each call.

    Arguments that are not a JSON object become the field `arguments` of a new object.
    """
    return [_parsed_call(call, other) for call in calls_of(view)]


def _parsed_call(call: Json, other: re.Pattern[str]) -> tuple[Any, str, Json]:
    function = mapping(call.get("function"))
    arguments = function.get("arguments")
    if not function and (custom := mapping(call.get("custom"))):
        function, arguments = custom, custom.get("input")
    name = tool_name(function.get("name") or call.get("name"), other)
    if isinstance(arguments, Mapping):
        return call.get("id"), name, dict(arguments)
    try:
        value = json.loads(arguments or "{}")
    except (TypeError, ValueError):
        value = None
    return call.get("id"), name, value if isinstance(value, dict) else {"arguments": arguments}


def answer_of(call_id: object, content: Any, name: object = None) -> Json:
    view: Json = {"role": "tool", "tool_call_id": call_id, "content": content}
    return {**view, "name": name} if isinstance(name, str) and name else view


def views_of(role: str, parts: Sequence[Json], calls: Sequence[Json] = ()) -> list[Json]:
    """Return a list of one chat message. Empty if there are neither parts nor calls."""
    if not (parts or calls):
        return []
    view: Json = {"role": role, "content": joined(parts) or None}
    return [{**view, "tool_calls": list(calls)} if calls else view]


def chat_of(role: str | None, items: Iterable[Json], name: object = None) -> list[Json]:
    """Return the results of calls as messages, then one message with the other items.

    The items are messages with results, calls, and content parts. Without a role, only results are
    returned. `name` is the speaker of the message.
    """
    answers: list[Json] = []
    parts: list[Json] = []
    calls: list[Json] = []
    for item in items:
        (answers if "role" in item else calls if "function" in item else parts).append(item)
    messages = views_of(role, parts, calls) if role else []
    if messages and isinstance(name, str) and role != "system":
        messages[0]["name"] = name
    return answers + messages


def others(fields: object, excluded: Sequence[str]) -> list[Json]:
    """Return a list of a dict with the fields that have a value and are not in `excluded`."""
    rest = {key: value for key, value in mapping(fields).items() if value and key not in excluded}
    return [rest] if rest else []


def summary_element(text: str) -> str:
    return f"<summary>\n{escape(text)}\n</summary>"


def dumped(value: object) -> str:
    """Return a text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
