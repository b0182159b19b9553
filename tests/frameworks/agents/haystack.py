"""Haystack's agent with our hook. The model speaks OpenAI's Chat Completions API."""

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function

from agent_memory import AgentMemory
from agent_memory.integrations.haystack import AgentMemoryHook
from tests.frameworks.agents.runner import Turns
from tests.frameworks.conversation import INSTRUCTIONS, TOOLS, USER


def converse(memory: AgentMemory, server: str, turns: Turns) -> list[str]:
    hook = AgentMemoryHook(memory, user_id=USER)
    agent = Agent(
        chat_generator=OpenAIChatGenerator(
            model="scripted", api_base_url=f"{server}/v1", max_retries=0
        ),
        tools=[create_tool_from_function(one) for one in TOOLS],
        system_prompt=INSTRUCTIONS,
        hooks={"before_llm": [hook], "after_run": [hook]},
    )
    answers = []
    for session, question in turns:
        done = agent.run(
            messages=[ChatMessage.from_user(question)], hook_context={"session_id": session}
        )
        answers.append(done["last_message"].text)
    return answers
