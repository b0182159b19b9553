"""`FileMemory`: files under /memories, as in the Claude memory tool."""

from agent_memory.ltm_blocks.files.block import FileMemory, Files

__all__ = ["FileMemory", "Files"]
