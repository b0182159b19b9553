"""The sources of imports by name. A source's reader is loaded when it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, cast

from agent_memory.core.limits import quoted
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from agent_memory.integrations.imports.conversations import Event
    from agent_memory.integrations.imports.files import SourceFiles


class From(StrEnum):
    """The source of an import."""

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


_MODULES = {
    From.CHATGPT: "assistants",
    From.CLAUDE: "assistants",
    From.CLAUDE_CODE: "coding_agents",
    From.CODEX: "coding_agents",
}
"""The module of a source's reader, if it is not `frameworks`."""


def reader(source: str) -> Callable[[SourceFiles], Iterator[Event]]:
    """Return the function that reads a source. Raise `InvalidInput` for an unknown source."""
    if source not in list(From):
        raise InvalidInput(
            f"The source {quoted(source)} is unknown. Use one of: {', '.join(From)}. Convert other "
            "formats to jsonl: JSON lines with session_id, role and content."
        )
    module = _MODULES.get(From(source), "frameworks")
    home = import_module(f"agent_memory.integrations.imports.{module}")
    read = getattr(home, f"read_{source.replace('-', '_')}")
    return cast("Callable[[SourceFiles], Iterator[Event]]", read)
