"""Formats of messages by name: the built-in formats, and the formats that `register` adds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from agent_memory.core.limits import quoted
from agent_memory.errors import InvalidInput

__all__ = ["Arguments", "Format", "Ids", "register"]

CHAT = "openai.chat"
RESPONSES = "openai.responses"
ANTHROPIC = "anthropic.messages"
GOOGLE = "google.contents"
CONVERSE = "bedrock.converse"
ADK = "google.adk"
AGENT_FRAMEWORK = "agent_framework"
AI_SDK = "ai_sdk"
HAYSTACK = "haystack"
LANGCHAIN = "langchain"
LLAMA_INDEX = "llama_index"
PYDANTIC_AI = "pydantic_ai"
SMOLAGENTS = "smolagents"
ENCRYPTED = "agent-memory.sealed"  # the format of encrypted messages that are read without the key

Raw = Mapping[str, Any]
Chat = Sequence[dict[str, Any]]
Messages = list[Any]


def _never(raw: Raw) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Ids:
    """The call ids that a provider accepts.

    Attributes:
        pattern: The pattern of an id. None if calls need no ids.
        unique: Whether an id must be unique in a context. If False, it must be unique in a message.
        functions: Whether the provider accepts OpenAI's legacy `function_call`, which has no id.
    """

    pattern: re.Pattern[str] | None = re.compile(r".+", re.DOTALL)
    unique: bool = False
    functions: bool = False


@dataclass(frozen=True, slots=True)
class Arguments:
    """The names of the SDK arguments that hold a context.

    Attributes:
        messages: The argument for the messages.
        system: The name of the argument for the system text, and the keys inside of it if the text
            is nested. Empty if the system text stands among the messages.
        system_parts: Whether the system text is a list of parts.
        user_first: Whether the first message must be a user's.
        system_first: Whether system messages may only stand before all other messages.
    """

    messages: str = "messages"
    system: tuple[str, ...] = ()
    system_parts: bool = False
    user_first: bool = False
    system_first: bool = False


@dataclass(frozen=True, slots=True)
class Format:
    """Conversion between a provider's raw items and chat messages.

    The functions must be pure, and must accept items of unknown types.

    Attributes:
        name: The value of `Message.format`.
        to_chat: Returns the OpenAI chat messages of an item: one, several, or none.
        from_chat: Returns the items of an OpenAI chat message. None if the format cannot express
            contexts.
        recognises: Returns whether a dict that is passed to `update` is an item of this format.
        to_message: Returns the item to store for a dict that `recognises` accepts.
        compacts: Returns whether an item replaces all items before it, for this provider.
        items: Returns a stored item in the form that a request accepts, as a list. Empty if the
            provider would refuse the item.
        leads: Returns whether an item without a chat form must be sent with the item after it.
        pair: Returns the key that a call and its result have in common, if neither has a chat form.
            None for other items.
        merged: Merges neighbouring messages where the provider requires one message.
        is_counted: Returns whether `limited` may have to change a message or a system text.
        limited: Makes a context valid as a whole, for example by removing excess cache marks. The
            context is a list of the system texts and the messages.
        ids: The call ids that the provider accepts.
        arguments: The SDK arguments for a context.
        in_runs: Whether several messages with calls may follow each other, before their results.
        unseen: For items of frameworks: returns the content that reaches the model in addition to
            the item's chat messages, such as thinking. None if the item is sent whole.
        is_exact: Whether items may hold bytes. Such items are stored as results of `exact.written`.
        has_names: Whether a message has a field for the speaker's name. If False, the text of a
            user's message begins with the name.
    """

    name: str
    to_chat: Callable[[Raw], Chat]
    from_chat: Callable[[Raw], Sequence[Any]] | None = None
    recognises: Callable[[Raw], bool] = _never
    to_message: Callable[[Raw], dict[str, Any]] = dict
    compacts: Callable[[Raw], bool] = _never
    items: Callable[[Raw], Sequence[Any]] = lambda raw: [raw]
    leads: Callable[[Raw], bool] = _never
    pair: Callable[[Raw], str | None] = lambda raw: None
    merged: Callable[[Messages], Messages] = lambda messages: messages
    is_counted: Callable[[Any], bool] = _never
    limited: Callable[[Messages], Messages] = lambda messages: messages
    ids: Ids = Ids()
    arguments: Arguments = Arguments()
    in_runs: bool = False
    unseen: Callable[[Raw], object | None] = lambda raw: None
    is_exact: bool = False
    has_names: bool = True


def _build(name: str, own: Any, **more: Any) -> Format:
    """Build a format from a module or a class whose functions are named like the fields."""
    names = {field.name for field in fields(Format)} & vars(own).keys()
    return Format(name, **{field: getattr(own, field) for field in names}, **more)


_FORMATS: dict[str, Format] = {}


@cache
def _formats() -> dict[str, Format]:
    from agent_memory.core.formats import (
        ai_sdk,
        chat,
        claude,
        converse,
        frameworks,
        gemini,
        langchain,
        responses,
    )

    shared = _build(
        RESPONSES,
        responses,
        ids=Ids(re.compile(r".{1,64}", re.DOTALL), unique=True),
        arguments=Arguments("input"),
        in_runs=True,
        has_names=False,
    )
    every = [
        _build(CHAT, chat, ids=Ids(re.compile(r".{1,40}", re.DOTALL), functions=True)),
        _build(
            LANGCHAIN,
            langchain,
            ids=Ids(re.compile(r".{1,40}", re.DOTALL)),
            arguments=Arguments("input", system_first=True),
            is_exact=True,
        ),
        _build(
            ANTHROPIC,
            claude,
            ids=Ids(re.compile(r"[a-zA-Z0-9_-]+"), unique=True),
            arguments=Arguments(system=("system",), user_first=True),
            has_names=False,
        ),
        shared,
        # A separate format, because xAI cannot read OpenAI's encrypted items.
        replace(shared, name="xai.responses", recognises=_never),
        _build(
            GOOGLE,
            gemini,
            ids=Ids(None),
            arguments=Arguments("contents", ("config", "system_instruction"), user_first=True),
            is_exact=True,
            has_names=False,
        ),
        _build(
            CONVERSE,
            converse,
            ids=Ids(re.compile(r"[a-zA-Z0-9_.:-]{1,64}"), unique=True),
            arguments=Arguments(system=("system",), system_parts=True, user_first=True),
            is_exact=True,
            has_names=False,
        ),
        _build(
            AI_SDK,
            ai_sdk,
            arguments=Arguments(system=("system",)),
            is_exact=True,
            has_names=False,
        ),
        Format(
            ADK,
            gemini.to_chat_of_event,
            gemini.from_chat,
            unseen=gemini.unseen_of_event,
            has_names=False,
        ),
        _build(AGENT_FRAMEWORK, frameworks.AgentFramework),
        _build(PYDANTIC_AI, frameworks.PydanticAI, has_names=False),
        _build(LLAMA_INDEX, frameworks.LlamaIndex),
        _build(HAYSTACK, frameworks.Haystack, is_exact=True),
        _build(SMOLAGENTS, frameworks.Smolagents, is_exact=True, has_names=False),
    ]
    for form in every:  # another thread may have registered a format of the same name
        _FORMATS.setdefault(form.name, form)
    return _FORMATS


def register(form: Format) -> None:
    """Register a format for this process, or replace the format of the same name.

    Register it before a memory is opened, in every process that reads items of the format.
    """
    _formats()[form.name] = form


def format_of(name: str) -> Format:
    """Return the format with this name. Raise InvalidInput if it cannot express contexts."""
    form = _formats().get(name) if isinstance(name, str) else None
    if form is None or form.from_chat is None:
        choices = ", ".join(sorted(key for key, form in _formats().items() if form.from_chat))
        raise InvalidInput(
            f"Contexts cannot have the format {quoted(name)}. Use one of {choices}. To add one, "
            "call `register` of agent_memory.core.formats.registry."
        )
    return form


def recognised(value: Raw) -> Format | None:
    """Return the format of a dict, by its keys. None for a chat message or an unknown dict."""
    if not all(isinstance(value.get(key), str | None) for key in ("type", "role", "kind")):
        return None
    forms = list(_formats().values())  # another thread may register a format meanwhile
    return next((form for form in forms if form.recognises(value)), None)


def is_registered(name: str | None) -> bool:
    return name in _formats()


def form_of(name: str | None) -> Format:
    """Return the format with this name. If it is not known, return the format of unknown items."""
    return _formats().get(name or "") or _unknown()


@cache
def _unknown() -> Format:
    """Return a format that shows an item if it has a chat role and content."""
    from agent_memory.core.formats.responses import messages_of

    return Format("", messages_of)
