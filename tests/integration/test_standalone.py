"""`ChatHistory` and `VectorIndex` with an `AgentMemory` over the same store."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_memory import AgentMemory, Block, ChatHistory, VectorIndex, VectorMemory
from agent_memory.core.records import Entry, Scope
from agent_memory.errors import (
    ConfigError,
    DimensionMismatch,
    InvalidInput,
    SessionOfAnotherUser,
    UnsupportedOperation,
)
from agent_memory.models.embedders.base import NoEmbedder
from agent_memory.standalone.item_index import Item
from agent_memory.stores import MemoryStore, SQLStore
from agent_memory.strategies import FlushToLTM, Summarize, Trim
from agent_memory.testing.contract import together
from agent_memory.testing.watching import watched
from tests.contract.standalone_contract import chat_of, texts
from tests.kit import Echo, mark_deleting, piped


class Notes(Echo):
    """Counts its updates. `within` is called before each."""

    kind: str = "notes"
    fed: list[str] = []
    within: Any = lambda: None

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.within()
        self.fed.extend(entry.message.text() for entry in entries)
        super().update(scope, entries)


def memory(store: Any, *blocks: Block, **fields: Any) -> AgentMemory:
    overflow = FlushToLTM(blocks=blocks) if blocks else Trim()
    return AgentMemory(store=store, recall_timeout=60, **{"overflow": overflow, **fields})


def recalled(agent: AgentMemory, question: str = "moon", session_id: str = "s") -> list[str]:
    return sorted(one.text for one in agent.search(question, session_id=session_id))


def test_an_agent_reads_a_saved_chat_history() -> None:
    """Wrong: an agent does not see a saved list, or counts its tokens differently."""
    store = MemoryStore()
    given = [{"role": "system", "content": "Be brief."}, *chat_of("one", "two of them")]
    with ChatHistory(store) as history, AgentMemory(store=store, blocks=[]) as agent:
        history.save("s", given, user_id="ana")
        agent.update("twin", given, user_id="ana")
        for session in ("s", "twin"):
            assert agent.get(session).to_messages() == given
        one, twin = (agent.history(session) for session in ("s", "twin"))
        counted = [[(e.tokens, e.total, e.encoding) for e in log] for log in (one, twin)]
        assert counted[0] == counted[1]
        agent.update("s", chat_of("three"), user_id="ana")
        assert texts(history)[1:] == ["one", "two of them", "three"]
        assert [head.session_id for head in agent.sessions(user_id="ana")] == ["s", "twin"]


def test_a_save_replaces_or_removes_the_system_message() -> None:
    """Wrong: a replaced or removed system message is still sent to the model."""
    store = MemoryStore()
    with ChatHistory(store) as history, memory(store) as agent:

        def shown(*messages: dict[str, Any]) -> list[str]:
            history.save("s", messages)
            return [one["content"] for one in agent.get("s").to_messages()]

        first, second = ({"role": "system", "content": text} for text in ("first", "second"))
        (a,) = chat_of("a")
        assert shown(first, a) == ["first", "a"]
        assert shown(first, a, second) == ["second", "a"]
        assert shown(first, a) == ["first", "a"]
        assert shown(a) == ["a"]
        assert shown(second, a) == ["second", "a"]
        assert shown() == []


def test_unchanged_messages_are_not_absorbed_again() -> None:
    """Wrong: each save of a conversation makes blocks absorb all of it again."""
    store, block = MemoryStore(), Notes(fed=[])
    with ChatHistory(store) as history, memory(store, block) as agent:
        for count in (1, 2, 2, 3):
            history.save("s", chat_of(*[f"turn {n}" for n in range(count)]))
            agent.flush()
        assert agent.blocks["notes"].fed == ["turn 0", "turn 1", "turn 2"]
        times = [entry.created_at for entry in agent.history("s")]
        history.save("s", [*history.load("s"), *chat_of("turn 3")])
        assert [entry.created_at for entry in agent.history("s")][:3] == times


@pytest.mark.parametrize("block", [Notes(), VectorMemory()], ids=["facts", "vectors"])
def test_replaced_messages_are_not_recalled(block: Block, url: str) -> None:
    """Wrong: a message that is no longer in the list is recalled."""
    with ChatHistory(url) as history, memory(url, block) as agent:

        def found() -> list[str]:
            words = ("golden", "cheese", "silver", "purple", "green")
            asked = {one: agent.search(f"{one} moon", user_id="u") for one in words}
            return [one for one in words if any(one in recall.text for recall in asked[one])]

        history.save("s", chat_of("golden moon", "cheese moon", "silver moon"), user_id="u")
        history.save("t", chat_of("green moon"), user_id="u")
        agent.flush()
        assert found() == ["golden", "cheese", "silver", "green"]
        history.save("s", chat_of("golden moon", "purple moon"))
        assert set(found()) <= {"golden", "purple", "green"}
        agent.flush()
        assert found() == ["golden", "purple", "green"]
        history.save("s", [])
        assert found() == ["green"]


def test_a_block_with_its_own_database_drops_replaced_messages() -> None:
    """Wrong: a block with its own Qdrant keeps records of replaced messages."""
    store = MemoryStore()
    with ChatHistory(store) as history, memory(store, VectorMemory(store=":memory:")) as agent:
        history.save("s", chat_of("moon a", "moon b", "moon c"))
        agent.flush()
        assert len(recalled(agent)) == 3
        history.save("s", chat_of("moon a"))
        agent.flush()
        assert recalled(agent) == ["user: moon a"]


def test_an_interrupted_save_changes_nothing() -> None:
    """Wrong: an interrupted save leaves a mixture of the old and the new list or records."""
    inner, armed = MemoryStore(), []

    def fail(step: str) -> None:
        if armed and step == armed[0]:
            raise ConnectionError(step)

    store = watched(inner, fail)
    with ChatHistory(store) as history, memory(inner, Notes(fed=[])) as agent:
        history.save("s", chat_of("a", "b", "c"))
        agent.flush()
        for step in ("before move", "after move", "after delete_records", "before rewrite"):
            armed[:] = [step]
            with pytest.raises(ConnectionError):
                history.save("s", chat_of("a", "x"))
            armed.clear()
            assert texts(history) == ["a", "b", "c"]
            agent.flush()
            assert recalled(agent) == ["a", "b", "c"]
        history.save("s", chat_of("a", "x"))
        agent.flush()
        assert recalled(agent) == ["a", "x"]


@pytest.mark.parametrize(
    "strategy", [Trim(keep_messages=4), Summarize(keep_messages=4, max_summary_tokens=100)]
)
def test_a_save_updates_the_window(strategy: Any) -> None:
    """Wrong: after a save the agent uses a summary of removed messages, or shows no window."""
    store, names = MemoryStore(), [f"message number {n} " + "word " * 30 for n in range(30)]
    fields: dict[str, Any] = {"overflow": strategy, "max_tokens": 700}
    with ChatHistory(store) as history, memory(store, **fields) as agent:
        for name in names:
            agent.update("s", {"role": "user", "content": name})
        start = agent.sessions()[0].start
        assert start > 10
        history.save("s", [*history.load("s")[:-1], *chat_of("changed")])  # within the window
        (head,) = agent.sessions()
        assert (head.start, head.window_tokens) == (
            start, sum(entry.tokens for entry in agent.history("s", after=start)),
        )  # fmt: skip
        assert agent.get("s").to_messages()[-1]["content"] == "changed"
        history.save("s", [*history.load("s")[:5], *chat_of("begun anew")])  # before it
        (head,) = agent.sessions()
        assert (head.start, head.summary, head.pinned) == (0, None, ())
        assert head.window_tokens == sum(entry.tokens for entry in agent.history("s"))
        context = agent.get("s")
        assert context.to_messages()[-1]["content"] == "begun anew"
        assert context.tokens <= 700
        history.save("s", chat_of(*names))
        assert agent.get("s").tokens <= 700
        agent.update("s", chat_of("and on"))
        assert agent.sessions()[0].start > 0


def test_a_chat_history_belongs_to_its_user() -> None:
    """Wrong: a save overwrites another user's session, or deleting a user leaves a history."""
    store = MemoryStore()
    with ChatHistory(store) as history, memory(store, Notes(fed=[])) as agent:
        history.save("s", chat_of("a"))
        agent.flush()
        history.save("s", chat_of("a"), user_id="ana")  # it had no user before
        agent.flush()
        assert [one.text for one in agent.search("a", user_id="ana")] == ["a"]
        for messages in (chat_of("b"), chat_of("a"), []):
            with pytest.raises(SessionOfAnotherUser):
                history.save("s", messages, user_id="ben")
        history.save("s", chat_of("c"))
        assert texts(history) == ["c"]
        agent.delete_user("ana")
        assert history.load("s") == []
        history.save("s", chat_of("mine"), user_id="ben")
        history.save("t", chat_of("too"), user_id="ben")
        history.clear("s")
        history.save("s", chat_of("anybody's"), user_id="ana")
        assert [head.session_id for head in agent.sessions(user_id="ben")] == ["t"]


