"""An agent of Google's ADK that recalls a message of another session. It needs no key.

pip install "agent-memory-log[local,google-adk]"
"""

import asyncio
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.genai.types import Content, Part

from agent_memory import AgentMemory
from agent_memory.integrations.google_adk import AgentMemoryMemoryService, AgentMemorySessionService


class Cats(BaseLlm):
    """A scripted model. Its answer shows whether it got the cat's name."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        said = "She is Mia." if "Mia" in str(llm_request) else "I don't know."
        yield LlmResponse(content=Content(role="model", parts=[Part(text=said)]))


async def main(memory: AgentMemory) -> None:
    """Give the agent a fact in one session, and ask for it in another session."""
    sessions, recall = AgentMemorySessionService(memory), AgentMemoryMemoryService(memory)
    agent: Any = LlmAgent(name="cats", model=Cats(model="cats"), tools=[PreloadMemoryTool()])
    runner = Runner(agent=agent, app_name="app", session_service=sessions, memory_service=recall)
    for chat, said in (("monday", "My cat is called Mia."), ("tuesday", "What is my cat called?")):
        await sessions.create_session(app_name="app", user_id="ana", session_id=chat)
        asked = Content(role="user", parts=[Part(text=said)])
        async for event in runner.run_async(user_id="ana", session_id=chat, new_message=asked):
            print(f"{chat}: {event.content.parts[0].text}")


with AgentMemory(store="memory://") as opened:
    asyncio.run(main(opened))
