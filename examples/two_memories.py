"""Combine a customer's messages, the company's handbook and common rules in one memory."""

from __future__ import annotations

from agent_memory import AgentMemory, CompositeMemory, StaticMemory, VectorMemory

HANDBOOK = [
    "Repairs under warranty are free for 24 months after the sale.",
    "Spare batteries are sent out within two days.",
    "The workshop in Bremen is closed on Mondays.",
]


def main() -> None:
    """Recall from both memories, then delete the customer."""
    support = AgentMemory(store="memory://", max_tokens=2_000, blocks=[VectorMemory()])
    company = AgentMemory(store="memory://", blocks=[StaticMemory(facts=HANDBOOK)])
    with CompositeMemory(
        {
            "support": support,
            "company": company,
            "rules": StaticMemory(facts=["Never promise a date."]),
        },
        route="support",  # the member that stores sessions, or a function
        timeouts={"company": 5.0},
        timeout=30.0,
    ) as both:
        both.update("call-1", {"role": "user", "content": "My drill is a KX-20."}, user_id="kim")
        both.flush()

        context = both.get("call-2", "Is the drill under warranty still?", user_id="kim")
        for recall in context.recalls:
            print(f"  {recall.block}: {recall.text}")
        print("Warnings:", context.warnings)

        both.delete_user("kim")
        left = [memory.stats().entries for memory in both.memories.values()]
        print("Left of Kim:", left)


if __name__ == "__main__":
    main()