def test_a_save_completes_an_unfinished_deletion() -> None:
    """Wrong: a save during a deletion waits forever, or restores deleted messages."""
    store = MemoryStore()
    with ChatHistory(store) as history:
        history.save("s", chat_of("old"), user_id="ana")
        mark_deleting(store)
        assert history.load("s") == []
        history.save("s", chat_of("new"), user_id="ben")
        assert texts(history) == ["new"]


def test_a_save_does_not_restore_expired_messages() -> None:
    """Wrong: a save restores expired messages, or restarts the numbering."""
    store = MemoryStore()
    fields: dict[str, Any] = {"retention": "window", "max_tokens": 300}
    with ChatHistory(store) as history, memory(store, **fields) as agent:
        for n in range(40):
            agent.update("s", {"role": "user", "content": f"message {n} " + "word " * 20})
        agent.flush()
        (head,) = agent.sessions()
        assert head.expired > 0
        left = history.load("s")
        assert len(left) == head.end - head.expired
        history.save("s", [*left, *chat_of("more")])
        assert agent.sessions()[0].expired == head.expired
        history.save("s", chat_of("anew", "and on"))
        (after,) = agent.sessions()
        assert (after.end, after.window_tokens) == (
            head.expired + 2, sum(entry.tokens for entry in agent.history("s")),
        )  # fmt: skip
        assert texts(history) == ["anew", "and on"]
        with pytest.raises(UnsupportedOperation, match="for a chat history, call `clear`"):
            history.save("s", [])
        history.clear("s")
        history.save("s", [])
        assert history.load("s") == []


