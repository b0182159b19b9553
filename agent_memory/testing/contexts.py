"""`check_context`: checks a context against its provider's rules for messages.

The rules follow the providers' documentation, independently of the code that renders contexts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from agent_memory.errors import InvalidContext, InvalidInput

Json = Mapping[str, Any]


def check_context(format: str, messages: Any) -> None:
    """Check that a provider would accept a context.

        from agent_memory.testing import check_context

        context = memory.get("s-1", format="anthropic.messages")
        check_context("anthropic.messages", context.to_arguments())

    Args:
        format: `openai.chat`, `openai.responses`, `anthropic.messages`, `google.contents`,
            `bedrock.converse` or `langchain`.
        messages: The result of `to_arguments()`, or the list of messages alone.

    Raises:
        InvalidContext: The provider would refuse the context. The error names the broken rule, and
            the message by its index from 0.
        InvalidInput: The format is unknown.
    """
    if format not in _RULES:
        raise InvalidInput(f"The format {format!r} is unknown. Use one of: {', '.join(_RULES)}.")
    name, check = _RULES[format]
    system: Any = None
    if isinstance(messages, Mapping):
        system = messages.get("system")
        if "config" in messages:
            system = messages["config"].get("system_instruction")
        messages = messages[name]
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise InvalidContext(f"{name} is not a list.")
    if format == "anthropic.messages" and (count := _marks([system, messages])) > 4:
        raise InvalidContext(f"{count} blocks have `cache_control`. At most 4 may have it.")
    if system is not None and not _texts(system):
        raise InvalidContext("The system text is empty. Leave it out.")
    check([_dict(place, message) for place, message in enumerate(messages)])


def _marks(value: object) -> int:
    if isinstance(value, Mapping):
        own = value.get("cache_control") is not None and value.get("type") is not None
        return own + sum(_marks(value.get(key)) for key in ("content", "source"))
    return sum(map(_marks, value)) if isinstance(value, list) else 0


def _refuse(place: int, why: str) -> NoReturn:
    raise InvalidContext(f"Message {place}: {why}.")


def _says(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip())


def _texts(system: object) -> bool:
    if isinstance(system, str):
        return _says(system)
    return (
        isinstance(system, list)
        and bool(system)
        and all(isinstance(part, Mapping) and _says(part.get("text")) for part in system)
    )


_REPLY = {
    *("usage", "stop_reason", "stop_sequence", "finish_reason", "choices", "candidates", "model"),
    *("finishReason", "usageMetadata", "modelVersion", "stopReason", "metrics", "object"),
}
"""Fields of a model's reply. No provider accepts them in the messages of a request."""


def _dict(place: int, message: object) -> Json:
    if not isinstance(message, Mapping):
        _refuse(place, f"it is a {type(message).__name__}, not a dict")
    if own := _REPLY & message.keys():
        _refuse(place, f"it has fields of a reply: {', '.join(sorted(own))}")
    return message


def _unique(place: int, ids: Sequence[object], pattern: str) -> None:
    for call_id in ids:
        if not isinstance(call_id, str) or not re.fullmatch(pattern, call_id, re.DOTALL):
            _refuse(place, f"the id of a call is {call_id!r}, which does not match {pattern}")
    if len(set(ids)) < len(ids):
        _refuse(place, "two calls have the same id")


def _same(place: int, calls: Iterable[object], results: Iterable[object]) -> None:
    called, replied = Counter(calls), Counter(results)
    if called != replied:
        ids = f"{sorted(map(str, called))}, but the results have {sorted(map(str, replied))}"
        _refuse(place, f"the calls have the ids {ids}")


# OpenAI's Chat Completions API, and LangChain's messages, which follow the same rules


