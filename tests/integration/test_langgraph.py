"""LangGraph's store and checkpointer over a memory. `make suites` runs LangGraph's own tests."""

import asyncio
import operator
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp
from langgraph.types import Command, interrupt

from agent_memory import AgentMemory
from agent_memory.integrations.langgraph import AgentMemorySaver, AgentMemoryStore


class State(TypedDict):
    said: Annotated[list[str], operator.add]


def graph(saver: AgentMemorySaver, **more: Any) -> Any:
    def ask(state: State) -> dict[str, list[str]]:
        return {"said": [str(interrupt("What is your name?"))]}

    builder = StateGraph(State)
    builder.add_node("begin", lambda state: {"said": ["hello"]})
    builder.add_node("ask", ask)
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver, **more)


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def test_another_process_can_continue_an_interrupted_graph(url: str) -> None:
    """Wrong: a new process cannot continue an interrupted run, or another thread does."""
    with AgentMemory(store=url, blocks=[]) as memory:
        paused = graph(AgentMemorySaver(memory)).invoke({"said": ["hi"]}, thread("a"))
        assert paused["__interrupt__"][0].value == "What is your name?"
    with AgentMemory(store=url, blocks=[]) as memory:
        saver = AgentMemorySaver(memory)
        done = graph(saver).invoke(Command(resume="Ana"), thread("a"))
        assert done["said"] == ["hi", "hello", "Ana"]
        assert graph(saver).get_state(thread("b")).values == {}
        history = list(graph(saver).get_state_history(thread("a")))
        assert [len(one.values["said"]) for one in history] == [3, 2, 1, 0]
        again = asyncio.run(graph(saver).ainvoke({"said": ["more"]}, thread("c")))
        assert again["said"] == ["more", "hello"]
        saver.delete_thread("a")
        assert list(saver.list(thread("a"))) == []


def test_a_deleted_user_leaves_no_checkpoints(memory: AgentMemory) -> None:
    """Wrong: checkpoints are left after their user was deleted, or another user's are gone."""
    for user in ("ana", "ben"):
        graph(AgentMemorySaver(memory, user_id=user)).invoke({"said": [user]}, thread("t"))
    memory.delete_user("ana")
    assert AgentMemorySaver(memory, user_id="ana").get_tuple(thread("t")) is None
    assert AgentMemorySaver(memory, user_id="ben").get_tuple(thread("t")) is not None


def test_async_runs_call_overridden_methods_of_a_subclass(memory: AgentMemory) -> None:
    """Wrong: an async run skips a method that a subclass overrides, such as one that redacts."""
    stored: list[str] = []

    class Watched(AgentMemorySaver):
        def put(self, *args: Any) -> Any:
            stored.append(args[1]["id"])
            return super().put(*args)

    asyncio.run(graph(Watched(memory)).ainvoke({"said": ["hi"]}, thread("a")))
    kept = list(AgentMemorySaver(memory).list(thread("a")))
    assert stored == [one.config["configurable"]["checkpoint_id"] for one in kept][::-1]


def test_the_newest_checkpoint_can_be_resumed_after_a_prune(memory: AgentMemory) -> None:
    """Wrong: after a prune the newest checkpoint cannot be resumed, or older values are left."""
    saver = AgentMemorySaver(memory)
    graph(saver).invoke({"said": ["hi"]}, thread("a"))
    before = len(memory.values().search(limit=1_000))
    saver.prune(["a"])
    assert len(list(saver.list(thread("a")))) == 1
    assert len(memory.values().search(limit=1_000)) < before
    saver.copy_thread("a", "b")
    for name in ("a", "b"):
        done = graph(saver).invoke(Command(resume="Ana"), thread(name))
        assert done["said"] == ["hi", "hello", "Ana"]


