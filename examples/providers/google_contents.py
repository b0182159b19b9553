"""A conversation with a tool over Google's Gemini API: `pip install google-genai`."""

from __future__ import annotations

from google import genai
from google.genai import types
from server import provider

from agent_memory import AgentMemory


def main() -> None:
    """Send function calls without ids. Responses are matched to calls by name."""
    with provider() as address, AgentMemory(store="memory://", blocks=[]) as memory:
        client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=address))

        def ask() -> None:
            context = memory.get("s-1", format="google.contents")
            answer = client.models.generate_content(model="any", **context.to_arguments())
            assert answer.candidates
            memory.update("s-1", answer.candidates[0].content)

        memory.update("s-1", {"role": "system", "content": "You help with orders."})
        memory.update("s-1", {"role": "user", "parts": [{"text": "Where is my order AX-4471?"}]})
        ask()
        memory.update("s-1", "By the way, I moved to Lisbon.")
        result = {"name": "order_status", "response": {"result": "AX-4471: shipped"}}
        memory.update("s-1", {"role": "user", "parts": [{"functionResponse": result}]})
        ask()
        for content in memory.get("s-1", format="google.contents").to_messages():
            print(content["role"], content["parts"])


if __name__ == "__main__":
    main()
