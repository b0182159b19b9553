"""The Agents SDK's runner with our session. The model speaks OpenAI's Responses API."""

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from agent_memory import AgentMemory
from agent_memory.integrations.openai_agents import AgentMemorySession
from tests.frameworks.agents.runner import Turns
from tests.frameworks.conversation import INSTRUCTIONS, TOOLS, USER


async def converse(memory: AgentMemory, server: str, turns: Turns) -> list[str]:
    client = AsyncOpenAI(base_url=f"{server}/v1", max_retries=0)
    agent = Agent(
        name="assistant",
        instructions=INSTRUCTIONS,
        tools=[function_tool(one) for one in TOOLS],
        model=OpenAIResponsesModel("scripted", client),
    )
    answers = []
    for name, question in turns:
        session = AgentMemorySession(memory, name, user_id=USER)
        config = RunConfig(session_input_callback=session.recalled, tracing_disabled=True)
        done = await Runner.run(agent, question, session=session, run_config=config)
        answers.append(str(done.final_output))
    return answers