def test_a_thread_can_have_any_id(memory: AgentMemory) -> None:
    """Wrong: a deeply nested graph or an odd thread id makes a run fail."""
    saver = AgentMemorySaver(memory)
    for name in ("\u00e4/\x1f|b", 7, "x" * 60):
        config = {"configurable": {"thread_id": name, "checkpoint_ns": "child:1|" * 40}}
        empty: Any = {"v": 1, "id": "1", "ts": "", "channel_values": {}, "channel_versions": {}}
        saver.put(config, {**empty, "versions_seen": {}}, {"step": 1}, {})  # type: ignore[typeddict-item]
        found = saver.get_tuple(config)
        assert found.config["configurable"]["checkpoint_ns"] == "child:1|" * 40


def test_reads_of_a_batch_do_not_see_its_own_writes(memory: AgentMemory) -> None:
    """Wrong: a read in a batch sees the batch's own puts, or the first of two puts wins."""
    store = AgentMemoryStore(memory)
    store.put(("n",), "k", {"v": 1})
    put, again = PutOp(("n",), "k", {"v": 2}), PutOp(("n",), "k", {"v": 3})
    found, _, _, listed = store.batch([GetOp(("n",), "k"), put, again, SearchOp(("n",))])
    assert found.value == {"v": 1}  # type: ignore[union-attr]
    assert [one.value for one in listed] == [{"v": 1}]  # type: ignore[union-attr]
    assert store.get(("n",), "k").value == {"v": 3}  # type: ignore[union-attr]
    with pytest.raises(InvalidNamespaceError):
        store.put(("a.b",), "k", {})


def test_a_store_lists_only_its_own_items(memory: AgentMemory) -> None:
    """Wrong: a store lists or finds checkpoints, or other values of the application."""
    store = AgentMemoryStore(memory)
    graph(AgentMemorySaver(memory), store=store).invoke({"said": ["hi"]}, thread("a"))
    memory.values().put(("carts",), "1", {"items": 2})
    store.put(("users", "ana"), "1", {"text": "tea"})
    assert store.list_namespaces() == [("users", "ana")]
    assert store.list_namespaces(max_depth=1, prefix=("*",)) == [("users",)]
    assert [one.namespace for one in store.search(())] == [("users", "ana")]
    assert len(memory.values().search(("carts",))) == 1


def test_items_are_found_by_meaning_with_the_memorys_embedder(memory: AgentMemory) -> None:
    """Wrong: the memory's embedder is not used, or an item that is not indexed has a score."""
    store = AgentMemoryStore(memory, index={"fields": ["text"]})
    store.put(("n",), "sea", {"text": "swimming in the ocean at the beach"})
    store.put(("n",), "tax", {"text": "tax forms of the company"})
    store.put(("n",), "bare", {"text": "the beach"}, index=False)
    found = store.search(("n",), query="sea and sand")
    assert [one.key for one in found] == ["sea", "tax", "bare"]
    assert found[2].score is None
    assert [
        one.key for one in asyncio.run(store.asearch(("n",), filter={"text": "the beach"}))
    ] == ["bare"]


def test_items_are_found_by_meaning_with_a_custom_embedder(memory: AgentMemory) -> None:
    """Wrong: the vectors are not compared, because they are no unit vectors of 32 bits."""

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[3.0 * text.count("sea"), 3.0 * text.count("tax"), 0.1] for text in texts]

    store = AgentMemoryStore(memory, index={"fields": ["text"], "embed": embed, "dims": 3})
    store.put(("n",), "tax", {"text": "tax"})
    store.put(("n",), "sea", {"text": "sea"})
    found = store.search(("n",), query="the sea")
    assert [(one.key, round(one.score or 0)) for one in found] == [("sea", 1), ("tax", 0)]


def test_items_have_a_time_to_live(memory: AgentMemory) -> None:
    """Wrong: a time to live in minutes is read as seconds."""
    store = AgentMemoryStore(memory)
    store.put(("n",), "k", {"v": 1}, ttl=10)
    (kept,) = memory.values().search()
    assert kept.expires_at is not None
    assert 590 < (kept.expires_at - kept.updated_at).total_seconds() <= 600
