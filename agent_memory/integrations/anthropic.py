"""Claude's memory tool (`memory_20250818`) for Anthropic's SDK, on the files of a `FileMemory`.

    tool = MemoryTool(memory, user_id="ana")
    client.beta.messages.tool_runner(tools=[tool], model=..., max_tokens=..., messages=...)

Your code names the owner of the files. Claude cannot change the owner.
"""

from __future__ import annotations

import logging
from typing import Any

from agent_memory.aio import AsyncAgentMemory
from agent_memory.core.tools import DOWN
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import AgentMemoryError, InvalidInput, MissingExtra
from agent_memory.ltm_blocks.files.block import run_command

try:
    from anthropic import BaseModel
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
except ImportError as error:
    raise MissingExtra("Claude's memory tool", "anthropic") from error

__all__ = ["AsyncMemoryTool", "MemoryTool"]

logger = logging.getLogger(__name__)


class MemoryTool(BetaAbstractMemoryTool):
    """Claude's memory tool for the client `anthropic.Anthropic`.

    If a command fails, Claude gets an error result that says what to do.

    Args:
        memory: A memory with a `FileMemory`.
        user_id: The user of the files.
        session_id: Selects the files of the session's user. If the session has no user, it selects
            the files of the session itself.

    Raises:
        ConfigError: No `FileMemory` is configured.
        InvalidInput: `user_id` and `session_id` are both missing.
        SessionOfAnotherUser: The session belongs to another user.
    """

    def __init__(
        self, memory: AgentMemory, *, user_id: str | None = None, session_id: str | None = None
    ) -> None:
        super().__init__()
        if session_id is not None:
            self._files = memory.session(session_id, user_id).owner().files()
        elif user_id is not None:
            self._files = memory.user(user_id).files()
        else:
            raise InvalidInput("The owner of the files is missing. Give a user_id or a session_id.")

    def call(self, input: Any) -> str:
        """Run a command from Claude.

        Raises:
            ToolError: The command is invalid or fails. The SDK sends the error's text to Claude.
        """
        try:
            return run_command(self._files, input)
        except InvalidInput as error:
            raise ToolError(str(error)) from error
        except AgentMemoryError as error:
            logger.exception("the memory tool failed")
            raise ToolError(DOWN) from error

    def _typed(self, command: BaseModel) -> str:
        return self.call(command.to_dict())

    view = create = str_replace = insert = delete = rename = _typed

    def clear_all_memory(self) -> str:
        self._files.clear()
        return "All memory cleared"


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """`MemoryTool` for `anthropic.AsyncAnthropic`. Commands run on the memory's threads."""

    def __init__(
        self,
        memory: AsyncAgentMemory | AgentMemory,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
    ) -> None:
        super().__init__()
        self._memory = AsyncAgentMemory(memory) if isinstance(memory, AgentMemory) else memory
        self._tool = MemoryTool(self._memory.memory, user_id=user_id, session_id=session_id)

    async def call(self, input: Any) -> str:
        return await self._memory.run(self._tool.call, input)

    async def _typed(self, command: BaseModel) -> str:
        return await self.call(command.to_dict())

    view = create = str_replace = insert = delete = rename = _typed

    async def clear_all_memory(self) -> str:
        return await self._memory.run(self._tool.clear_all_memory)
