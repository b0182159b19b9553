"""An agent of smolagents that recalls a message of another chat. It needs no key.

pip install "agent-memory-log[local,smolagents]"
"""

from typing import Any

from smolagents import CodeAgent, LogLevel, Model
from smolagents.models import ChatMessage, MessageRole

from agent_memory import AgentMemory
from agent_memory.integrations.smolagents import AgentMemorySteps


class Answering(Model):
    """A scripted model. Its answer shows whether it got the cat's name."""

    def generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatMessage:
        answer = "She is Mia." if "Mia" in str(messages) else "I don't know."
        code = f"<code>\nfinal_answer({answer!r})\n</code>"
        return ChatMessage(MessageRole.ASSISTANT, code)


with AgentMemory(store="memory://") as memory:
    for chat, said in (("monday", "My cat is called Mia."), ("tuesday", "What is my cat called?")):
        agent = CodeAgent([], Answering(), verbosity_level=LogLevel.OFF)
        agent.memory = AgentMemorySteps(memory, chat, user_id="ana")
        print(f"{chat}: {agent.run(said)}")
