"""smolagents' agent with our memory. The model speaks OpenAI's Chat Completions API."""

from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool

from agent_memory import AgentMemory
from agent_memory.integrations.smolagents import AgentMemorySteps
from tests.frameworks.agents.runner import Turns
from tests.frameworks.conversation import INSTRUCTIONS, TOOLS, USER


def converse(memory: AgentMemory, server: str, turns: Turns) -> list[str]:
    model = OpenAIModel("scripted", api_base=f"{server}/v1", client_kwargs={"max_retries": 0})
    tools = [tool(one) for one in TOOLS]
    answers = []
    for session, question in turns:
        agent = ToolCallingAgent(tools, model, verbosity_level=LogLevel.OFF)
        agent.prompt_templates["system_prompt"] = INSTRUCTIONS  # the default exceeds the window
        agent.memory = AgentMemorySteps(memory, session, user_id=USER)
        answers.append(str(agent.run(question)))
    return answers
