"""Messages of agent frameworks, as each framework dumps them. Each format is one class. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats import neutral
from agent_memory.core.formats.neutral import Json, dicts, dumped, mapping, says

Raw = Mapping[str, Any]


class AgentFramework:
    """Microsoft's Agent Framework: a role and contents, as `to_dict` writes them."""

    ROLES = ("user", "assistant", "system", "developer")
    # Usage is not shown, but it does not reach a model either.
    SHOWN = ("text", "data", "uri", "function_call", "function_result", "usage")

    @classmethod
    def to_chat(cls, raw: Raw) -> list[Json]:
        items = [item for block in dicts(raw.get("contents")) for item in cls._items(block)]
        role = raw.get("role")
        return neutral.chat_of(role if role in cls.ROLES else None, items, raw.get("author_name"))

    @classmethod
    def unseen(cls, raw: Raw) -> list[Any]:
        return [block for block in dicts(raw.get("contents")) if block.get("type") not in cls.SHOWN]

    @staticmethod
    def from_chat(view: Raw) -> list[Json]:
        role, content = view.get("role"), view.get("content")
        if role == "tool":
            call_id = view.get("tool_call_id")
            result = {"type": "function_result", "call_id": call_id, "result": content}
            return [{"type": "message", "role": "tool", "contents": [result]}]
        marks = map(neutral.mark_of, neutral.parts_of(content))
        contents: list[Json] = [*map(neutral.text_part, marks)]
        for call_id, name, arguments in neutral.parsed_calls(view):
            used = {"type": "function_call", "call_id": call_id, "name": name}
            contents.append({**used, "arguments": dumped(arguments)})
        message: Json = {"type": "message", "role": role, "contents": contents}
        if view.get("name"):
            message["author_name"] = view["name"]
        return [message] if contents else []

    @staticmethod
    def _items(block: Json) -> Iterator[Json]:
        match block.get("type"):
            case "function_result":
                yield neutral.answer_of(block.get("call_id"), dumped(block.get("result")))
            case "function_call":
                yield neutral.call_of(*map(block.get, ("call_id", "name", "arguments")))
            case "text" if says(block.get("text")):
                yield neutral.text_part(block["text"])
            case "data" | "uri" if block.get("uri"):
                yield neutral.media_part(str(block["uri"]), str(block.get("media_type")))


class Haystack:
    """Haystack: parts with one key each, as `ChatMessage.to_dict` writes them."""

    ROLES = ("user", "assistant", "system", "tool")

    @classmethod
    def to_chat(cls, raw: Raw) -> list[Json]:
        role = raw.get("role")
        if role not in cls.ROLES:
            return []
        items = [item for part in dicts(raw.get("content")) for item in cls._items(part)]
        return neutral.chat_of(role, items, raw.get("name"))

    @staticmethod
    def unseen(raw: Raw) -> list[Any]:
        """Return the reasoning, and the fields that the provider added to calls."""
        parts = dicts(raw.get("content"))
        hidden: list[Any] = [part for part in parts if "reasoning" in part]
        extras = (mapping(part.get("tool_call")).get("extra") for part in parts)
        return hidden + [extra for extra in extras if extra]

    @classmethod
    def from_chat(cls, view: Raw) -> list[Json]:
        role = "system" if view.get("role") == "developer" else view.get("role")
        message: Json = {"role": role, "meta": {}, "name": view.get("name")}
        if role == "tool":
            origin = {"id": view.get("tool_call_id"), "tool_name": view.get("name") or "tool"}
            result = {"result": neutral.text_of(view.get("content") or ""), "error": False}
            called = {**result, "origin": {**origin, "arguments": {}}}
            return [{**message, "name": None, "content": [{"tool_call_result": called}]}]
        content = [cls._part(part, role) for part in neutral.parts_of(view.get("content"))]
        content += [
            {"tool_call": {"id": call_id, "tool_name": name, "arguments": arguments}}
            for call_id, name, arguments in neutral.parsed_calls(view)
        ]
        return [{**message, "content": content}] if content else []

    @classmethod
    def _items(cls, part: Json) -> Iterator[Json]:
        if "tool_call_result" in part:
            result = mapping(part["tool_call_result"])
            origin, content = mapping(result.get("origin")), result.get("result")
            if isinstance(content, list):
                shown = [item for each in dicts(content) for item in cls._shown(each)]
                content = neutral.joined(shown)
            yield neutral.answer_of(origin.get("id"), content, origin.get("tool_name"))
        if "tool_call" in part:
            call = mapping(part["tool_call"])
            yield neutral.call_of(*map(call.get, ("id", "tool_name", "arguments")))
        yield from cls._shown(part)

    @staticmethod
    def _shown(part: Json) -> Iterator[Json]:
        if says(part.get("text")):
            yield neutral.text_part(part["text"])
        for kind, field in (("image", "base64_image"), ("file", "base64_data")):
            if (media := mapping(part.get(kind))).get(field):
                url = neutral.data_url(media.get("mime_type"), media[field])
                yield neutral.media_part(url, kind, media.get("filename"))

    @staticmethod
    def _part(part: Json, role: Any) -> Json:
        """Convert a chat part: a user's picture or file with data stays, others become text."""
        data = neutral.data_in(neutral.link_of(part)) if role == "user" else None
        if data is None:
            return {"text": neutral.mark_of(part)}
        kind, encoded = data
        if part.get("type") == "image_url":
            return {"image": {"base64_image": encoded, "mime_type": kind}}
        name = mapping(part.get("file")).get("filename")
        return {"file": {"base64_data": encoded, "mime_type": kind, "filename": name}}


