"""A conversation with a tool over Anthropic's Messages API: `pip install anthropic`."""

from __future__ import annotations

from anthropic import Anthropic
from server import provider

from agent_memory import AgentMemory


def main() -> None:
    """Send the system text separately, and the thinking with its signature."""
    with provider() as address, AgentMemory(store="memory://", blocks=[]) as memory:
        client = Anthropic(base_url=address, api_key="none")

        def ask() -> None:
            context = memory.get("s-1", format="anthropic.messages")
            answer = client.messages.create(model="any", max_tokens=99, **context.to_arguments())
            memory.update("s-1", answer)

        memory.update("s-1", {"role": "system", "content": "You help with orders."})
        memory.update("s-1", {"role": "assistant", "content": "Welcome!"})
        memory.update("s-1", "Where is my order AX-4471?")
        ask()
        memory.update("s-1", "By the way, I moved to Lisbon.")
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "AX-4471: shipped"}
        memory.update("s-1", {"role": "user", "content": [result]})
        ask()
        arguments = memory.get("s-1", format="anthropic.messages").to_arguments()
        print("system:", arguments["system"])
        for message in arguments["messages"]:
            print(message["role"], message["content"])


if __name__ == "__main__":
    main()
