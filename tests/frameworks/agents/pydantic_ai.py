"""pydantic-ai's agent with our history. The model speaks Anthropic's Messages API."""

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from agent_memory import AgentMemory
from agent_memory.integrations.pydantic_ai import AgentMemoryHistory
from tests.frameworks.agents.runner import Turns
from tests.frameworks.conversation import INSTRUCTIONS, TOOLS, USER


def converse(memory: AgentMemory, server: str, turns: Turns) -> list[str]:
    model = AnthropicModel("scripted", provider=AnthropicProvider(base_url=server))
    answers = []
    for session, question in turns:
        agent = Agent(
            model,
            instructions=INSTRUCTIONS,
            tools=list(TOOLS),
            capabilities=[AgentMemoryHistory(memory, session, user_id=USER)],
        )
        answers.append(agent.run_sync(question).output)
    return answers
