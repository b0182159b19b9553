"""CrewAI's agent with its memory over our storage. Its model speaks the Chat Completions API."""

from crewai import LLM, Agent, Memory
from crewai.tools import tool

from agent_memory import AgentMemory
from agent_memory.integrations.crewai import AgentMemoryStorage
from agent_memory.models.embedders import open_embedder
from tests.frameworks.agents.runner import Turns
from tests.frameworks.conversation import INSTRUCTIONS, TOOLS, USER


def converse(memory: AgentMemory, server: str, turns: Turns) -> list[str]:
    """Hold the turns. CrewAI's agents know of earlier turns by their memory alone."""
    embedder = open_embedder("local")
    model = LLM(model="openai/gpt-4o", base_url=f"{server}/v1", max_retries=0)
    answers = []
    for _, question in turns:
        crews = Memory(
            llm=model,
            storage=AgentMemoryStorage(memory, user_id=USER),
            embedder=lambda texts: embedder.embed(texts).tolist(),
            root_scope="/house",
        )
        agent = Agent(
            role="assistant",
            goal=INSTRUCTIONS,
            backstory="You know the building records.",
            llm=model,
            tools=[tool(one.__name__)(one) for one in TOOLS],
            memory=crews,
        )
        answers.append(agent.kickoff(question).raw)
        crews.close()
    return answers
