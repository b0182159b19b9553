"""Contents (messages) of Google's Gemini API: a role and parts. Pure.

An event of ADK holds such a content. The names of fields are those of REST (`functionCall`) or of
the SDK (`function_call`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats import neutral
from agent_memory.core.formats.neutral import Json, dicts, dumped, mapping, says

_ROLES = {"model": "assistant", "assistant": "assistant", "system": "system"}
_NO_NAME = re.compile(r"[^a-zA-Z0-9_.:-]+")
_CALL = ("functionCall", "function_call")
_ANSWER = ("functionResponse", "function_response")
_UNSIGNED = {"thoughtSignature": "skip_thought_signature_validator"}
"""The signature for a call that Gemini did not make.

In the current turn, Gemini 3 refuses a step if its first call has no signature
(https://ai.google.dev/gemini-api/docs/thought-signatures#faqs). Calls of earlier turns get a
signature too, so that a message is the same in each context.
"""


def recognises(value: Mapping[str, Any]) -> bool:
    """Return whether a value is a content: it has parts without a `type`."""
    parts = value.get("parts")
    if not isinstance(parts, list) or "kind" in value:
        return False
    return len(dicts(parts)) == len(parts) and not any("type" in part for part in parts)


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    parts = [part for part in dicts(raw.get("parts")) if not part.get("thought")]
    role = _role(raw)
    views = [_answer(item) for part in parts if (item := _field(part, *_ANSWER))]
    content = [item for part in parts for item in _chat_parts(part)]
    calls = [item for part in parts if (item := _field(part, *_CALL))]
    return views + neutral.views_of(role, content, neutral.calls_in(calls, "id", "name", "args"))


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    role, parts = view.get("role"), [_part(part) for part in neutral.parts_of(view.get("content"))]
    if role == "tool":
        name, call_id = neutral.tool_name(view.get("name"), _NO_NAME), view.get("tool_call_id")
        texts = [part["text"] for part in parts if "text" in part]
        files = [part for part in parts if "text" not in part]
        answer: Json = {"name": name, "response": {"result": "\n".join(texts)}}
        if call_id:
            answer = {"id": call_id, **answer}
        if files:
            answer["parts"] = files
        return [{"role": "user", "parts": [{"functionResponse": answer}]}]
    calls = [
        {"functionCall": {**({"id": call_id} if call_id else {}), "name": name, "args": args}}
        for call_id, name, args in neutral.parsed_calls(view, _NO_NAME)
    ]
    parts += [call | _UNSIGNED for call in calls[:1]] + calls[1:]
    return [{"role": "model" if role == "assistant" else "user", "parts": parts}] if parts else []


def items(raw: Mapping[str, Any]) -> list[Json]:
    """Return a content without empty texts, or nothing if only thoughts remain."""
    parts = raw.get("parts")
    shown_parts = [part for part in parts if not _is_blank(part)] if isinstance(parts, list) else []
    if not any(isinstance(part, dict) and not part.get("thought") for part in shown_parts):
        return []
    role = "model" if _role(raw) == "assistant" else "user"
    return [{**raw, "role": role, "parts": shown_parts}]


def merged(contents: list[Json]) -> list[Json]:
    """Merge neighbouring results into one content, and calls into the model content before them."""
    merged_contents: list[Json] = []
    for content in contents:
        calls = content.get("role") == "model" and _has(content, _CALL)
        while calls and merged_contents and merged_contents[-1].get("role") == "model":
            before = merged_contents.pop()
            content = {**before, "parts": [*before["parts"], *content["parts"]]}
        if merged_contents and _has(merged_contents[-1], _ANSWER) and _has(content, _ANSWER):
            parts = [*merged_contents[-1]["parts"], *content["parts"]]
            parts.sort(key=lambda part: not _field(mapping(part), *_ANSWER))
            content = {**merged_contents.pop(), "parts": parts}
        merged_contents.append(content)
    return merged_contents


def to_chat_of_event(raw: Mapping[str, Any]) -> list[Json]:
    content = mapping(raw.get("content"))
    author = "user" if raw.get("author") == "user" else "model"
    return to_chat({**content, "role": content.get("role") or author})


def unseen_of_event(raw: Mapping[str, Any]) -> list[Any]:
    """Return the thoughts of an ADK event, and the signatures of its other parts."""
    parts = dicts(mapping(raw.get("content")).get("parts"))
    thoughts: list[Any] = [part for part in parts if part.get("thought")]
    shown = [part for part in parts if not part.get("thought")]
    signatures = (part.get("thought_signature") or part.get("thoughtSignature") for part in shown)
    return thoughts + [signature for signature in signatures if signature]


def _role(raw: Mapping[str, Any]) -> str:
    return _ROLES.get(str(raw.get("role")).lower(), "user")


def _field(part: Mapping[str, Any], *names: str) -> Json | None:
    value = next((part[name] for name in names if isinstance(part.get(name), dict)), None)
    return value if value else None


def _has(content: Mapping[str, Any], names: tuple[str, str]) -> bool:
    return any(_field(part, *names) for part in dicts(content.get("parts")))


def _is_blank(part: Any) -> bool:
    is_text_only = isinstance(part, dict) and not part.keys() - {"text", "thought"}
    return is_text_only and not says(part.get("text"))


def _answer(response: Json) -> Json:
    output = response.get("response")
    only = mapping(output)
    if only.keys() == {"result"} or only.keys() == {"output"}:
        output = next(iter(only.values()))
    text = [neutral.text_part(dumped(output if output is not None else ""))]
    files = [chat_part for part in dicts(response.get("parts")) for chat_part in _chat_parts(part)]
    content: Any = [*text, *files] if files else text[0]["text"]
    return neutral.answer_of(response.get("id"), content, response.get("name"))


def _chat_parts(part: Json) -> Iterator[Json]:
    if says(part.get("text")):
        yield neutral.text_part(part["text"])
    blob = _field(part, "inlineData", "inline_data", "fileData", "file_data")
    if blob is not None:
        kind = str(blob.get("mimeType") or blob.get("mime_type") or "application/octet-stream")
        link = blob.get("fileUri") or blob.get("file_uri")
        name = blob.get("displayName") or blob.get("display_name")
        yield neutral.media_part(str(link or neutral.data_url(kind, blob.get("data"))), kind, name)
    if code := _field(part, "executableCode", "executable_code"):
        yield neutral.text_part(f"[code {code.get('code')}]")
    if ran := _field(part, "codeExecutionResult", "code_execution_result"):
        yield neutral.text_part(f"[code_result {ran.get('output')}]")


def _part(part: Any) -> Json:
    data = neutral.data_in(neutral.link_of(part))
    if data is not None:
        return {"inlineData": {"mimeType": data[0], "data": data[1]}}
    if isinstance(part, dict) and isinstance(sound := part.get("input_audio"), dict):
        kind = f"audio/{sound.get('format') or 'wav'}"
        return {"inlineData": {"mimeType": kind, "data": str(sound.get("data") or "")}}
    return {"text": neutral.mark_of(part)}