def _check_chat(messages: Sequence[Any]) -> None:
    place = 0
    while place < len(messages):
        message = messages[place]
        role, content = message.get("role"), message.get("content")
        calls, old = message.get("tool_calls"), message.get("function_call")
        name = message.get("name")
        if name is not None and not re.fullmatch(r"[^\s<|\\/>]{1,64}", str(name)):
            _refuse(place, f"the name {name!r} does not match the pattern of names")
        if role == "tool" or role == "function":
            _refuse(place, "it is a tool result, but no call precedes it directly")
        if role not in ("system", "developer", "user", "assistant"):
            _refuse(place, f"the role {role!r} is unknown")
        if calls is not None and (role != "assistant" or not isinstance(calls, list) or not calls):
            _refuse(place, "tool_calls is not a list of calls, or the role is not assistant")
        has_other_content = calls or old or _says(message.get("refusal"))
        if not (content is None or content == "") or not has_other_content:
            _check_content(place, content)
        place += 1
        if old:
            after = messages[place] if place < len(messages) else {}
            if after.get("role") != "function" or after.get("name") != old.get("name"):
                _refuse(place, "it is not the result of the function call before it")
            place += 1
        if calls:
            for call in calls:
                function = call.get("function") or call.get("custom") or {}
                if not function.get("name"):
                    _refuse(place - 1, "a call has no function name")
                if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", str(function["name"])):
                    _refuse(place - 1, "a function's name does not match the pattern of names")
                if "function" in call and not isinstance(function.get("arguments"), str):
                    _refuse(place - 1, "a call's arguments are not a string")
            ids = [call.get("id") for call in calls]
            _unique(place - 1, ids, r".{1,40}")
            results = messages[place : place + len(ids)]
            _same(place - 1, ids, [_tool_id(result) for result in results])
            for at, result in enumerate(results, place):
                if not isinstance(result.get("content"), str):
                    _check_content(at, result.get("content"))
            place += len(ids)


def _tool_id(message: Json) -> object:
    return message.get("tool_call_id") if message.get("role") == "tool" else "no result"


def _check_content(place: int, content: object) -> None:
    if isinstance(content, str):
        if not _says(content):
            _refuse(place, "the content is empty")
        return
    if not isinstance(content, list) or not content:
        _refuse(place, f"the content is {content!r}")
    for part in content:
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            _refuse(place, "a content part has no type")
        elif part["type"] == "text" and not _says(part.get("text")):
            _refuse(place, "a text in the content is empty")


_LANGCHAIN = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


def _check_langchain(messages: Sequence[Any]) -> None:
    chat: list[Json] = []
    for place, message in enumerate(messages):
        kind = message.get("type")
        if kind not in _LANGCHAIN:
            _refuse(place, f"the type {kind!r} is unknown")
        if kind == "system" and any(view["role"] != "system" for view in chat):
            _refuse(place, "a system message stands after other messages")
        view: dict[str, Any] = {"role": _LANGCHAIN[str(kind)], "content": message.get("content")}
        if kind == "tool":
            view["tool_call_id"] = message.get("tool_call_id")
        if any(not isinstance(call.get("args"), dict) for call in message.get("tool_calls") or ()):
            _refuse(place, "a call's args are not a dict")
        if calls := message.get("tool_calls") or message.get("invalid_tool_calls"):
            named = {"arguments": ""}
            view["tool_calls"] = [  # the chat rules check only that the function has a name
                {"id": call.get("id"), "function": {**named, "name": call.get("name") and "f"}}
                for call in calls
            ]
        chat.append(view)
    _check_chat(chat)


# OpenAI's Responses API

_PAIRED = ("function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call")
_LEADS = ("reasoning",)
_FOLLOW = (*_LEADS, "mcp_approval_request", "mcp_list_tools", "compaction", "program")


