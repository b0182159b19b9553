"""Formats of provider-native items by name: those built in, and those that adapters add."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_memory.core.formats import (
    agent_framework,
    claude,
    converse,
    gemini,
    langchain,
    llama_index,
    pydantic_ai,
    responses,
)
from agent_memory.core.limits import quoted
from agent_memory.errors import InvalidInput

__all__ = [
    "ADK",
    "AGENT_FRAMEWORK",
    "CONVERSE",
    "LANGCHAIN",
    "LLAMA_INDEX",
    "PYDANTIC_AI",
    "RESPONSES",
    "Format",
    "register",
]

RESPONSES = "openai.responses"
"""The format of the items of OpenAI's Responses API."""

LANGCHAIN = "langchain"
"""The format of LangChain's messages."""

ADK = "google.adk"
"""The format of events of Google's ADK."""

CONVERSE = "bedrock.converse"
"""The format of Bedrock's Converse API, in which Strands keeps messages."""

LLAMA_INDEX = "llama_index"
"""The format of LlamaIndex's messages."""

AGENT_FRAMEWORK = "agent_framework"
"""The format of messages of Microsoft's Agent Framework."""

PYDANTIC_AI = "pydantic_ai"
"""The format of pydantic-ai's messages."""

Raw = Mapping[str, Any]
Chat = Sequence[dict[str, Any]]


def _never(raw: Raw) -> bool:
    return False


def _nobody(raw: Raw) -> str | None:
    return None


def _itself(raw: Raw) -> Sequence[Any]:
    return [raw]


@dataclass(frozen=True, slots=True)
class Format:
    """How the raw items of a provider show in a chat, and how a chat shows in that format.

    The functions are pure, and take what they do not know too.

    Attributes:
        name: What messages name in `format`.
        to_chat: The OpenAI chat messages of an item: one, several, or none.
        from_chat: The items of an OpenAI chat message; None where contexts cannot be given in this
            format.
        compacts: Whether an item stands for all before it, for this provider.
        items: What an item is sent back as.
        pair: For a call that no chat shows, and for what answers it: what both are known by.
    """

    name: str
    to_chat: Callable[[Raw], Chat]
    from_chat: Callable[[Raw], Sequence[Any]] | None = None
    compacts: Callable[[Raw], bool] = _never
    items: Callable[[Raw], Sequence[Any]] = _itself
    pair: Callable[[Raw], str | None] = _nobody


def _of_responses(name: str) -> Format:
    own = responses
    return Format(name, own.to_chat, own.from_chat, own.compacts, own.items, own.pair)


_FORMATS = {
    RESPONSES: _of_responses(RESPONSES),
    "xai.responses": _of_responses("xai.responses"),  # one provider can't read another's items
    "anthropic.messages": Format(
        "anthropic.messages", claude.to_chat, claude.from_chat, claude.compacts
    ),
    AGENT_FRAMEWORK: Format(AGENT_FRAMEWORK, agent_framework.to_chat, agent_framework.from_chat),
    ADK: Format(ADK, gemini.to_chat, gemini.from_chat),
    CONVERSE: Format(CONVERSE, converse.to_chat, converse.from_chat),
    LANGCHAIN: Format(LANGCHAIN, langchain.to_chat, langchain.from_chat),
    PYDANTIC_AI: Format(PYDANTIC_AI, pydantic_ai.to_chat, pydantic_ai.from_chat),
    LLAMA_INDEX: Format(LLAMA_INDEX, llama_index.to_chat, llama_index.from_chat),
}


def register(form: Format) -> None:
    """Add a format, or put one in the place of another of its name, for this process.

    Do so before a memory is opened, in every process that reads such items.
    """
    _FORMATS[form.name] = form


def format_of(name: str) -> Format:
    """The format of a name, in which contexts can be given.

    Raises:
        InvalidInput: Contexts cannot be given in it.
    """
    form = _FORMATS.get(name) if isinstance(name, str) else None
    if form is None or form.from_chat is None:
        known = ", ".join(sorted(one for one, form in _FORMATS.items() if form.from_chat))
        raise InvalidInput(
            f"Contexts cannot be given in the format {quoted(name)}. Formats that they can be "
            f"given in: {known}. `register` of agent_memory.core.formats.registry adds one."
        )
    return form


def is_known(name: str | None) -> bool:
    """Whether a format is registered."""
    return name in _FORMATS


def compacts(raw: Raw, name: str | None) -> bool:
    """Whether an item stands for all before it, for the provider of its format."""
    form = _FORMATS.get(name or "")
    return form is not None and form.compacts(raw)


def views_of(raw: Raw, name: str | None) -> Chat:
    """The chat messages of a raw item.

    Of a format that nobody registered, an item shows that has a chat role and content of its own.
    """
    form = _FORMATS.get(name or "")
    if form is not None:
        return form.to_chat(raw)
    view = responses.said(raw)
    return [view] if view is not None else []
