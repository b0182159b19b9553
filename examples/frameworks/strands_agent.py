"""An agent of Strands whose session is stored. It needs no key.

pip install "agent-memory-log[strands]"
"""

from collections.abc import AsyncIterator
from typing import Any

from strands import Agent
from strands.models import Model

from agent_memory import AgentMemory
from agent_memory.integrations.strands import AgentMemorySessionManager


class Counting(Model):
    """A scripted model. Its answer shows the number of messages that it got."""

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockDelta": {"delta": {"text": f"I was sent {len(messages)} messages."}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("The example asks for none.")

    def update_config(self, **config: Any) -> None:
        """Do nothing: the model has no settings."""

    get_config = update_config


with AgentMemory(store="memory://", blocks=[]) as memory:
    for said in ("My cat is called Mia.", "What is my cat called?"):
        session = AgentMemorySessionManager("chat-1", memory, user_id="ana")
        print(Agent(Counting(), session_manager=session, callback_handler=None)(said), end="")
