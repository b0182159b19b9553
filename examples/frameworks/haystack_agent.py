"""An agent of Haystack that recalls a message of another chat. It needs no key.

pip install "agent-memory-log[local,haystack]"
"""

from typing import Any

from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage

from agent_memory import AgentMemory
from agent_memory.integrations.haystack import AgentMemoryHook


@component
class Answering:
    """A scripted model. Its answer shows whether it got the cat's name."""

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        answer = "She is Mia." if "Mia" in str(messages) else "I don't know."
        return {"replies": [ChatMessage.from_assistant(answer)]}


with AgentMemory(store="memory://") as memory:
    hook = AgentMemoryHook(memory, user_id="ana")
    agent = Agent(chat_generator=Answering(), hooks={"before_llm": [hook], "after_run": [hook]})
    for chat, said in (("monday", "My cat is called Mia."), ("tuesday", "What is my cat called?")):
        messages = [ChatMessage.from_user(said)]
        done = agent.run(messages=messages, hook_context={"session_id": chat})
        print(f"{chat}: {done['last_message'].text}")
