"""A snapshot restores a session in any store, whole or not at all, from a path, pipe or file."""

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

from agent_memory import (
    AgentMemory,
    FlushToLTM,
    InvalidInput,
    VectorMemory,
    WorkingMemory,
    operations,
)
from agent_memory.errors import InvalidId, InvalidSnapshot, SessionExists, StoreUnavailable
from agent_memory.ltm_blocks import NoteMemory, SpatialMemory
from agent_memory.stores import MemoryStore, Store, open_store
from tests.integration.snapshot_world import (
    CANARY,
    Opener,
    bodies_of,
    contents,
    converse,
    exported,
    head_of,
    left_in,
    lines,
    log_of,
    opener,
    own_values,
    remembering,
    resummed,
    scores,
    seen,
)
from tests.kit import mark_deleting, opened

__all__ = ["lines", "opener"]

RING = ("memory", "sqlite", "redis", "postgres", "mysql", "mongodb", "encrypted", "split", "memory")


@pytest.mark.parametrize(("source", "target"), list(pairwise(RING)))
def test_a_session_can_be_moved_between_any_two_stores(
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


def test_a_session_without_a_user_can_be_moved(opener: Opener) -> None:
    """Wrong: records of a session without a user are lost, or assigned to a user."""
    with remembering(opener("memory")) as memory:
        converse(memory, "s", None)
        mine = memory.session("s")
        wanted, lines = seen(memory, "s", None), exported(memory)
        assert mine.owner().facts()
    with remembering(opener("sqlite")) as memory:
        assert operations.import_session(memory, lines).user_id is None
        assert seen(memory, "s", None) == wanted


def test_a_snapshot_contains_only_records_of_its_session(lines: list[str]) -> None:
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
def test_snapshots_taken_under_load_are_consistent(kind: str, opener: Opener) -> None:
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


def test_a_snapshot_contains_no_records_beyond_the_cursor() -> None:
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


def test_an_export_waits_for_a_running_worker(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_damaged_snapshot_leaves_no_data(kind: str, lines: list[str], opener: Opener) -> None:
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
def test_a_killed_import_is_hidden_and_removed(when: str, lines: list[str], tmp_path: Path) -> None:
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


def test_paths_files_and_pipes_give_the_same_snapshot(lines: list[str], tmp_path: Path) -> None:
    """Wrong: writing or reading a snapshot by path, file or pipe gives different content."""
    with remembering("memory://") as memory:
        operations.import_session(memory, lines)
        path = tmp_path / "s.jsonl"
        done = memory.session("s").export(path)
        assert (done.session_id, done.entries, done.left_out) == ("s", 57, ())
        keys = sum(one.get("kind") == "key" for one in bodies_of(lines))
        values = sum(one.get("kind") == "value" for one in bodies_of(lines))
        assert (keys, values) == (56, 2)
        assert done.records == len(lines) - 57 - 4 - keys - values
        assert path.stat().st_mode & 0o077 == 0
        assert [file.name for file in tmp_path.iterdir()] == ["s.jsonl"]
        file = io.StringIO()
        memory.session("s").export(file)
        assert contents(file.getvalue().split("\n")[:-1]) == contents(lines)
        wanted = log_of(memory)
    reader, writer = os.pipe()

    def feed() -> None:
        with open(writer, "wb") as pipe:
            pipe.write(path.read_bytes())

    thread = threading.Thread(target=feed)
    thread.start()
    with (
        open(reader, encoding="utf-8", newline="\n") as pipe,
        path.open(encoding="utf-8", newline="\n") as opened,
    ):
        bare = [line.rstrip("\n") for line in lines]
        for source in (path, str(path), opened, pipe, iter(lines), bare):
            with AgentMemory(store="memory://") as memory:
                operations.import_session(memory, source)
                assert log_of(memory) == wanted
    thread.join()


def test_a_failed_export_keeps_the_previous_file(tmp_path: Path) -> None:
    """Wrong: a failed export destroys the previous file."""
    path = tmp_path / "s.jsonl"
    path.write_text("the one before")
    with AgentMemory(store="memory://") as memory:
        with pytest.raises(InvalidInput, match="no session 's'"):
            memory.session("s").export(path)
        assert path.read_text() == "the one before"
        assert list(tmp_path.iterdir()) == [path]
        memory.update("s", {"role": "user", "content": "x"})
        memory.session("s").export(path)
        with AgentMemory(store="memory://") as other:
            assert operations.import_session(other, path).end == 1


def test_an_export_during_a_deletion_cannot_be_imported() -> None:
    """Wrong: an export of a session that is deleted meanwhile can be imported."""

    class Deleting(io.StringIO):
        def write(self, text: str) -> int:
            if '"kind":"entry"' in text:
                mark_deleting(memory._store)
            return super().write(text)

    file = Deleting()
    with AgentMemory(store="memory://", blocks=[]) as memory:
        memory.update("s", {"role": "user", "content": "x"})
        with pytest.raises(StoreUnavailable, match="is incomplete"):
            memory.session("s").export(file)
        memory.delete("s")
        with pytest.raises(InvalidSnapshot, match="line 4: the file ends here"):
            operations.import_session(memory, io.StringIO(file.getvalue()), deleted=True)


def test_a_session_without_messages_can_be_imported(opener: Opener) -> None:
    """Wrong: a session that has only values cannot be imported."""
    with AgentMemory(store=opener("memory"), blocks=[WorkingMemory(), NoteMemory()]) as memory:
        memory.session("s", "ada").working().set("plan", 1)
        wanted, lines = head_of(memory), exported(memory)
    with AgentMemory(store=opener("sqlite"), blocks=[WorkingMemory()]) as memory:
        operations.import_session(memory, lines)
        assert head_of(memory) == wanted
        assert memory.session("s").working().all() == {"plan": 1}


def test_values_without_an_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: values with texts cannot be imported if no embedder is installed."""
    monkeypatch.setattr("agent_memory.models.embedders.local.is_installed", lambda: False)
    with AgentMemory(store="memory://") as memory, AgentMemory(store="memory://") as other:
        own_values(memory).put((), "tea", 1, texts=["green tea"])
        operations.import_session(other, exported(memory))
        assert [one.key for one in own_values(other).search(query="tea")] == ["tea"]


def test_an_import_rejects_observations_of_other_dimensions(lines: list[str]) -> None:
    """Wrong: imported observations of other dimensions make all of a user's unreadable."""
    with remembering("memory://", using=[SpatialMemory(dimensions=3)]) as memory:
        with pytest.raises(InvalidSnapshot, match="3 dimensions, the record has 2"):
            operations.import_session(memory, lines)
        assert not left_in(memory._store)


def test_an_import_does_not_change_an_existing_session(lines: list[str]) -> None:
    """Wrong: an import overwrites or mixes with an existing session."""
    with remembering("memory://") as memory:
        memory.update("s", {"role": "user", "content": "Here."}, user_id="ben")
        with pytest.raises(SessionExists, match="was not changed"):
            operations.import_session(memory, lines)
        assert [e.message.text() for e in memory.history("s")] == ["Here."]
        assert memory.user("ada").facts() == memory.search(CANARY, user_id="ada") == []


def test_an_import_first_completes_an_interrupted_deletion(lines: list[str]) -> None:
    """Wrong: an interrupted deletion blocks an import of its id, or leaves old records in it."""
    with remembering("memory://") as memory:
        operations.import_session(memory, lines)
        mark_deleting(memory._store)
        operations.import_session(memory, lines)
        memory.flush()
        with remembering("memory://") as other:
            operations.import_session(other, lines)
            assert seen(memory) == seen(other)


@pytest.mark.parametrize(
    ("field", "value"), [("session", "\x1eteam\x1es"), ("session", " "), ("user", "\x1eteam"),
                         ("user", ""), ("session", "x" * 256), ("session", "a\x00")],
)  # fmt: skip
def test_snapshots_with_invalid_ids_are_rejected(field: str, value: str, lines: list[str]) -> None:
    """Wrong: a crafted id puts a session into a shared namespace, or out of any caller's reach."""
    bodies = bodies_of(lines)
    bodies[0][field] = value
    with remembering("memory://") as memory:
        with pytest.raises(InvalidId):
            operations.import_session(memory, resummed(bodies))
        with pytest.raises(InvalidId):
            memory.session("\x1eteam\x1es").export(io.StringIO())
        assert not left_in(memory._store, value)


def test_an_import_keeps_the_newer_version_of_a_note(lines: list[str]) -> None:
    """Wrong: an import restores an old version of a note."""
    with remembering("memory://") as memory:
        operations.import_session(memory, lines)
        (note,) = memory.user("ada").notes().all()
        memory.update("t", {"role": "user", "content": "x"}, user_id="ada")
        memory.session("t").owner().notes().update(note.id, "Likes coffee now.")
        memory.delete("s")
        operations.import_session(memory, lines, deleted=True)
        assert [one.text for one in memory.user("ada").notes().all()] == ["Likes coffee now."]


def test_other_processes_drop_their_caches(lines: list[str], opener: Opener) -> None:
    """Wrong: another process uses a stale cache after an import."""
    store = opener("sqlite")
    with remembering(store) as memory, remembering(store) as other:
        say = {"role": "user", "content": "I live in Porto"}
        other.update("t", say, user_id="ada")
        other.session("t").owner().spatial().observe("A lamp.", (9.0, 9.0))
        other.flush()
        assert [one.text for one in other.search("home", user_id="ada", limit=1)]
        assert len(other.user("ada").spatial().near((0, 0))) == 1
        operations.import_session(memory, lines)
        assert any(CANARY in one.text for one in other.search(CANARY, user_id="ada"))
        assert len(other.user("ada").spatial().near((0, 0))) == 2
        found = other.get("t", "Which instrument does Ada play?").extracted_facts
        assert "Ada plays the xylophone." in [one.text.split(" (")[0] for one in found]


def test_other_models_get_new_vectors(lines: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: vectors of another model are searched instead of being made again."""
    bodies = bodies_of(lines)
    (announced,) = [one for one in bodies if one.get("kind") == "vectors"]
    announced["model"] = "another"
    with remembering("memory://") as memory:
        shown = operations.import_session(memory, resummed(bodies))
        assert "vector" not in shown.cursors
        assert shown.cursors["extractive"] == shown.end
        assert not list(memory._store.all_vectors("vector"))
        assert not [one for one in caplog.records if one.levelname == "WARNING"]
        memory.flush()
        with remembering("memory://") as other:
            operations.import_session(other, lines)
            assert seen(memory) == seen(other)


def test_expired_messages_log_a_warning(lines: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: after an import, expired messages are missing from a block, and no warning says so."""
    with remembering("memory://", retention="window") as memory:
        operations.import_session(memory, lines)
        memory.flush()
        head = memory.update("s", {"role": "user", "content": "Cut."}, user_id="ada")
        memory.flush()
        head = memory.update("s", [])
        assert head.expired
        wanted, short = seen(memory), exported(memory)
    with remembering("memory://") as memory:
        operations.import_session(memory, short)
        assert seen(memory) == wanted
    bodies = bodies_of(short)
    (announced,) = [one for one in bodies if one.get("kind") == "vectors"]
    announced["dimension"] = 7
    with remembering("memory://") as memory:
        operations.import_session(memory, resummed(bodies))
        assert "without the first" in caplog.text
        memory.flush()
        assert memory.search("And tea?", user_id="ada")


def test_records_of_blocks_that_are_not_configured_are_imported(lines: list[str]) -> None:
    """Wrong: an import loses the records of blocks that are not configured here."""
    store = MemoryStore()
    with AgentMemory(store=store, model=None, blocks=[]) as memory:
        shown = operations.import_session(memory, lines)
        assert shown.cursors == {"extractive": shown.end}  # their model is unknown here
    with remembering(store) as memory:
        memory.flush()
        with remembering("memory://") as other:
            operations.import_session(other, lines)
            assert seen(memory) == seen(other)
        memory.delete("s")
    with AgentMemory(store=store, blocks=[]) as memory:
        operations.import_session(memory, lines, deleted=True)
        memory.delete("s")
    assert not left_in(store)
    with AgentMemory(store=store, blocks=[]) as memory:
        operations.import_session(memory, lines, deleted=True)
        memory.delete_user("ada")
    assert not left_in(store)
    left = {block for block, _ in store.all_records()}
    assert not left & {"working", "notes", "spatial"}


def test_dead_letters_are_imported_and_can_be_retried(opener: Opener) -> None:
    """Wrong: an import loses dead letters, or they cannot be delivered again."""

    class Picky(VectorMemory):
        def update(self, scope: object, entries: object) -> None:
            if any("bad" in entry.message.text() for entry in entries):  # type: ignore[attr-defined]
                raise ValueError("I don't like it.")
            super().update(scope, entries)  # type: ignore[arg-type]

    def opened(store: Store, block: VectorMemory) -> AgentMemory:
        return AgentMemory(store=store, overflow=FlushToLTM(blocks=[block]), absorb_attempts=1)

    with opened(opener("memory"), Picky()) as memory:
        memory.update("s", {"role": "user", "content": "good"}, user_id="ada")
        memory.flush()
        memory.update("s", {"role": "user", "content": "bad tree"}, user_id="ada")
        memory.flush()
        letters, lines = operations.dead_letters(memory), exported(memory)
        assert [one.first for one in letters] == [2]
    with opened(opener("sqlite"), VectorMemory()) as memory:
        operations.import_session(memory, lines)
        assert operations.dead_letters(memory) == letters
        assert "bad tree" not in str(memory.search("tree", user_id="ada"))
        assert [one.error for one in operations.retry(memory)] == [None]
        assert operations.dead_letters(memory) == []
        assert "bad tree" in str(memory.search("tree", user_id="ada"))


def test_vectors_are_imported_into_the_blocks_own_database() -> None:
    """Wrong: an import looks for a block's vectors in the wrong database."""
    pytest.importorskip("qdrant_client")
    with opened("memory://", VectorMemory(store=":memory:")) as memory:
        for n in range(30):
            memory.update("s", {"role": "user", "content": f"Tree {n} grows."}, user_id="ada")
        memory.flush()
        wanted = [(one.id, one.text) for one in memory.search("Tree 7", user_id="ada")]
        lines = exported(memory)
    assert sum('"kind":"vector"' in line for line in lines) == 30
    for place in (":memory:", None):
        with opened("memory://", VectorMemory(store=place)) as memory:
            assert operations.import_session(memory, lines).cursors == {"vector": 30}
            found = memory.search("Tree 7", user_id="ada")
            assert [(one.id, one.text) for one in found] == wanted
