"""A snapshot restores a session in any store, whole or not at all."""

import io
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from agent_memory import AgentMemory, FlushToLTM, VectorMemory, WorkingMemory, operations
from agent_memory.errors import InvalidSnapshot, StoreUnavailable
from agent_memory.stores import Store, open_store
from tests.integration.snapshot_world import (
    CANARY,
    Opener,
    bodies_of,
    contents,
    converse,
    exported,
    left_in,
    lines,
    opener,
    remembering,
    scores,
    seen,
)

__all__ = ["lines", "opener"]

RING = ("memory", "sqlite", "redis", "postgres", "mysql", "mongodb", "encrypted", "split", "memory")


@pytest.mark.parametrize(("source", "target"), list(pairwise(RING)))
def test_a_session_comes_back_from_any_store_in_any_other(
    source: str, target: str, lines: list[str], opener: Opener
) -> None:
    """Wrong: after a move between stores the log, the head, or the order of recalls differs."""
    with remembering("memory://") as memory:
        operations.import_session(memory, lines)
        memory.flush()
        wanted, worth = seen(memory), scores(memory)
    with remembering(opener(source)) as memory:
        operations.import_session(memory, lines)
        memory.flush()
        again = exported(memory)
    with remembering(opener(target)) as memory:
        shown = operations.import_session(memory, again)
        memory.flush()
        assert shown.end == wanted["head"].end
        found = seen(memory)
        for what, value in wanted.items():
            assert found[what] == value, what
        assert scores(memory) == pytest.approx(worth, abs=1e-4)
        # later messages are absorbed, and only those
        end = shown.end
        memory.update("s", {"role": "user", "content": "And what now?"}, user_id="ada")
        fed = {one.block: (one.first, one.last, one.error) for one in memory.flush("s")}
        assert fed == dict.fromkeys(("vector", "extractive"), (end + 1, end + 1, None))
        assert [one.text() for one in memory.pop("s")] == ["And what now?"]
        memory.delete("s")
        assert not left_in(memory._store)


def test_a_session_without_a_user(opener: Opener) -> None:
    """Wrong: records of a session without a user are lost, or assigned to a user."""
    with remembering(opener("memory")) as memory:
        converse(memory, "s", None)
        mine = memory.session("s")
        wanted, lines = seen(memory, "s", None), exported(memory)
        assert mine.owner().facts()
    with remembering(opener("sqlite")) as memory:
        assert operations.import_session(memory, lines).user_id is None
        assert seen(memory, "s", None) == wanted


def test_what_belongs_to_no_session_stays(lines: list[str]) -> None:
    """Wrong: a snapshot contains records of another session or user."""
    with remembering("memory://") as memory:
        operations.import_session(memory, lines)
        memory.user("ada").notes().add("A note of no session.")
        memory.update("t", {"role": "user", "content": "I live in Porto"}, user_id="ada")
        memory.session("t").owner().notes().add("A note of another session.")
        memory.update("u", {"role": "user", "content": "I live in Porto"}, user_id="ben")
        memory.flush()
        assert contents(exported(memory)) == contents(lines)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_snapshots_taken_under_load_are_of_one_moment(kind: str, opener: Opener) -> None:
    """Wrong: a snapshot has gaps, popped messages, or records beyond its cursors."""
    strategy = FlushToLTM(blocks=[VectorMemory()], absorb="every_update")
    with AgentMemory(
        store=opener(kind), overflow=strategy, blocks=[WorkingMemory()], max_tokens=400
    ) as memory:
        memory.update("s", {"role": "user", "content": "Begin."}, user_id="ada")
        done = threading.Event()

        def talk(name: str) -> None:
            n = 0
            while not done.is_set():
                n += 1
                said = {"role": "user", "content": f"{name} says {n}, of a tree by the river."}
                memory.update("s", said)
                memory.session("s").working().set(name, n)
                done.wait(0.02)

        def undo() -> None:
            while not done.is_set():
                memory.pop("s")
                memory.flush("s")
                done.wait(0.03)

        threads = [threading.Thread(target=talk, args=(name,)) for name in ("ann", "bob")]
        threads.append(threading.Thread(target=undo))
        for thread in threads:
            thread.start()
        taken = [exported(memory) for _ in range(4) if not done.wait(0.05)]
        done.set()
        for thread in threads:
            thread.join()
    assert len({len(one) for one in taken}) > 1
    for snapshot in taken:
        _check_moment(snapshot)


def _check_moment(snapshot: list[str]) -> None:
    """Assert that a snapshot equals a memory that got its messages up to its cursor."""
    strategy = FlushToLTM(blocks=[VectorMemory()])
    with (
        AgentMemory(store="memory://", overflow=strategy, max_tokens=10_000) as copy,
        AgentMemory(store="memory://", overflow=strategy, max_tokens=10_000) as twin,
    ):
        head = operations.import_session(copy, snapshot)
        entries = copy.history("s")
        assert [entry.seq for entry in entries] == list(range(1, head.end + 1))
        for name in ("ann", "bob"):
            said = [e.message.text() for e in entries if e.message.text().startswith(name)]
            numbers = [int(text.split()[2].strip(",")) for text in said]
            assert numbers == sorted(set(numbers))
        cursor = bodies_of(snapshot)[1]["cursors"].get("vector", 0)
        twin.update("s", [entry.message for entry in entries[:cursor]], user_id="ada")
        twin.flush()
        assert _vectors(copy) == _vectors(twin)
        assert len(_vectors(copy)) == cursor
        copy.flush()
        assert len(_vectors(copy)) == head.end