def _check_responses(items: Sequence[Any]) -> None:
    waiting: dict[tuple[str, object], int] = {}
    used: set[tuple[str, object]] = set()
    ids: set[object] = set()
    for place, item in enumerate(items):
        kind, role = str(item.get("type") or "message"), item.get("role")
        if item.get("id") is not None:
            if item["id"] in ids:
                _refuse(place, f"the item id {item['id']!r} is used twice")
            ids.add(item["id"])
        called = (kind.removesuffix("_output"), item.get("call_id"))
        if kind == "function_call" and not isinstance(item.get("arguments"), str):
            _refuse(place, "a call's arguments are not a string")
        if kind in _PAIRED:
            if not isinstance(called[1], str) or not 1 <= len(called[1]) <= 64:
                _refuse(place, f"the call_id is {called[1]!r}")
            if called in used:
                _refuse(place, f"the call_id {called[1]!r} is used twice")
            used.add(called)
            waiting[called] = place
        elif called[0] in _PAIRED:
            if waiting.pop(called, None) is None:
                _refuse(place, "it is an output, but no call with its id precedes it")
            if item.get("output") in (None, []):
                _refuse(place, "an output is empty")
        elif kind == "message":
            if role not in ("system", "developer", "user", "assistant"):
                _refuse(place, f"the role {role!r} is unknown")
            _check_parts(place, item.get("content"), str(role))
        elif kind in _LEADS:
            after = items[place + 1] if place + 1 < len(items) else {}
            follows = str(after.get("type") or "message")
            is_own = (
                follows in _FOLLOW or follows.endswith("_call") or after.get("role") == "assistant"
            )
            if not is_own:
                _refuse(place, "no output item follows the reasoning directly")
        elif role is not None and kind != "additional_tools":
            _refuse(place, f"the type {kind!r} is unknown")
    for (kind, called_id), place in waiting.items():
        _refuse(place, f"no output answers the {kind} {called_id!r}")


def _check_parts(place: int, content: object, role: str) -> None:
    _check_content(place, content)
    kinds = ("output_text", "refusal") if role == "assistant" else ("input_",)
    for part in content if isinstance(content, list) else ():
        if not str(part["type"]).startswith(kinds):
            _refuse(place, f"the {role}'s message has a part of type {part['type']!r}")
        if str(part["type"]).endswith("_text") and not _says(part.get("text")):
            _refuse(place, "a text is empty")


# Anthropic's Messages API


def _check_anthropic(messages: Sequence[Any]) -> None:
    used: set[object] = set()
    pending: list[object] = []
    for place, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant"):
            _refuse(place, f"the role {role!r} is unknown")
        if place == 0 and role != "user":
            _refuse(place, "the first message is not the user's")
        blocks: Any = content
        if isinstance(content, str):
            blocks = [{"type": "text", "text": content}]
        if not isinstance(blocks, list) or not blocks:
            _refuse(place, f"the content is {content!r}")
        kinds = [block.get("type") if isinstance(block, Mapping) else None for block in blocks]
        if any(not isinstance(kind, str) for kind in kinds):
            _refuse(place, "a block has no type")
        for block in blocks:
            if block["type"] == "text" and not _says(block.get("text")):
                _refuse(place, "a text block is empty")
            if block.get("is_error") and not block.get("content"):
                _refuse(place, "an error result has no content")
            if block["type"] == "tool_use" and not isinstance(block.get("input"), Mapping):
                _refuse(place, "the input of a tool_use is not a dict")
        results = [block.get("tool_use_id") for block in blocks if block["type"] == "tool_result"]
        if results and (role != "user" or kinds[: len(results)] != ["tool_result"] * len(results)):
            _refuse(place, "tool_result blocks do not come first in a user's message")
        _same(place, pending, results)
        pending = [block.get("id") for block in blocks if block["type"] == "tool_use"]
        if pending and role != "assistant":
            _refuse(place, "a user's message has a tool_use")
        _unique(place, pending, r"[a-zA-Z0-9_-]+")
        if used.intersection(pending):
            _refuse(place, "tool_use ids must be unique")
        used.update(pending)
        if role == "assistant" and kinds[-1] in ("thinking", "redacted_thinking"):
            _refuse(place, "the last block of a message is thinking")
        if role == "assistant" and place == len(messages) - 1 and kinds[-1] == "text":
            text = blocks[-1]["text"]
            if text != text.rstrip():
                _refuse(place, "the last message ends with white space")
    _same(len(messages), pending, [])


# Google's Gemini API


