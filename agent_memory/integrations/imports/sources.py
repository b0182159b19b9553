"""What can be imported from, by name. Each reader is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, cast

from agent_memory.core.limits import quoted
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from agent_memory.integrations.imports.chats import Event
    from agent_memory.integrations.imports.files import SourceFiles


class From(StrEnum):
    """Where an import comes from."""

    CHATGPT = "chatgpt"
    CLAUDE = "claude"
    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    MEM0 = "mem0"
    LETTA = "letta"
    LANGCHAIN = "langchain"
    LLAMA_INDEX = "llama-index"
    OPENAI_AGENTS = "openai-agents"
    JSONL = "jsonl"


def reader(source: str) -> Callable[[SourceFiles], Iterator[Event]]:
    """What reads a source.

    Raises:
        InvalidInput: Nothing does.
    """
    if source not in list(From):
        raise InvalidInput(
            f"Nothing is imported from {quoted(source)}. Known: {', '.join(From)}. Whatever else "
            "can be written as JSON lines, with session_id, role and content: jsonl."
        )
    name = f"agent_memory.integrations.imports.{source.replace('-', '_')}"
    return cast("Callable[[SourceFiles], Iterator[Event]]", import_module(name).read)