SAVER = """
import itertools, sys
from agent_memory import ChatHistory

url, name, turns = sys.argv[1:]
long = [{"role": "user", "content": f"{name} {n} " + "x" * 2000} for n in range(60)]
short = [{"role": "user", "content": f"{name} alone {n}"} for n in range(5)]
with ChatHistory(url, tokenizer="approximate") as history:
    for turn in range(int(turns)) if int(turns) else itertools.count():
        history.save("s", short if turn % 2 else long)
        if turn == 1:
            print("saved", flush=True)
"""


def saver(url: str, name: str, turns: int) -> subprocess.Popen[str]:
    return piped(sys.executable, "-W", "error", "-c", SAVER, url, name, str(turns), stderr=None)


def is_whole(found: list[str], names: str) -> bool:
    """Return whether a list is exactly one that a saver wrote."""
    given = [
        [row for n in range(count) if (row := f"{name}{between}{n}")]
        for name in names
        for count, between in ((60, " "), (5, " alone "))
    ]
    return [text.partition(" x")[0] for text in found] in given


def test_a_reader_sees_one_list_although_savers_are_killed(url: str) -> None:
    """Wrong: a reader gets a mixture of two lists, or none, also after `kill -9`."""
    with ChatHistory(url, tokenizer="approximate") as history:
        started = [saver(url, "a", 0), saver(url, "b", 0)]
        for process in started:
            with process:
                assert process.stdout.readline() == "saved\n"
                assert all(is_whole(texts(history), "ab") for _ in range(8))
                os.kill(process.pid, signal.SIGKILL)
            assert is_whole(texts(history), "ab")
        history.save("s", chat_of("goes on"))
        assert texts(history) == ["goes on"]


def test_deleting_a_user_deletes_the_users_index_items(tmp_path: Path) -> None:
    """Wrong: a deleted user's index items stay in the store, or another user's are deleted."""
    path = tmp_path / "m.db"
    url = f"sqlite:///{path}"
    with (
        VectorIndex(url, dimension=2) as index,
        VectorIndex(url, dimension=2, name="second") as second,
        memory(url, VectorMemory(name="index")) as agent,
    ):
        for half in (index, second):
            for user in ("ana", "ben", None):
                half.store(Item("a", f"secret of {user}", [1, 0]), user_id=user)
        agent.update("s", chat_of("secret of the moon"), user_id="ben")
        agent.flush()
        agent.delete_user("ana")
        for half in (index, second):
            assert half.search([1, 0], user_id="ana") == []
            assert len(half.search([1, 0], user_id="ben")) == len(half.search([1, 0])) == 1
        assert len(agent.search("moon", user_id="ben")) == 1
        agent.delete("s")
        assert len(index.search([1, 0], user_id="ben")) == 1
    with closing(sqlite3.connect(path)) as raw:
        dumped = "\n".join(raw.iterdump())
    assert "secret of ana" not in dumped
    assert "user:ana" not in dumped
    assert "secret of ben" in dumped
    assert b"secret of ana" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_an_index_can_delete_the_items_of_a_user() -> None:
    """Wrong: `delete_user` of an index keeps the user's items, or deletes other users'."""
    with VectorIndex(":memory:", dimension=2) as index:
        for user in ("ana", "ben", None):
            index.store(Item("a", vector=[1, 0]), user_id=user)
        index.delete_user("ana")
        index.delete_user("ana")
        found = [len(index.search([1, 0], user_id=user)) for user in ("ana", "ben", None)]
    assert found == [0, 1, 1]


