"""An agent of pydantic-ai that recalls a message of another chat. It needs no key.

pip install "agent-memory-log[local,pydantic-ai]"
"""

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from agent_memory import AgentMemory
from agent_memory.integrations.pydantic_ai import AgentMemoryHistory


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A scripted model. Its answer shows whether it got the cat's name."""
    return ModelResponse([TextPart("She is Mia." if "Mia" in str(messages) else "I don't know.")])


with AgentMemory(store="memory://") as memory:
    for chat, said in (("monday", "My cat is called Mia."), ("tuesday", "What is my cat called?")):
        history = AgentMemoryHistory(memory, chat, user_id="ana")
        agent = Agent(FunctionModel(answer), capabilities=[history])
        print(f"{chat}: {agent.run_sync(said).output}")