def _field(part: Json, *names: str) -> Any:
    return next((part[name] for name in names if part.get(name) is not None), None)


def _check_google(contents: Sequence[Any]) -> None:
    pending: list[object] = []
    before: object = None
    for place, content in enumerate(contents):
        role, parts = content.get("role"), content.get("parts")
        if role not in ("user", "model"):
            _refuse(place, f"the role {role!r} is unknown")
        if place == 0 and role != "user":
            _refuse(place, "the first content is not the user's")
        if not isinstance(parts, list) or not parts:
            _refuse(place, "it has no parts")
        for part in parts:
            if not isinstance(part, Mapping) or not part:
                _refuse(place, "a part is empty")
            elif not (part.keys() - {"text"}) and not _says(part.get("text")):
                _refuse(place, "a text is empty")
        calls = [_field(part, "functionCall", "function_call") for part in parts]
        answers = [_field(part, "functionResponse", "function_response") for part in parts]
        named = [call.get("name") for call in calls if call]
        answered = [answer.get("name") for answer in answers if answer]
        if any(answer and not isinstance(answer.get("response"), Mapping) for answer in answers):
            _refuse(place, "a function's response is not a dict")
        if any(not name for name in [*named, *answered]):
            _refuse(place, "a function has no name")
        _same(place, pending, answered)
        if answered and role != "user":
            _refuse(place, "the model's content has a function response")
        if named and (role != "model" or before != "user"):
            _refuse(place, "a function call does not follow a user's turn or a function response")
        pending, before = named, role
    _same(len(contents), pending, [])


# Bedrock's Converse API


def _check_converse(messages: Sequence[Any]) -> None:
    pending: list[object] = []
    named: set[object] = set()
    for place, message in enumerate(messages):
        role, blocks = message.get("role"), message.get("content")
        if role != ("user", "assistant")[place % 2]:
            _refuse(place, "the roles do not alternate, beginning with the user")
        if not isinstance(blocks, list) or not blocks:
            _refuse(place, "it has no content")
        for block in blocks:
            if not isinstance(block, Mapping) or not block:
                _refuse(place, "a block is empty")
            elif "text" in block and not _says(block["text"]):
                _refuse(place, "a text is blank")
        documents = [block["document"] for block in blocks if "document" in block]
        if documents and not any("text" in block for block in blocks):
            _refuse(place, "it has a document, but no text")
        results = [block["toolResult"] for block in blocks if "toolResult" in block]
        nested = [block for result in results for block in result.get("content") or ()]
        for document in documents + [block["document"] for block in nested if "document" in block]:
            name = document.get("name")
            if not re.fullmatch(r"(?!.*\s\s)[a-zA-Z0-9\s\-()\[\]]{1,200}", str(name)):
                _refuse(place, f"the document name {name!r} does not match the pattern of names")
            if name in named:
                _refuse(place, f"two documents have the same name {name!r}")
            named.add(name)
        _same(place, pending, [result.get("toolUseId") for result in results])
        for result in results:
            if not result.get("content"):
                _refuse(place, "a result has no content")
            for block in result["content"]:
                if "text" in block and not _says(block["text"]):
                    _refuse(place, "a result's text is blank")
        uses = [block["toolUse"] for block in blocks if "toolUse" in block]
        if uses and role != "assistant":
            _refuse(place, "a user's message has a toolUse")
        if any(not isinstance(use.get("input"), Mapping) for use in uses):
            _refuse(place, "the input of a toolUse is not a dict")
        pending = [use.get("toolUseId") for use in uses]
        _unique(place, pending, r"[a-zA-Z0-9_.:-]{1,64}")
    _same(len(messages), pending, [])


_RULES: dict[str, tuple[str, Callable[[Sequence[Any]], None]]] = {
    "openai.chat": ("messages", _check_chat),
    "openai.responses": ("input", _check_responses),
    "anthropic.messages": ("messages", _check_anthropic),
    "google.contents": ("contents", _check_google),
    "bedrock.converse": ("messages", _check_converse),
    "langchain": ("input", _check_langchain),
}
