"""A damaged record affects only its session, is reported, and is restored from the log."""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, Summarize, VectorMemory, operations
from agent_memory.engine.edit.repair import LOST
from agent_memory.errors import Damaged, SessionOfAnotherUser, StoreError
from agent_memory.testing import FakeLLM
from tests.kit import clean_environment, invoke, model_at, run_worker

_SESSIONS = 5


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean_environment(monkeypatch, tmp_path)


@pytest.fixture
def memory() -> Iterator[AgentMemory]:
    """Sessions "s0" to "s4" of "ana", not yet absorbed."""
    with opened() as memory:
        for n in range(_SESSIONS):
            memory.update(f"s{n}", chat(n), user_id="ana")
        yield memory


def opened() -> AgentMemory:
    return AgentMemory(
        store="sqlite:///m.db", blocks=[VectorMemory()], overflow=Summarize(), max_tokens=2_000
    )


def chat(n: int) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": f"the parrot number {n} likes mangos"},
        {"role": "assistant", "content": f"noted about parrot {n}"},
        {"role": "user", "content": f"thanks for parrot {n}"},
    ]


def spoil(statement: str, *values: object) -> None:
    with closing(sqlite3.connect("m.db")) as connection:
        assert connection.execute(statement, values).rowcount > 0
        connection.commit()


IN_BODY = ("summary", "system")
IN_COLUMNS = {"version": "last", "created_at": "first"}


def spoil_head(session_id: str, part: str = "summary", value: object = "{broken") -> None:
    column = IN_COLUMNS.get(part, "body" if part in IN_BODY else "about")
    given = "?"
    if part not in IN_COLUMNS and not isinstance(value, bytes):
        there = f"CASE {column} WHEN '' THEN '{{}}' ELSE {column} END"
        given = f"json_set({there}, '$.{part}', ?)"
    which = "WHERE collection = 'head' AND id = ?"
    spoil(f"UPDATE agent_memory_documents SET {column} = {given} {which}", value, session_id)


def spoil_message(session_id: str, seq: int) -> None:
    where = "WHERE seq = ? AND session = ?"
    spoil(f"UPDATE agent_memory_messages SET body = 'x' {where}", seq, session_id)


def spoil_vectors(session_id: str) -> None:
    where = "WHERE collection LIKE 'vector:%' AND session = ?"
    spoil(f"UPDATE agent_memory_documents SET body = 'x' {where}", session_id)


COLUMNS = [
    *(("summary", "{broken"), ("summary", '{"text": 5}'), ("summary", b"\xff\xfe")),
    *(("cursors", "{broken"), ("cursors", '["a"]'), ("pinned", "7,"), ("system", "{broken")),
    *(("start", "many"), ("version", "many"), ("created_at", "today"), ("deleting", "perhaps")),
]


@pytest.mark.parametrize(("column", "value"), COLUMNS)
def test_a_damaged_head_affects_no_others(memory: AgentMemory, column: str, value: object) -> None:
    """Wrong: a damaged head makes `flush`, `stats`, `sessions` or a worker fail."""
    memory.close()
    spoil_head("s1", column, value)
    with opened() as memory:
        assert {one.session_id for one in memory.flush()} == {"s0", "s2", "s3", "s4"}
        assert memory.stats().sessions == _SESSIONS
        names = [head.session_id for head in memory.sessions(user_id="ana", limit=3)]
        assert names == ["s0", "s2", "s3"]
        found = memory.search("which parrot likes mangos", user_id="ana")
        assert {"s0", "s2", "s3", "s4"} <= {name for one in found for name, _ in one.sources}
        for call in (memory.get, memory.flush, memory.pop, partial(memory.update, message=chat(9))):
            with pytest.raises(Damaged, match=r"Session 's1' is damaged.*doctor --repair"):
                call("s1")
        run_worker(memory.components.worker(2))


@pytest.mark.parametrize(("column", "value"), COLUMNS)
def test_a_user_with_damage_can_be_deleted(memory: AgentMemory, column: str, value: object) -> None:
    """Wrong: the deletion of a user fails at a damaged session, or leaves data."""
    memory.flush()
    memory.update("of bob", chat(7), user_id="bob")
    memory.close()
    spoil_head("s1", column, value)
    with opened() as memory:
        memory.delete_user("ana")
        assert [head.session_id for head in memory.sessions()] == ["of bob"]
        assert everything() == []


VECTORS = "session FROM agent_memory_documents WHERE collection LIKE 'vector:%'"


def everything(selected: str = VECTORS) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect("m.db")) as connection:
        return connection.execute(f"SELECT {selected}").fetchall()


def test_only_its_user_can_delete_a_damaged_session(memory: AgentMemory) -> None:
    """Wrong: another user can delete a damaged session."""
    memory.close()
    spoil_head("s1")
    with opened() as memory:
        with pytest.raises(SessionOfAnotherUser):
            memory.delete("s1", user_id="eve")
        memory.session("s1", "ana").delete()
        assert memory.stats().sessions == _SESSIONS - 1


