"""A chat of LlamaIndex that recalls a message of another chat. It needs no key.

pip install "agent-memory-log[local,llama-index]"
"""

from collections.abc import Sequence
from typing import Any

from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import ChatMessage, ChatResponse, MockLLM

from agent_memory import AgentMemory
from agent_memory.integrations.llama_index import AgentMemoryMemory


class Cats(MockLLM):
    """A scripted model. Its answer shows whether it got the cat's name."""

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        said = "She is Mia." if "Mia" in str(messages) else "I don't know."
        return ChatResponse(message=ChatMessage(said, role="assistant"))


with AgentMemory(store="memory://") as memory:
    for chat, said in (("monday", "My cat is called Mia."), ("tuesday", "What is my cat called?")):
        own = AgentMemoryMemory.from_defaults(memory=memory, session_id=chat, user_id="ana")
        engine = SimpleChatEngine.from_defaults(llm=Cats(), memory=own)
        print(f"{chat}: {engine.chat(said)}")
