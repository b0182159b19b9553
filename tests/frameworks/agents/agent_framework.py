"""Agent Framework's agent with our providers. The model speaks OpenAI's Responses API."""

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient

from agent_memory import AgentMemory
from agent_memory.integrations.agent_framework import (
    AgentMemoryContextProvider,
    AgentMemoryHistoryProvider,
)
from tests.frameworks.agents.runner import Turns
from tests.frameworks.conversation import INSTRUCTIONS, TOOLS, USER


async def converse(memory: AgentMemory, server: str, turns: Turns) -> list[str]:
    agent = Agent(
        client=OpenAIChatClient("scripted", api_key="none", base_url=f"{server}/v1"),
        instructions=INSTRUCTIONS,
        tools=list(TOOLS),
        context_providers=[
            AgentMemoryHistoryProvider(memory, user_id=USER, within_budget=True),
            AgentMemoryContextProvider(memory, user_id=USER),
        ],
        default_options={"store": False},
    )
    answers = []
    for name, question in turns:
        session = agent.create_session(session_id=name)
        answers.append((await agent.run(question, session=session)).text)
    return answers