def test_flush_skips_a_damaged_entry(memory: AgentMemory, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: `flush` stops at a damaged message, or messages after it are never absorbed."""
    memory.close()
    spoil_message("s1", 2)
    with opened() as memory, caplog.at_level(logging.WARNING, logger="agent_memory"):
        done = {one.session_id: one for one in memory.flush()}
        assert {name: (one.last, one.error) for name, one in done.items()} == {
            f"s{n}": (3, None) for n in range(_SESSIONS)
        }
        assert memory.stats().blocks["vector"].lag == 0
        with pytest.raises(StoreError, match="Message 2 of session 's1' is damaged"):
            memory.history("s1")
        assert [entry.seq for entry in memory.history("s1", after=2)] == [3]
        memory.flush()
    told = [line for line in caplog.messages if "Message 2 of session 's1'" in line]
    assert len(told) <= 1


def doctor(*options: str) -> tuple[int, str]:
    Path("m.toml").write_text('store = "sqlite:///m.db"\nmax_tokens = 2000\n', encoding="utf-8")
    done = invoke(["doctor", "--config", "m.toml", *options])
    return done.exit_code, done.output


def test_rows_with_invalid_utf8_do_not_affect_other_rows(memory: AgentMemory) -> None:
    """Wrong: a row with invalid UTF-8 makes the SQLite driver fail for other rows too."""
    memory.close()
    for what, which in (
        ("documents SET body", "collection = 'head' AND id = 's1'"),
        ("messages SET text", "text LIKE '%parrot 2%'"),
    ):
        spoil(f"UPDATE agent_memory_{what} = CAST(X'7BFF' AS TEXT) WHERE {which}")
    with opened() as memory:
        assert {one.session_id for one in memory.flush()} == {"s0", "s2", "s3", "s4"}
        with pytest.raises(Damaged, match="Message 2 of session 's2'"):
            memory.history("s2")
        kinds = [error.damage and error.damage.kind for error in operations.damaged(memory)]
        assert sorted(map(str, kinds)) == ["message", "message", "session"]


def test_doctor_names_damaged_records(memory: AgentMemory) -> None:
    """Wrong: `doctor` exits with 0 for a damaged store, or does not name the damaged records."""
    memory.flush()
    memory.close()
    assert doctor()[0] == 0
    spoil_head("s1")
    spoil_message("s2", 1)
    spoil_vectors("s3")
    code, told = doctor()
    assert code == 1
    for name in ("Session 's1'", "Message 1 of session 's2'", "of block 'vector'", "summary"):
        assert name in told


def test_doctor_reports_a_corrupt_sqlite_file() -> None:
    """Wrong: `doctor` exits with 0 for a file with 8 KB of random bytes in it."""
    with AgentMemory("sqlite:///m.db", blocks=[]) as memory:
        for n in range(40):
            memory.update("long", {"role": "user", "content": f"{n} " + "words and words " * 100})
    with closing(sqlite3.connect("m.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with Path("m.db").open("r+b") as file:
        file.seek(os.path.getsize("m.db") // 2)
        file.write(bytes(range(256)) * 32)
    code, told = doctor()
    assert code == 1
    assert "SQLite" in told


def test_a_repair_requires_confirmation(memory: AgentMemory) -> None:
    """Wrong: `doctor --repair` changes data without a confirmation."""
    memory.close()
    spoil_head("s1")
    before = everything("* FROM agent_memory_documents WHERE collection = 'head'")
    code, told = doctor("--repair")
    assert code == 1
    assert "The head will be restored from the log: summary" in told
    assert everything("* FROM agent_memory_documents WHERE collection = 'head'") == before
    assert doctor("--repair", "--yes")[0] == 0
    code, told = doctor("--repair")
    assert (code, "nothing to repair" in told) == (0, True)


@pytest.mark.parametrize(("column", "value"), COLUMNS)
def test_a_repair_restores_a_damaged_head(memory: AgentMemory, column: str, value: object) -> None:
    """Wrong: a repaired head lacks data that the log has, or the session stays unusable."""
    memory.update("s1", {"role": "system", "content": "You keep parrots."})
    memory.flush()
    memory.close()
    spoil_head("s1", column, value)
    with opened() as memory:
        (error,) = operations.damaged(memory)
        assert operations.repair(memory, error) is not None
        assert operations.damaged(memory) == []
        memory.flush()
        if column in ("version", "created_at"):
            assert memory.history("s1") == []
            return
        context = memory.get("s1", user_id="ana")
        there = [one.content for one in context.messages]
        assert there == ["You keep parrots.", *(one["content"] for one in chat(1))]
        found = memory.search("parrot number 1 likes mangos", user_id="ana")
        assert "s1" in {name for one in found for name, _ in one.sources}
        memory.update("s1", chat(1), user_id="ana")


def test_a_repair_restores_a_damaged_summary() -> None:
    """Wrong: after a repair, the summary no longer covers the start of the session."""
    with FakeLLM("They talk of parrots.") as server:
        fields = {"store": "sqlite:///m.db", "blocks": [], "max_tokens": 400, **model_at(server)}
        with AgentMemory(**fields) as memory:
            for n in range(30):
                memory.update("s", chat(n), user_id="ana")
            before = memory.update("s", [])
            assert before.summary is not None
        spoil_head("s", "summary")
        with AgentMemory(**fields) as memory:
            (error,) = operations.damaged(memory)
            operations.repair(memory, error)
            memory.flush()
            memory.update("s", chat(31), user_id="ana")
            head = memory.update("s", [])
            assert head.summary.upto >= before.summary.upto
            assert len(memory.history("s")) == 93


def test_a_repair_replaces_a_damaged_message(memory: AgentMemory) -> None:
    """Wrong: a session with a damaged message stays unreadable, or loses other messages."""
    whole = memory.history("s1")
    memory.close()
    for seq in (1, 2):
        spoil_message("s1", seq)
    spoil_message("s2", 3)
    with opened() as memory:
        for error in operations.damaged(memory):
            operations.repair(memory, error)
        assert operations.damaged(memory) == []
        log = memory.history("s1")
        assert [one.message.content for one in log] == [LOST, LOST, whole[2].message.content]
        assert [one.total for one in log][1:] == [one.total for one in whole][1:]
        assert memory.history("s2")[2].message.content == LOST
        assert memory.update("s2", chat(2), user_id="ana").end == 6
        assert memory.get("s1").messages


def test_a_repair_does_not_delete_vectors_of_an_unconfigured_block(memory: AgentMemory) -> None:
    """Wrong: `doctor --repair` deletes damaged vectors of a block that is not configured, or a
    memory with the block does not restore them from the log."""
    memory.flush()
    before = sorted(everything())
    memory.close()
    spoil_vectors("s1")
    with AgentMemory(store="sqlite:///m.db", blocks=[]) as other:
        damaged = operations.damaged(other)
        assert damaged
        assert [operations.repair(other, error) for error in damaged] == [None] * len(damaged)
    assert sorted(everything()) == before
    Path("m.toml").write_text('store = "sqlite:///m.db"\nblocks = []\n', encoding="utf-8")
    done = invoke(["doctor", "--config", "m.toml", "--repair", "--yes"])
    assert done.exit_code == 1
    told = "It cannot be repaired without the block 'vector'"
    assert told in " ".join(done.output.split())
    with opened() as memory:
        plans = [operations.repair(memory, error) for error in operations.damaged(memory)]
        assert plans == ["vector will absorb session 's1' again."] * len(damaged)
        memory.flush()
        assert operations.damaged(memory) == []
    assert sorted(everything()) == before


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE agent_memory_documents SET data = substr(data, 1, 99) "
        "WHERE collection LIKE 'segment:%'",
        "DELETE FROM agent_memory_documents WHERE collection LIKE 'segment:%'",
    ],
    ids=["cut short", "lost"],
)
def test_a_repair_restores_damaged_features(memory: AgentMemory, change: str) -> None:
    """Wrong: records whose segment of features is damaged or lost are never found again."""
    memory.flush()
    before = sorted(everything())
    memory.close()
    spoil(change)
    with opened() as memory:
        found = memory.search("which parrot likes mangos", user_id="ana", limit=50)
        assert {name for one in found for name, _ in one.sources} >= {"s0", "s1", "s2", "s4"}
        assert memory.update("s1", chat(9), user_id="ana").end == 6
        memory.flush()
        memory.delete("s3")
        damaged = operations.damaged(memory)
        assert {error.damage.session_id for error in damaged if error.damage} >= {"s0", "s2"}
        for error in damaged:
            operations.repair(memory, error)
        memory.flush()
        assert operations.damaged(memory) == []
        found = memory.search("which parrot likes mangos", user_id="ana", limit=50)
        assert {name for one in found for name, _ in one.sources} == {"s0", "s1", "s2", "s4"}
    again = [one for one in everything() if one != ("s1",)]
    assert sorted(again) == [one for one in before if one[0] not in ("s1", "s3")]


INDEX = (
    "UPDATE agent_memory_documents SET body = '[', version = 9 WHERE collection LIKE 'catalog:%'"
)


def test_a_repair_restores_a_damaged_catalog(memory: AgentMemory) -> None:
    """Wrong: a damaged catalog of vectors loses recalls, or cannot be restored."""
    memory.flush()
    question = "which parrot likes mangos"
    before = memory.search(question, user_id="ana")
    memory.close()
    spoil(INDEX)
    code, told = doctor()
    assert (code, "'a catalog' of block 'vector'" in told, "ana" in told) == (1, True, False)
    with opened() as memory:
        assert len(operations.damaged(memory)) == 1
        (error,) = operations.damaged(memory)
        planned = operations.repair(memory, error, dry_run=True)
        assert planned == "The catalog will be restored from the records that it listed."
        assert operations.repair(memory, error) == planned
        assert operations.damaged(memory) == []
        assert memory.search(question, user_id="ana") == before
    spoil(INDEX)
    with opened() as memory:
        assert memory.search(question, user_id="ana") == before
        assert operations.damaged(memory) == []
