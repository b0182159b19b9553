"""A deletion in one transaction."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, NoteMemory, SpatialMemory, VectorMemory, WorkingMemory
from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.stores import MemoryStore, Store
from agent_memory.testing import watched
from tests.kit import Cut, cut_at

WHAT = "Ada moved to Lisbon"
DEFAULT_STATEMENTS = 12
SESSION_STATEMENTS = 19
ERASING = 16
"""Statements that overwrite the traces in the file: a new connection, two checkpoints, a lock."""


def settings(store: Store | str) -> AgentMemoryConfig:
    blocks = [VectorMemory(), NoteMemory(), WorkingMemory(persist=True), SpatialMemory()]
    return AgentMemoryConfig(store=store, blocks=blocks)


def fill(memory: AgentMemory) -> None:
    """Store two sessions of Ada and one of Bob, with records in each block."""
    for session_id, owner in (("a1", "ada"), ("a2", "ada"), ("b", "bob")):
        mine = memory.session(session_id, owner)
        mine.update({"role": "user", "content": f"{WHAT} in {session_id}."}, key=f"k-{session_id}")
        mine.working().set("plan", [f"{WHAT} in {session_id}"])
        mine.owner().notes().add(f"{WHAT} in {session_id}")
        mine.owner().spatial().observe(f"{WHAT} in {session_id}", (1.0, 2.0))
        mine.owner().values().put(("trips",), session_id, WHAT)
        mine.get("Where does Ada live?")
    memory.flush()


def stored_data(store: Store, owner: str) -> list[str]:
    """Return the heads, records and vectors of a user, and the notes of deletions."""
    found = [f"{block}: {one.owner} {one.session_id}" for block, one in store.all_records()]
    for block in store.vector_blocks():
        pages = store.all_vectors(block)
        found += [f"{block}: {one.owner} {one.session_id}" for some, _ in pages for one in some]
    found += [f"head: user:{head.user_id} {head.session_id}" for head in store.sessions()]
    notes = [*store.records("_notes", "user deletions"), *store.records("_notes", "scrubs")]
    return [one for one in found if f"user:{owner}" in one] + [note.text for note in notes]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of all SQLite connections opened from now on."""
    ran: list[str] = []
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def note(statement: str) -> None:
        if not statement.startswith("PRAGMA synchronous="):  # a setting of the connection
            ran.append(statement)

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        connection.set_trace_callback(note)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    return ran


def test_a_deletion_takes_few_statements(tmp_path: Path, statements: list[str]) -> None:
    """Wrong: each block and collection takes its own statements."""
    with AgentMemory(str(tmp_path / "memory.db")) as memory:
        for session_id, owner in (("s", "ada"), ("t", "bob")):
            memory.update(session_id, f"{WHAT}.", user_id=owner)
        memory.flush()
        statements.clear()
        memory.delete_user("ada")
        mine = statements[:]
        statements.clear()
        memory.delete("t")
    own = [one for one in mine if "agent_memory_" in one]
    assert len(own) == DEFAULT_STATEMENTS - 2, own  # and BEGIN, COMMIT
    assert len(mine) <= DEFAULT_STATEMENTS + ERASING, mine
    assert len(statements) <= SESSION_STATEMENTS + ERASING, statements


def test_statements_do_not_grow_with_sessions(tmp_path: Path, statements: list[str]) -> None:
    """Wrong: each session takes a transaction, or a statement for each collection."""
    fewest = {2: 1_000, 12: 1_000}  # other threads may add statements for several users
    with AgentMemory(str(tmp_path / "memory.db")) as memory:
        for owner, sessions in enumerate([*fewest] * 3):
            for number in range(sessions):
                memory.update(f"{owner}-{number}", f"{WHAT}.", user_id=str(owner))
            memory.flush()
            statements.clear()
            memory.delete_user(str(owner))
            count = len([one for one in statements if "agent_memory_" in one])
            fewest[sessions] = min(fewest[sessions], count)
    assert fewest[12] - fewest[2] <= 2, fewest  # more tombstones than fit one statement


@pytest.mark.long
@pytest.mark.parametrize("of_user", [True, False])
def test_an_interrupted_deletion_is_undone_or_completed(of_user: bool) -> None:
    """Wrong: an interrupted deletion is partly done, and no worker finishes it."""
    step, done = 1, False
    while not done:
        store = MemoryStore()
        with AgentMemory(settings(store)) as memory:
            fill(memory)
        before = stored_data(store, "ada")
        watch, steps = cut_at(step)
        try:
            cut = AgentMemory(settings(watched(store, watch)))
            steps.clear()
            cut.delete_user("ada") if of_user else cut.delete("a1")
            done = True
        except Cut:
            done = False
        committed = "after delete_whole" in steps
        now = stored_data(store, "ada")
        if not done and "before delete_whole" not in steps:
            assert now == before
        with AgentMemory(settings(store)) as memory:
            memory.flush()
            left = stored_data(store, "ada")
            if committed:
                assert not [one for one in left if of_user or one.endswith("a1")]
                assert not memory.history("a1")
            else:
                assert len(memory.history("a1")) == 1
        step += 1
    assert step > 5


def test_a_session_begun_during_a_user_deletion_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a session that begins during the user's deletion is lost or cannot be searched."""
    store = MemoryStore()
    with AgentMemory(settings(store)) as other:
        fill(other)

        def meanwhile(step: str) -> None:
            if step == "before delete_whole" and not store.sessions(user_id="ada", after="a2"):
                other.update("new", "Ada said quokka.", user_id="ada")
                other.flush("new")

        with AgentMemory(settings(watched(store, meanwhile))) as memory:
            memory.delete_user("ada")
        other.flush()
        assert [head.session_id for head in other.sessions(user_id="ada")] == ["new"]
        found = other.search("quokka", user_id="ada")
        assert [one.text for one in found if "quokka" in one.text]
        assert not other.search("Lisbon", user_id="ada", session_id="new")
    assert not store.records("_notes", "user deletions")
