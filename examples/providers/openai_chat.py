"""A conversation with a tool over OpenAI's Chat Completions API: `pip install openai`."""

from __future__ import annotations

from openai import OpenAI
from server import provider

from agent_memory import AgentMemory


def main() -> None:
    """Let the user write while the tool runs. The API accepts each request."""
    with provider() as address, AgentMemory(store="memory://", blocks=[]) as memory:
        client = OpenAI(base_url=f"{address}/v1", api_key="none")

        def ask() -> None:
            context = memory.get("s-1", format="openai.chat")
            answer = client.chat.completions.create(model="any", **context.to_arguments())
            memory.update("s-1", answer)

        memory.update("s-1", {"role": "system", "content": "You help with orders."})
        memory.update("s-1", "Where is my order AX-4471?")
        ask()
        memory.update("s-1", "By the way, I moved to Lisbon.")
        result = {"role": "tool", "tool_call_id": "call_1", "content": "AX-4471: shipped"}
        memory.update("s-1", result)
        ask()
        for message in memory.get("s-1").to_messages():
            print(message["role"], message["content"] or message["tool_calls"])


if __name__ == "__main__":
    main()