class LlamaIndex:
    """LlamaIndex: a role, blocks and extra fields, as `ChatMessage` dumps them."""

    ROLES = {
        "user": "user", "assistant": "assistant", "chatbot": "assistant", "model": "assistant",
        "system": "system", "developer": "developer", "tool": "tool", "function": "function",
    }  # fmt: skip
    MEDIA = ("image", "audio", "video", "document")
    FIELDS = ("tool_calls", "tool_call_id", "name")

    @staticmethod
    def recognises(value: Raw) -> bool:
        return isinstance(value.get("blocks"), list) and "additional_kwargs" in value

    @classmethod
    def to_chat(cls, raw: Raw) -> list[Json]:
        role, blocks = cls.ROLES.get(str(raw.get("role"))), raw.get("blocks")
        if role is None or not isinstance(blocks, list):
            return []
        extra = mapping(raw.get("additional_kwargs"))
        content = neutral.joined([part for block in dicts(blocks) for part in cls._parts(block)])
        view: Json = {"role": role, "content": content}
        if role == "tool":
            view["tool_call_id"] = extra.get("tool_call_id")
        if isinstance(extra.get("name"), str):
            view["name"] = extra["name"]
        used = [block for block in dicts(blocks) if block.get("block_type") == "tool_call"]
        calls = neutral.calls_in(used, "tool_call_id", "tool_name", "tool_kwargs")
        calls = calls or dicts(extra.get("tool_calls"))
        if calls:
            view |= {"content": content or None, "tool_calls": calls}
        return [view]

    @classmethod
    def unseen(cls, raw: Raw) -> list[Any]:
        shown = ("text", "tool_call", *cls.MEDIA)
        blocks = [each for each in dicts(raw.get("blocks")) if each.get("block_type") not in shown]
        return blocks + neutral.others(raw.get("additional_kwargs"), cls.FIELDS)

    @staticmethod
    def from_chat(view: Raw) -> list[Json]:
        marks = map(neutral.mark_of, neutral.parts_of(view.get("content")))
        blocks: list[Json] = [{"block_type": "text", "text": mark} for mark in marks]
        for call_id, name, arguments in neutral.parsed_calls(view):
            called = {"block_type": "tool_call", "tool_call_id": call_id, "tool_name": name}
            blocks.append({**called, "tool_kwargs": arguments})
        more = {key: view[key] for key in ("tool_call_id", "name") if view.get(key) is not None}
        return [{"role": view.get("role"), "additional_kwargs": more, "blocks": blocks}]

    @classmethod
    def _parts(cls, block: Json) -> Iterator[Json]:
        kind = block.get("block_type")
        if kind == "text":
            yield neutral.text_part(str(block.get("text") or ""))
        elif kind in cls.MEDIA:
            data = next(filter(None, map(block.get, ("image", "audio", "video", "data"))), None)
            url = block.get("url") or neutral.data_url(block.get(f"{kind}_mimetype"), data)
            yield neutral.media_part(str(url), str(kind))


