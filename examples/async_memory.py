"""Run three conversations concurrently on one `AsyncAgentMemory`."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import anyio

from agent_memory import AsyncAgentMemory, FlushToLTM, VectorMemory


async def talk(memory: AsyncAgentMemory, name: str, city: str) -> None:
    """Store one user's conversation."""
    session = memory.session(f"chat-{name}", user_id=name)
    await session.update({"role": "user", "content": f"I'm {name} and I live in {city}."})
    await session.update({"role": "assistant", "content": f"Hello {name}!"})
    await session.flush()


async def main() -> None:
    """Talk to three users concurrently, then search the memory of each."""
    with TemporaryDirectory() as folder:
        async with AsyncAgentMemory(
            store=f"sqlite:///{folder}/memory.db",
            overflow=FlushToLTM(blocks=[VectorMemory()]),
        ) as memory:
            people = {"ana": "Lisbon", "ben": "Oslo", "chi": "Hanoi"}
            async with anyio.create_task_group() as group:
                for name, city in people.items():
                    group.start_soon(talk, memory, name, city)

            for name in people:
                found = await memory.search("Where do I live?", user_id=name, limit=1)
                print(f"{name} -> {found[0].text}")
            stats = await memory.stats()
            print(f"{stats.sessions} sessions, {stats.entries} messages")


if __name__ == "__main__":
    anyio.run(main)
