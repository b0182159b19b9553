"""A LangGraph graph that resumes its state and stores values. It needs no key.

pip install "agent-memory-log[langgraph]"
"""

from typing import TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore

from agent_memory import AgentMemory
from agent_memory.integrations.langgraph import AgentMemorySaver, AgentMemoryStore


class State(TypedDict):
    """The state of the graph."""

    visits: int


def visit(state: State, *, store: BaseStore) -> State:
    """Count a visit, and store the number of the last visit."""
    store.put(("guests",), "ana", {"last": state["visits"] + 1})
    return {"visits": state["visits"] + 1}


with AgentMemory(store="memory://", blocks=[]) as memory:
    builder = StateGraph(State)
    builder.add_node("visit", visit)
    builder.add_edge(START, "visit")
    builder.add_edge("visit", END)
    kept = AgentMemoryStore(memory)
    graph = builder.compile(checkpointer=AgentMemorySaver(memory), store=kept)
    thread: RunnableConfig = {"configurable": {"thread_id": "ana"}}
    graph.invoke({"visits": 0}, thread)
    print("Goes on from:", graph.get_state(thread).values)
    print("Kept:", [found.value for found in kept.search(("guests",))])
