"""LangGraph's tests of stores, and its conformance suite of checkpointers."""

import asyncio
from typing import Any

from benchmarks.suites.suite import Suite, memory

SUITE = Suite(
    "langgraph",
    "langgraph",
    "langgraph",
    ("tests/test_store.py",),
    root="libs/checkpoint",
    needs=("langgraph-checkpoint-conformance",),
)


def report() -> Any:
    """Return the conformance suite's report on our saver."""
    from langgraph.checkpoint.conformance import checkpointer_test, validate

    from agent_memory.integrations.langgraph import AgentMemorySaver

    @checkpointer_test(name="AgentMemorySaver")
    async def made() -> Any:
        with memory() as opened:
            yield AgentMemorySaver(opened)

    return asyncio.run(validate(made))


def pytest_configure() -> None:
    """Put our store in place, and run the conformance suite on our saver."""
    import langgraph.store.memory as stores

    from agent_memory.integrations.langgraph import AgentMemoryStore

    class Store(AgentMemoryStore):
        def __init__(self, *, index: Any = None) -> None:
            super().__init__(memory(), index=index)

    stores.InMemoryStore = Store  # type: ignore[assignment, misc]
    told = report()
    if not told.passed_all():
        raise SystemExit(f"The conformance suite of checkpointers: {told.results}")
