"""LangChain's agent with our middleware. The model speaks OpenAI's Chat Completions API."""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from agent_memory import AgentMemory
from agent_memory.integrations.langchain import AgentMemoryMiddleware
from tests.frameworks.agents.runner import Turns
from tests.frameworks.conversation import INSTRUCTIONS, TOOLS, USER


def converse(memory: AgentMemory, server: str, turns: Turns) -> list[str]:
    agent = create_agent(
        ChatOpenAI(model="scripted", base_url=f"{server}/v1", max_retries=0),
        tools=list(TOOLS),
        system_prompt=INSTRUCTIONS,
        middleware=[AgentMemoryMiddleware(memory, user_id=USER)],
        checkpointer=InMemorySaver(),
    )
    answers = []
    for session, question in turns:
        config = {"configurable": {"thread_id": session}}
        state = agent.invoke({"messages": question}, config)
        answers.append(state["messages"][-1].text)
    return answers
