"""Strands' agent with our session manager. The model speaks OpenAI's Chat Completions API."""

from strands import Agent, tool
from strands.models.openai import OpenAIModel

from agent_memory import AgentMemory
from agent_memory.integrations.strands import AgentMemorySessionManager
from tests.frameworks.agents.runner import Turns
from tests.frameworks.conversation import INSTRUCTIONS, TOOLS, USER


def converse(memory: AgentMemory, server: str, turns: Turns) -> list[str]:
    where = {"base_url": f"{server}/v1", "max_retries": 0}
    model = OpenAIModel(client_args=where, model_id="scripted")
    answers = []
    for session, question in turns:
        agent = Agent(
            model,
            system_prompt=INSTRUCTIONS,
            tools=[tool(one) for one in TOOLS],
            session_manager=AgentMemorySessionManager(
                session, memory, user_id=USER, within_budget=True
            ),
            agent_id="assistant",
            callback_handler=None,
        )
        answers.append(str(agent(question)).strip())
    return answers
