"""Let a model write and read notes with tools, in a loop of your own.

The model is a scripted server on this machine with OpenAI's API. Call a real model in the same way.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

from agent_memory import AgentMemory, NoteMemory
from agent_memory.testing import FakeLLM


def ask(api_base: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Any:
    """Send a request to a chat API, and return the message of the answer."""
    body = {"model": "scripted", "messages": messages, "tools": tools}
    request = Request(
        f"{api_base}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer none"},
    )
    with urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]


def talk(memory: AgentMemory, api_base: str, session_id: str, user_id: str, text: str) -> None:
    """Call the model and run its tools until it answers, and print each step."""
    print(f"{user_id}: {text}")
    session = memory.session(session_id, user_id)
    session.update({"role": "user", "content": text})
    while True:
        said = ask(api_base, session.get().to_messages(), session.tools())
        turn = [said]
        for call in said.get("tool_calls") or ():
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            result = session.call_tool(name, arguments)
            print(f"  {name} {arguments}\n    -> {result}")
            turn.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        session.update(turn)  # stores calls together with their results
        if len(turn) == 1:
            print(f"model: {said['content']}\n")
            return


def script(fake: FakeLLM) -> None:
    """Script the model's answers."""
    fake.call(("memory_write", {"text": "Ana is vegetarian."}))
    fake.reply("Noted.")
    fake.call(("memory_read", {"query": "Ana's diet", "user_id": "ben"}))
    fake.call(("memory_read", {"query": "Is Ana vegetarian?"}))
    fake.reply("The mushroom risotto: you are vegetarian.")
    fake.call(("memory_read", {"query": "vegetarian"}))
    fake.reply("I know nothing of what you eat, Ben.")


def main() -> None:
    """Run three conversations of two users."""
    with FakeLLM() as fake, AgentMemory(store="memory://", blocks=[NoteMemory()]) as memory:
        script(fake)
        monday = "I have been a vegetarian for a year now."
        talk(memory, fake.api_base, "monday", "ana", monday)
        talk(memory, fake.api_base, "tuesday", "ana", "What shall I have for lunch?")
        talk(memory, fake.api_base, "wednesday", "ben", "Do you know what I eat?")
        for user_id in ("ana", "ben"):
            print(
                f"Notes of {user_id}:", [note.text for note in memory.user(user_id).notes().all()]
            )


if __name__ == "__main__":
    main()