class Letters:
    """A custom embedder: how often each letter occurs in a text."""

    name, dimension, unrelated = "letters", 26, 0.0

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.asked.append(list(texts))
        rows = [[text.count(chr(97 + n)) for n in range(26)] for text in texts]
        counts = np.array(rows, np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)


def test_texts_are_embedded() -> None:
    """Wrong: a text is found by words, embedded one by one, or found without a vector."""
    store, letters = MemoryStore(), Letters()
    with VectorIndex(store, embedding=letters) as index:
        index.store([Item("a", "one"), Item("b", "two"), {"id": "c", "text": "three"}])
        assert letters.asked == [["one", "two", "three"]]
        found = index.search("tow", top_k=1)
        assert [(match.id, match.text) for match in found] == [("b", "two")]
        assert found[0].score == pytest.approx(1)
        own = letters.embed(["three"])[0]
        index.store(Item("d", "four", own))
        assert {match.id for match in index.search(own, threshold=0.99)} == {"c", "d"}
        for blank in ("", " \n", "?"):
            with pytest.raises(InvalidInput, match="zeros"):
                index.search(blank)
            with pytest.raises(InvalidInput, match="zeros"):
                index.store([Item("e", "five"), Item("f", blank)])
        assert len(index.search(own)) == 4
    with pytest.raises(DimensionMismatch, match="'letters' with 26 numbers"):
        VectorIndex(store, dimension=26)
    with pytest.raises(DimensionMismatch, match="the embedder's vectors have 26"):
        VectorIndex(store, embedding=letters, dimension=27)
    VectorIndex(store, embedding=letters, dimension=26).close()


def test_a_missing_embedder_causes_no_silent_failure() -> None:
    """Wrong: an index without an embedder accepts texts, or searches for them."""
    with pytest.raises(ConfigError, match="Pass `dimension`"):
        VectorIndex(MemoryStore(), embedding=NoEmbedder())
    with VectorIndex(MemoryStore(), dimension=2) as index:
        index.store(Item("a", "with a vector", np.array([1, 0], np.float16)))
        with pytest.raises(InvalidInput, match="embedding"):
            index.store(Item("b", "without"))
        with pytest.raises(InvalidInput, match="embedding"):
            index.search("without")
        assert [match.id for match in index.search(np.array([2, 0]))] == ["a"]


@pytest.mark.parametrize(
    "fields",
    [{"name": ""}, {"name": "Index"}, {"name": "a b"}, {"name": "x" * 49}, {"name": "_a"},
     {"dimension": 0}, {"dimension": -3}, {"dimension": 2.0}, {"dimension": True}],
    ids=str,
)  # fmt: skip
def test_invalid_index_settings_are_rejected(fields: dict[str, Any]) -> None:
    """Wrong: an index is created with settings that fail later, or takes another's name."""
    with pytest.raises(ConfigError):
        VectorIndex(MemoryStore(), **{"dimension": 2, **fields})


def test_a_rejected_index_closes_its_store(url: str) -> None:
    """Wrong: a refused index leaves its connection open."""
    VectorIndex(url, dimension=2).close()
    with pytest.raises(DimensionMismatch, match="'given' with 2 numbers"):
        VectorIndex(url, dimension=3)
    with closing(SQLStore(url)) as store:
        assert set(store.vector_blocks()) == {"_index_index"}


def test_several_threads_can_create_one_index(url: str) -> None:
    """Wrong: opening a new index fails when several threads do it at the same time."""
    opened = together([partial(VectorIndex, url, dimension=2)] * 6)
    for n, index in enumerate(opened):
        index.store(Item(str(n), vector=[1, n]))
    assert len(opened[0].search([1, 0])) == 6
    for index in opened:
        index.close()
