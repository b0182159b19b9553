"""ADK's runner with our services. The model speaks Google's Gemini API."""

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import Gemini
from google.adk.plugins.context_filter_plugin import ContextFilterPlugin
from google.adk.runners import Runner
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.genai.types import Content, Part

from agent_memory import AgentMemory
from agent_memory.integrations.google_adk import AgentMemoryMemoryService, AgentMemorySessionService
from tests.frameworks.agents.runner import Turns
from tests.frameworks.conversation import INSTRUCTIONS, TOOLS, USER


async def converse(memory: AgentMemory, server: str, turns: Turns) -> list[str]:
    agent = LlmAgent(
        name="assistant",
        instruction=INSTRUCTIONS,
        model=Gemini(model="gemini-scripted", base_url=server),
        tools=[*TOOLS, PreloadMemoryTool()],
    )
    app = App(name="house", root_agent=agent, plugins=[ContextFilterPlugin(4)])
    runner = Runner(
        app=app,
        session_service=AgentMemorySessionService(memory),
        memory_service=AgentMemoryMemoryService(memory),
        auto_create_session=True,
    )
    answers = []
    for session, question in turns:
        said = Content(role="user", parts=[Part(text=question)])
        events = runner.run_async(user_id=USER, session_id=session, new_message=said)
        texts = [part.text async for event in events for part in event.content.parts if part.text]
        answers.append(texts[-1])
    return answers
