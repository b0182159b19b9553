"""Run a LangChain agent that recalls a message of another chat. It needs no key.

pip install "agent-memory-log[local,langchain]"
"""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from agent_memory import AgentMemory
from agent_memory.integrations.langchain import AgentMemoryMiddleware


class Model(GenericFakeChatModel):
    """A scripted model that prints the messages it gets, and returns its next answer."""

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        print(f"\nThe model is sent {len(messages)} messages:")
        for message in messages:
            print(f"  {message.type}: {message.text}")
        return super()._generate(messages, *args, **kwargs)


def main() -> None:
    """Tell the agent something in one thread, and ask for it in another."""
    answers = iter([AIMessage("How lovely, what is she called?"), AIMessage("She is called Mia.")])
    with AgentMemory(store="memory://") as memory:
        agent = create_agent(
            Model(messages=answers),
            tools=[],
            system_prompt="You are Ana's assistant.",
            middleware=[AgentMemoryMiddleware(memory, user_id="ana")],
            checkpointer=InMemorySaver(),
        )
        agent.invoke(
            {"messages": [HumanMessage("I have a cat. She is called Mia.")]},
            {"configurable": {"thread_id": "monday"}},
        )
        asked = agent.invoke(
            {"messages": [HumanMessage("What is my cat called?")]},
            {"configurable": {"thread_id": "tuesday"}},
        )
        print(f"\nAnswer: {asked['messages'][-1].text}")


if __name__ == "__main__":
    main()