class PydanticAI:
    """pydantic-ai: requests and responses with parts, as its adapter dumps them."""

    SHOWN = ("system-prompt", "user-prompt", "tool-return", "retry-prompt", "text", "tool-call")

    @staticmethod
    def recognises(value: Raw) -> bool:
        return value.get("kind") in ("request", "response") and isinstance(value.get("parts"), list)

    @classmethod
    def to_chat(cls, raw: Raw) -> list[Json]:
        """Return a response or a request as chat messages. Thinking is left out."""
        items = [item for part in dicts(raw.get("parts")) for item in cls._items(part, raw)]
        return neutral.chat_of("assistant", items) if raw.get("kind") == "response" else items

    @classmethod
    def unseen(cls, raw: Raw) -> list[Any]:
        """Return the provider's details, and parts that are not in chat messages."""
        parts = dicts(raw.get("parts"))
        hidden: list[Any] = [part for part in parts if part.get("part_kind") not in cls.SHOWN]
        shown = [part for part in parts if part.get("part_kind") in cls.SHOWN]
        return hidden + [more for part in shown if (more := part.get("provider_details"))]

    @staticmethod
    def from_chat(view: Raw) -> list[Json]:
        role, content = view.get("role"), view.get("content")
        parts: list[Json] = []
        if role == "assistant":
            if content:
                parts.append({"part_kind": "text", "content": neutral.text_of(content)})
            for call_id, name, args in neutral.parsed_calls(view):
                called = {"part_kind": "tool-call", "tool_name": name, "args": args}
                parts.append({**called, "tool_call_id": call_id})
            return [{"kind": "response", "parts": parts}] if parts else []
        if role == "tool":
            name, call_id = view.get("name") or "tool", view.get("tool_call_id")
            returned = {"part_kind": "tool-return", "tool_name": name, "content": content}
            return [{"kind": "request", "parts": [{**returned, "tool_call_id": call_id}]}]
        kind = "system-prompt" if role in ("system", "developer") else "user-prompt"
        prompt = {"part_kind": kind, "content": neutral.text_of(content or "")}
        return [{"kind": "request", "parts": [prompt]}]

    @classmethod
    def _items(cls, part: Json, raw: Raw) -> Iterator[Json]:
        """Yield the text or the call of a part of a response, or the message of a request."""
        kind, content = part.get("part_kind"), part.get("content")
        match kind, raw.get("kind") == "response":
            case "text", True if content:
                yield neutral.text_part(str(content))
            case "tool-call", True:
                yield neutral.call_of(*map(part.get, ("tool_call_id", "tool_name", "args")))
            case "system-prompt", False:
                yield {"role": "system", "content": str(content or "")}
            case "user-prompt", False:
                shown: Any = str(content or "")
                if isinstance(content, list):
                    shown = neutral.joined([part for item in content for part in cls._parts(item)])
                yield {"role": "user", "content": shown}
            case "retry-prompt", False if not part.get("tool_name"):
                yield {"role": "user", "content": dumped(content)}
            case "tool-return" | "retry-prompt", False:
                yield neutral.answer_of(part.get("tool_call_id"), dumped(content))

    @staticmethod
    def _parts(item: object) -> Iterator[Json]:
        if isinstance(item, str):
            yield neutral.text_part(item)
        elif isinstance(item, dict) and (item.get("url") or item.get("data")):
            form = str(item.get("media_type") or "application/octet-stream")
            kind = "image" if item.get("kind") == "image-url" else form
            url = item.get("url") or neutral.data_url(form, item.get("data"))
            yield neutral.media_part(str(url), kind)


class Smolagents:
    """Steps of smolagents: a system prompt, a task, or an action with calls and observations.

    The observations are one text with the results of all calls.
    """

    FINAL = "final_answer"

    @classmethod
    def to_chat(cls, raw: Raw) -> list[Json]:
        """Return a step as chat messages, without the call of the tool `final_answer`."""
        for field, role in (("system_prompt", "system"), ("task", "user")):
            if field in raw:
                return neutral.views_of(role, cls._parts(raw[field]))
        used = [call for call in dicts(raw.get("tool_calls")) if cls._name(call) != cls.FINAL]
        calls = [cls._call(call) for call in used]
        views = neutral.views_of("assistant", cls._parts(raw.get("model_output")), calls)
        for call in calls:
            is_last, name = call is calls[-1], call["function"]["name"]
            text = raw.get("observations") or "" if is_last else "[with the last result]"
            views.append(neutral.answer_of(call["id"], text, name))
        return views + neutral.views_of("assistant", cls._parts(raw.get("answer")))

    @classmethod
    def unseen(cls, raw: Raw) -> list[Any]:
        """Return the call of the tool `final_answer`, which chat messages do not show."""
        return [call for call in dicts(raw.get("tool_calls")) if cls._name(call) == cls.FINAL]

    @staticmethod
    def from_chat(view: Raw) -> list[Json]:
        role, text = view.get("role"), neutral.text_of(view.get("content") or "")
        if role in ("system", "developer"):
            return [{"system_prompt": text}]
        if role in ("user", "tool"):
            return [{"task" if role == "user" else "observations": text}]
        step: Json = {"model_output": text} if text else {}
        if calls := neutral.parsed_calls(view):
            step["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": values}}
                for call_id, name, values in calls
            ]
        return [step] if step else []

    @staticmethod
    def _parts(text: object) -> list[Json]:
        return [neutral.text_part(str(text))] if says(text) else []

    @classmethod
    def _call(cls, call: Json) -> Json:
        """Return a call whose arguments are a JSON object."""
        arguments = mapping(call.get("function")).get("arguments")
        if not isinstance(arguments, Mapping):
            arguments = {"code": arguments}
        return neutral.call_of(call.get("id"), cls._name(call), arguments)

    @staticmethod
    def _name(call: Raw) -> str:
        return str(mapping(call.get("function")).get("name") or "tool")
