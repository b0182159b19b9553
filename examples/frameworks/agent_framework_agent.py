"""An agent of Microsoft's framework that recalls a message of another chat. It needs no key.

pip install "agent-memory-log[local,agent-framework]"
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Message

from agent_memory import AgentMemory
from agent_memory.integrations.agent_framework import (
    AgentMemoryContextProvider,
    AgentMemoryHistoryProvider,
)


class Cats(BaseChatClient):
    """A scripted model. Its answer shows whether it got the cat's name."""

    async def _inner_get_response(self, *, messages: Sequence[Message], **kwargs: Any) -> Any:
        known = any("Mia" in message.text for message in messages)
        return ChatResponse(
            messages=[Message("assistant", ["She is Mia." if known else "I don't know."])]
        )


async def main() -> None:
    """Give the agent a fact in one session, and ask for it in another session."""
    with AgentMemory(store="memory://") as memory:
        history = AgentMemoryHistoryProvider(memory, user_id="ana")
        recall = AgentMemoryContextProvider(memory, user_id="ana")
        agent = Agent(client=Cats(), context_providers=[history, recall])
        for said in ("My cat is called Mia.", "What is my cat called?"):
            print(await agent.run(said, session=agent.create_session()))


asyncio.run(main())
