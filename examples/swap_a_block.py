"""Add a block to a memory that has been in use, and let the block absorb the past.

The log stores every message, so a new block starts at the beginning and catches up. For another
embedding model, add a second vector block with its own name.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory

from agent_memory import AgentMemory, FlushToLTM, Trim, VectorMemory

PLANTS = ["basil", "mint", "thyme", "sage", "rosemary", "chives"]


def main() -> None:
    """Use `Trim` alone for six weeks, then add vector memory."""
    with TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/memory.db"

        with AgentMemory(store=store, max_tokens=100, overflow=Trim(), blocks=[]) as memory:
            for week, plant in enumerate(PLANTS, 1):
                session = memory.session(f"week-{week}", user_id="kim")
                session.update({"role": "user", "content": f"I planted {plant} in pot {week}."})
                for day in range(9):
                    session.update({"role": "user", "content": f"Watered pot {week}, day {day}."})
            context = memory.get("spring", "Where is the sage?", user_id="kim")
            print("With Trim alone:", context.recalls)

        blocks = FlushToLTM(blocks=[VectorMemory()])
        with AgentMemory(store=store, max_tokens=100, overflow=blocks) as memory:
            for step in memory.replay("vector"):
                print(f"replay {step.done}/{step.total}: {step.session_id}")
            found = memory.search("Where is the sage?", user_id="kim", limit=1)
            print("With VectorMemory:", found[0].text)


if __name__ == "__main__":
    main()