def _vectors(memory: AgentMemory) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for records, features in memory._store.all_vectors("vector"):
        for at, one in enumerate(records):
            meaning, words = features.meaning[at].tobytes(), set(features.words[at].ids.tolist())
            found[one.id] = (one.text, one.first, meaning, words)
    return found


def test_what_a_worker_left_behind_that_died_is_no_part_of_it() -> None:
    """Wrong: a snapshot contains records of messages that the cursor does not count."""
    strategy = FlushToLTM(blocks=[VectorMemory()])
    with (
        AgentMemory(store="memory://", overflow=strategy) as memory,
        AgentMemory(store="memory://", overflow=strategy) as copy,
    ):
        memory.update("s", [{"role": "user", "content": f"Tree {n}"} for n in range(4)])
        memory.flush()
        memory._store.move(replace(memory.update("s", []), cursors={"vector": 3}))
        assert operations.import_session(copy, exported(memory)).cursors == {"vector": 3}
        assert len(_vectors(copy)) == 3
        copy.flush()
        assert _vectors(copy) == _vectors(memory)


def test_a_worker_that_is_at_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a snapshot is taken while a worker absorbs, or waits forever."""
    monkeypatch.setattr("agent_memory.engine.leases._WAIT_SECONDS", 0.05)
    with AgentMemory(store="memory://") as memory:
        memory.update("s", {"role": "user", "content": "x"})
        assert memory._store.lease("s", "somebody", 60)
        with pytest.raises(StoreUnavailable, match="did not release session"):
            memory.session("s").export(io.StringIO())
        memory._store.release("s", "somebody")
        assert exported(memory)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_damaged_file_leaves_nothing(kind: str, lines: list[str], opener: Opener) -> None:
    """Wrong: a damaged file leaves data, or blocks its id."""
    store = opener(kind)
    with remembering(store) as memory:
        before = len(list(store.all_records()))
        for at in range(0, len(lines), 8 if kind == "memory" else 16):
            changed = [*lines[:at], f" {lines[at]}", *lines[at + 1 :]]
            for bad, number in ((changed, len(lines)), (lines[:at], at + 1)):
                with pytest.raises(InvalidSnapshot, match=f"line {number}: "):
                    operations.import_session(memory, bad)
                assert memory.history("s") == memory.sessions() == []
        assert not left_in(store)
        named = {one.text for block, one in store.all_records() if block == "_registry"}
        assert len(list(store.all_records())) == before + len(named)
        assert memory.search(CANARY, user_id="ada") == memory.user("ada").facts() == []
        operations.import_session(memory, lines)
        assert len(memory.history("s")) == 57


DYING = """
import os, signal, sys
from agent_memory import AgentMemory, FlushToLTM, NoteMemory, VectorMemory, WorkingMemory
from agent_memory import operations
from agent_memory.engine import leases
from agent_memory.stores.sql.store import SQLStore

leases.LEASE_SECONDS = 1.0
url, file, when = sys.argv[1], sys.argv[2], sys.argv[3]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Dying(SQLStore):
    def move(self, head, *, lease=None):
        if when == "shown" and not head.deleting:
            die()
        return super().move(head, lease=lease)

def lines():
    with open(file, encoding="utf-8", newline="\\n") as opened:
        for at, line in enumerate(opened):
            if str(at) == when:
                die()
            yield line

blocks = [VectorMemory(), WorkingMemory(), NoteMemory()]
with AgentMemory(store=Dying(url), overflow=FlushToLTM(blocks=blocks)) as memory:
    operations.import_session(memory, lines())
print("not killed")
"""


@pytest.mark.parametrize("when", ["shown", "at its last line"])
def test_killed_while_it_imports(when: str, lines: list[str], tmp_path: Path) -> None:
    """Wrong: a killed import shows part of a session, or leaves it in the files."""
    file = tmp_path / "s.jsonl"
    file.write_bytes("".join(lines).encode())
    killed = tmp_path / "killed"
    killed.mkdir()
    at = when if when == "shown" else str(len(lines) - 1)
    done = subprocess.run(
        [sys.executable, "-c", DYING, f"sqlite:///{killed}/m.db", str(file), at],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": "."},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (-9, ""), done.stderr
    for by in ("delete", "worker", "another import", "delete_user"):
        folder = shutil.copytree(killed, tmp_path / by)
        store = open_store(f"sqlite:///{folder}/m.db")
        with AgentMemory(store=store, blocks=[WorkingMemory()]) as memory:
            assert left_in(store)
            assert memory.sessions() == memory.history("s") == []
            assert memory.session("s").working().all() == {}
            assert not memory.user("ada").notes().all()
            _wait_for_lease(store)
            if by == "delete":
                memory.delete("s")
            elif by == "worker":
                memory.components.worker(1).run_once()
            elif by == "delete_user":
                memory.delete_user("ada")
            else:
                operations.import_session(memory, lines)
                assert len(memory.history("s")) == 57
                memory.delete("s")
            assert not left_in(store)
        store.close()
        for one in folder.iterdir():
            assert CANARY.encode() not in one.read_bytes(), (by, one.name)


def _wait_for_lease(store: Store) -> None:
    """Wait until the killed process's lease has expired."""
    while not store.lease("s", "nobody", 1):
        threading.Event().wait(0.1)
    store.release("s", "nobody")
