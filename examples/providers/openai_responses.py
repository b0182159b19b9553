"""A conversation with a tool over OpenAI's Responses API: `pip install openai`."""

from __future__ import annotations

from openai import OpenAI
from server import provider

from agent_memory import AgentMemory


def main() -> None:
    """Send the reasoning together with its call, and the call with its result."""
    with provider() as address, AgentMemory(store="memory://", blocks=[]) as memory:
        client = OpenAI(base_url=f"{address}/v1", api_key="none")

        def ask() -> None:
            context = memory.get("s-1", format="openai.responses")
            answer = client.responses.create(model="any", store=False, **context.to_arguments())
            memory.update("s-1", answer)

        memory.update("s-1", {"role": "developer", "content": "You help with orders."})
        memory.update("s-1", "Where is my order AX-4471?")
        ask()
        memory.update("s-1", "By the way, I moved to Lisbon.")
        result = {"type": "function_call_output", "call_id": "call_1", "output": "AX-4471: shipped"}
        memory.update("s-1", result)
        ask()
        for item in memory.get("s-1", format="openai.responses").to_messages():
            print(item.get("type", "message"), item.get("content") or item.get("call_id") or "")


if __name__ == "__main__":
    main()
