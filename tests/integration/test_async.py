"""The async interface, on asyncio and trio."""

import asyncio
from functools import partial
from pathlib import Path

import anyio
import pytest

from agent_memory import AsyncAgentMemory, StaticMemory, VectorMemory, operations
from agent_memory.testing.contract import together


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_all_calls_work_on_asyncio_and_trio(backend: str, tmp_path: Path) -> None:
    """Wrong: a call fails on asyncio or on trio."""

    async def run() -> None:
        blocks = [StaticMemory(facts=["Be kind."]), VectorMemory()]
        async with AsyncAgentMemory(store=f"sqlite:///{tmp_path}/a.db", blocks=blocks) as memory:
            session = memory.session("s", "ada")
            await session.update({"role": "user", "content": "My dog Rex is ill."})
            await memory.update("s", {"role": "assistant", "content": "Poor Rex."})
            assert [done.last for done in await session.flush()] == [2]
            assert (await session.get("dog")).static_facts[0].text == "Be kind."
            assert len(await memory.history("s")) == 2
            assert len(await session.history(limit=1)) == 1
            assert await memory.search("dog", user_id="ada")
            assert await session.search("dog")
            assert [step.done async for step in memory.replay("vector")] == [1]
            assert [head.session_id for head in await memory.sessions()] == ["s"]
            assert (await memory.stats()).entries == 2
            assert (
                await memory.run(operations.dead_letters, memory.memory, "vector")
                == await memory.run(operations.retry, memory.memory)
                == []
            )
            values = await memory.values("ada")
            await memory.run(values.put, ("n",), "k", 1)
            assert (await memory.run(values.get, ("n",), "k")).value == 1
            share = await memory.share("team")
            await memory.run(share.grant, "ann", "write")
            assert await memory.run(operations.shares, memory.memory) == ["team"]
            assert [m.content for m in await session.pop()] == ["Poor Rex."]
            await session.delete()
            await memory.delete_user("ada")
            assert await memory.sessions() == []

    anyio.run(run, backend=backend)


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_concurrent_event_loops_share_a_memory(where: str, tmp_path: Path) -> None:
    """Wrong: event loops that share a memory, such as one per request, wait for ever."""
    url = "memory://" if where == "memory" else f"sqlite:///{tmp_path}/a.db"
    memory = AsyncAgentMemory(store=url, blocks=[])
    done = []

    async def request(n: int) -> int:
        tasks = [memory.update(f"s{n}", {"role": "user", "content": "hi"}) for _ in range(10)]
        await asyncio.wait_for(asyncio.gather(*tasks), 120)
        return len(await memory.history(f"s{n}"))

    def serve(n: int) -> None:
        done.append(asyncio.run(request(n)))

    together([partial(serve, n) for n in range(20)])
    assert done == [10] * 20
    asyncio.run(memory.close())


def test_a_memory_works_on_asyncio_and_trio_in_turn() -> None:
    """Wrong: a memory works only on the kind of event loop that used it first."""
    memory = AsyncAgentMemory(store="memory://", blocks=[])
    for n, backend in enumerate(["asyncio", "trio", "asyncio", "trio"]):
        head = anyio.run(memory.update, "s", {"role": "user", "content": "x"}, backend=backend)
        assert head.end == n + 1
    anyio.run(memory.close)
