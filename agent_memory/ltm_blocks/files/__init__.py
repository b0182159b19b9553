"""`FileMemory`: files under /memories, as in the Claude memory tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.files.block import FileMemory, Files

__all__ = ["FileMemory", "Files"]

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            ".block": (
                "FileMemory",
                "Files",
            ),
        },
    )
