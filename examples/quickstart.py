"""Use the three basic calls: `update`, `get` and `delete`.

The program needs no key and no network, and stores its database in a temporary folder.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory

from agent_memory import AgentMemory, FlushToLTM, StaticMemory, VectorMemory

CONVERSATION = [
    ("user", "Hi, I'm Sarah from Marketing. My badge number is M-4417."),
    ("assistant", "Welcome, Sarah! What can I do for you?"),
    ("user", "I would like to work from home. Where do I begin?"),
    ("assistant", "With form HR-101 on the employee portal; your manager has to approve it."),
    ("user", "My desk at home is small. Will a monitor fit the allowance?"),
    ("assistant", "The allowance covers a laptop and a chair of up to $300, but no monitor."),
    ("user", "Good to know. I also plan a longer trip in May."),
    ("assistant", "Working abroad needs approval 30 days ahead, and is limited to two weeks."),
]


def main() -> None:
    """Fill a small window until it overflows, then ask about a message that has left the window."""
    with (
        TemporaryDirectory() as folder,
        AgentMemory(
            store=f"sqlite:///{folder}/memory.db",
            max_tokens=220,
            overflow=FlushToLTM(
                blocks=[
                    StaticMemory(facts=["Remote work: up to 3 days a week with approval."]),
                    VectorMemory(),
                ],
                max_stm_ratio=0.5,
            ),
        ) as memory,
    ):
        for role, content in CONVERSATION:
            memory.update("s-1", {"role": role, "content": content}, user_id="sarah")

        (head,) = memory.sessions(user_id="sarah")
        print(f"The log holds {head.end} messages; {head.start} of them have left the window.\n")
        context = memory.get("s-1", "What is my badge number?")
        for message in context.to_messages():
            print(f"{message['role']:>9}: {message['content']}")
        print(f"\n{context.tokens} of at most {context.max_tokens} tokens.")

        memory.delete("s-1")
        print(f"After delete the log holds {len(memory.history('s-1'))} messages.")


if __name__ == "__main__":
    main()
