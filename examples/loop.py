"""Run whole turns with `completion`, and a loop of your own with `before_turn` and `after_turn`.

At the end, an agent has made forty tool calls. A context of 6,000 tokens shows all its answers.

Without a key the model's answers are scripted, by a server on this machine that speaks OpenAI's
API. Set AGENT_MEMORY_MODEL to any litellm model (and the provider's key), and that model answers.
"""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack
from typing import Any

from agent_memory import AgentMemory, NoteMemory
from agent_memory.testing import FakeLLM

# If the main thread calls litellm, an event loop stays open when the program ends.
warnings.filterwarnings("ignore", "unclosed", ResourceWarning)

MODEL = os.environ.get("AGENT_MEMORY_MODEL")
BOOTS = "Where is my order AX-4471? By the way, I wear size 42."
SOCKS = "I need socks for the boots. Which size?"


def order_status(number: str) -> dict[str, Any]:
    """Tells where an order is. Use it whenever the user names an order's number."""
    return {"number": number, "status": "shipped", "arrives": "2026-03-06"}


def script(fake: FakeLLM) -> None:
    """Script the answers, for use without a model."""
    fake.call(
        ("order_status", {"number": "AX-4471"}),
        ("memory_write", {"text": "Ana wears size 42."}),
    )
    fake.reply("It was shipped and arrives on 6 March. I noted your size, 42.")
    fake.call(("memory_read", {"query": "Ana's size"}))
    fake.reply("Take size 42, as for the boots.")
    fake.reply("Here is a poem about boots, in forty verses. First verse: ...")
    fake.reply("Size 42.")


def long_log() -> None:
    """Store forty turns with tool results of 1,500 tokens, and show a context of 6,000."""
    with AgentMemory(store="memory://", max_tokens=6000, blocks=[]) as memory:
        for host in range(1, 41):
            function = {"name": "read_log", "arguments": f'{{"host": {host}}}'}
            call = {"id": f"call-{host}", "type": "function", "function": function}
            log = f"Log of host {host}\n" + "\n".join(f"disk {n} is full" for n in range(300))
            memory.update("audit", [
                {"role": "user", "content": f"Is anything wrong with host {host}?"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": log},
                {"role": "assistant", "content": f"Host {host} has 300 full disks."},
            ])  # fmt: skip
        context = memory.get("audit", "Which hosts have full disks?")
        chat = context.to_messages()
        answers = [one for one in chat if one["role"] == "assistant" and one["content"]]
        results = [one["content"] for one in chat if one["role"] == "tool"]
        print(f"  {len(answers)} of 40 answers, {len(results)} of 40 results.")
        print(f"  Within 6,000 tokens: {context.tokens <= 6000}; warnings: {context.warnings}")
        print(f"  The newest result: {results[-1][:30]!r}... of {len(results[-1]):,} characters.")
        print(f"  The oldest: {results[0]}")
        print(f"  Read: {memory.call_tool('audit', 'memory_read_message', {'seq': 3})[:120]}...")


def show(memory: AgentMemory, session_id: str) -> None:
    """Print the log of a session."""
    for entry in memory.history(session_id):
        calls = [call["function"]["name"] for call in entry.message.tool_calls or ()]
        text = f"(calls {', '.join(calls)})" if calls else entry.message.text()
        print(f"  {entry.seq} {entry.message.role:9} {text[:80]}")


def main() -> None:
    """Run turns with `completion`, streamed, interrupted, and in a loop of your own."""
    with ExitStack() as stack:
        settings: dict[str, Any] = {"model": MODEL}
        if MODEL is None:
            fake = stack.enter_context(FakeLLM())
            script(fake)
            settings = {"model": "openai/scripted", "api_base": fake.api_base, "api_key": "none"}
        memory = stack.enter_context(
            AgentMemory(store="memory://", blocks=[NoteMemory()], **settings)
        )

        print("In one call, with a tool of the memory and a function of ours:")
        tools = [*memory.tools("monday", user_id="ana"), order_status]
        response = memory.completion("monday", BOOTS, user_id="ana", tools=tools)
        print(f"> {response.choices[0].message.content}")
        show(memory, "monday")

        print("\nStreamed, in another conversation; the size comes from memory:")
        stream = memory.completion("thursday", SOCKS, user_id="ana", tools=tools, stream=True)
        print("> ", end="")
        for chunk in stream:
            print(chunk.choices[0].delta.content or "", end="")
        print(f"\nStored: {len(memory.history('thursday'))} messages.")

        stream = memory.completion("thursday", "Write me a poem.", user_id="ana", stream=True)
        for _ in range(3):
            next(stream)
        stream.close()
        print(f"Broken off, so that it stays at {len(memory.history('thursday'))}.")

        print("\nAround a loop of your own:")
        turn = memory.before_turn("thursday", "Thank you! Which size was it?", user_id="ana")
        print(f"  {len(turn.messages)} messages to send, recalled: {turn.context.recalls[0].text}")
        answer = ask_yourself(settings, turn.messages)
        memory.after_turn(turn, answer)
        print(f"  Stored: {len(memory.history('thursday'))} messages.")

    print("\nA long log of an agent:")
    long_log()


def ask_yourself(settings: dict[str, Any], messages: list[dict[str, Any]]) -> Any:
    """Call the model with any client, here litellm."""
    import litellm

    return litellm.completion(messages=messages, **settings)


if __name__ == "__main__":
    main()
