"""LlamaIndex's FunctionAgent with our memory. The model speaks OpenAI's Chat Completions API."""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI

from agent_memory import AgentMemory
from agent_memory.integrations.llama_index import AgentMemoryMemory
from tests.frameworks.agents.runner import Turns
from tests.frameworks.conversation import INSTRUCTIONS, TOOLS, USER


async def converse(memory: AgentMemory, server: str, turns: Turns) -> list[str]:
    agent = FunctionAgent(
        llm=OpenAI(model="gpt-4o", api_base=f"{server}/v1", max_retries=0),
        tools=[FunctionTool.from_defaults(one) for one in TOOLS],
        system_prompt=INSTRUCTIONS,
        streaming=False,
    )
    answers = []
    for session, question in turns:
        chat = AgentMemoryMemory.from_defaults(memory=memory, session_id=session, user_id=USER)
        answers.append(str(await agent.run(question, memory=chat)))
    return answers
