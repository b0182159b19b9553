"""Search a conversation, and show why each message was found."""

from __future__ import annotations

from agent_memory import AgentMemory, VectorMemory

TALK = [
    ("user", "I am thinking about a holiday in the autumn, somewhere with few people."),
    ("assistant", "Would you rather go to the sea or to the mountains, and for how long?"),
    ("user", "The mountains, ten days. Last year we walked from Oberstdorf to Meran."),
    ("assistant", "That is the E5, a fine route. Shall I look for huts that are open in October?"),
    ("user", "Yes, and remind me that my order number for the boots is AX-4471."),
]
QUESTIONS = ["Sea or mountains?", "What did I buy for hiking?", "AX-4471"]


def main() -> None:
    """Print each ranking signal's part of the score, then the context for a model."""
    with AgentMemory(store="memory://", blocks=[VectorMemory()]) as memory:
        messages = [{"role": role, "content": content} for role, content in TALK]
        memory.update("s-1", messages, user_id="kim")
        memory.flush()
        for question in QUESTIONS:
            print(question)
            for recall in memory.search(question, user_id="kim", limit=2):
                why = ", ".join(f"{view} {part:.2f}" for view, part in recall.views.items())
                print(f"  {recall.score:.2f}  {recall.text}\n        ({why})")
        print(memory.get("s-2", QUESTIONS[0], user_id="kim").to_messages()[0]["content"])


if __name__ == "__main__":
    main()
